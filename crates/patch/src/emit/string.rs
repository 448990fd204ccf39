//! `movs` and `stos`, repeated or not, in pieces of bounded length.
//!
//! A piece goes from the source to the record and from the record to the alias, by the same string
//! instruction. It is cut so that a copy whose source and destination overlap comes out as if it
//! went element by element, and it is one element if the direction flag is set. After each piece
//! the slots of RSI, RDI and RCX move on: they are what the target would see if it were interrupted
//! there.
//!
//! A pool that is mapped twice in the window can overlap unseen; then the bytes are those of the
//! larger pieces.

use iced_x86::{Code, MemoryOperand, Register};
use powerfail_protocol::{
    ADDRESS_AT, FLAG_ADDRESS, FLAG_FOUND, MAX_VALUE_LEN, ScratchSlot, VALUE_AT, offset,
};

use super::builder::Builder;
use super::lock::Extent;
use super::state::WorkForm;
use crate::assembler::{Condition, at, gs};
use crate::classify::Store;

const LODSB: u8 = 0xac;
const PIECE: Register = Register::R8;
const SCRATCH: Register = Register::R9;
const BACKWARD: ScratchSlot = ScratchSlot::String(0);
const NEXT_SOURCE: ScratchSlot = ScratchSlot::String(1);

const SPILLED: [Register; 6] = [
    Register::RSI,
    Register::RDI,
    Register::RCX,
    Register::RDX,
    PIECE,
    SCRATCH,
];

impl Builder<'_> {
    pub(super) fn string(&mut self, store: Store, copies: bool, repeats: bool) {
        self.record = Register::RBX;
        self.asm.spill(Register::RAX);
        if self.keeps_flags {
            self.asm.spill_flags();
        }
        let outside = self.check_window(Register::RDI);
        let state = self.asm.state();
        for register in SPILLED {
            self.asm.spill(register);
        }
        self.asm.spill(self.record);
        self.probe_direction();
        self.alone_or_shared(|builder| builder.pieces(store, copies, repeats));
        self.asm.bind_in(outside, state);
        self.restore_flags_and_rax(ScratchSlot::Flags, ScratchSlot::Register(0));
        self.original_and_back();
    }

    fn pieces(&mut self, store: Store, copies: bool, repeats: bool) {
        let element = u32::from(store.len_bytes);
        let shift = element.trailing_zeros().cast_signed();
        let piece = self.asm.label();
        let done = self.asm.label();
        self.asm.bind(piece);
        self.choose_piece(element, shift, copies, repeats, done);
        self.reserve_piece(piece);
        self.describe_piece(store);
        // The value, from the source to the record.
        self.asm.rr(Code::Mov_r64_rm64, Register::RCX, PIECE);
        self.asm
            .rm(Code::Lea_r64_m, Register::RDI, at(self.record, VALUE_AT));
        if !copies {
            self.asm.reload(Register::RAX);
        }
        self.repeat(element, copies);
        if copies {
            self.asm.save(NEXT_SOURCE, Register::RSI);
        }
        self.lock(Extent::Register(SCRATCH));
        self.record_found_piece(element);
        self.commits_from_here();
        self.commit();
        // From the record to the alias.
        self.load_alias(Register::RDI);
        self.asm
            .rm(Code::Lea_r64_m, Register::RSI, at(self.record, VALUE_AT));
        self.asm.rr(Code::Mov_r64_rm64, Register::RCX, PIECE);
        self.works_here();
        self.repeat(element, true);
        self.repeated_work_ends();
        self.unlock(WorkForm::Repeated, Register::RAX);
        self.advance(element, copies, repeats);
        if repeats {
            self.asm.jump(piece);
        }
        self.asm.bind(done);
        self.asm.restore(self.record);
        for register in SPILLED.into_iter().rev() {
            self.asm.restore(register);
        }
        self.restore_flags_and_rax(ScratchSlot::Flags, ScratchSlot::Register(0));
        self.back();
    }

    /// The alias of the target's RDI. Uses RAX.
    fn load_alias(&mut self, register: Register) {
        self.asm.load(register, ScratchSlot::Register(7));
        self.asm
            .load_constant(Register::RAX, self.settings.window.alias_delta);
        self.asm.rr(Code::Add_r64_rm64, register, Register::RAX);
    }

    /// Copies the old bytes from the alias into the record, behind the value.
    fn record_found_piece(&mut self, element: u32) {
        if !self.is_shared {
            return;
        }
        self.load_alias(Register::RSI);
        let behind = MemoryOperand::with_base_index_scale_displ_size(
            self.record,
            SCRATCH,
            1,
            i64::from(VALUE_AT + 7),
            1,
        );
        self.asm.rm(Code::Lea_r64_m, Register::RDI, behind);
        self.asm.ri(Code::And_rm64_imm8, Register::RDI, -8);
        self.asm.rr(Code::Mov_r64_rm64, Register::RCX, PIECE);
        self.repeat(element, true);
    }

    /// The direction flag cannot be read without a stack, but a load shows it.
    fn probe_direction(&mut self) {
        self.asm
            .rm(Code::Mov_r64_rm64, Register::RSI, gs(offset::SELF_ADDRESS));
        self.asm.raw(&[LODSB]);
        self.asm
            .rm(Code::Cmp_r64_rm64, Register::RSI, gs(offset::SELF_ADDRESS));
        self.asm
            .rr(Code::Sbb_r32_rm32, Register::EAX, Register::EAX);
        self.asm.save(BACKWARD, Register::RAX);
    }

    /// PIECE = how many elements, SCRATCH = how many bytes, RSI and RDI as the target has them. Goes
    /// to `done` if nothing is left.
    fn choose_piece(
        &mut self,
        element: u32,
        shift: i32,
        copies: bool,
        repeats: bool,
        done: crate::assembler::Label,
    ) {
        self.asm.reload(Register::RSI);
        self.asm.reload(Register::RDI);
        if repeats {
            self.asm.reload(Register::RCX);
            self.asm
                .rr(Code::Test_rm64_r64, Register::RCX, Register::RCX);
            self.asm.jump_if(Condition::Equal, done);
            let most = u32::from(MAX_VALUE_LEN) / element;
            self.asm.load_constant(PIECE, u64::from(most));
            self.asm.rr(Code::Cmp_r64_rm64, Register::RCX, PIECE);
            self.asm.rr(Code::Cmovb_r64_rm64, PIECE, Register::RCX);
            self.asm.load_constant(Register::RAX, 1);
            self.asm.mi(Code::Cmp_rm32_imm8, gs(BACKWARD.offset()), 0);
            self.asm.rr(Code::Cmovne_r64_rm64, PIECE, Register::RAX);
        } else {
            self.asm.load_constant(PIECE, 1);
        }
        if copies && repeats {
            let apart = self.asm.label();
            self.asm.rr(Code::Mov_r64_rm64, SCRATCH, Register::RDI);
            self.asm.rr(Code::Sub_r64_rm64, SCRATCH, Register::RSI);
            self.asm.jump_if(Condition::Equal, apart);
            if shift != 0 {
                self.asm.ri(Code::Shr_rm64_imm8, SCRATCH, shift);
            }
            self.asm.rr(Code::Cmp_r64_rm64, SCRATCH, PIECE);
            self.asm.jump_if(Condition::AboveOrEqual, apart);
            // RAX is 1: an element at least.
            self.asm.rr(Code::Test_rm64_r64, SCRATCH, SCRATCH);
            self.asm.rr(Code::Cmove_r64_rm64, SCRATCH, Register::RAX);
            self.asm.rr(Code::Mov_r64_rm64, PIECE, SCRATCH);
            self.asm.bind(apart);
        }
        self.asm.rr(Code::Mov_r64_rm64, SCRATCH, PIECE);
        if shift != 0 {
            self.asm.ri(Code::Shl_rm64_imm8, SCRATCH, shift);
        }
    }

    fn reserve_piece(&mut self, again: crate::assembler::Label) {
        let full = self.asm.label();
        let padded = MemoryOperand::with_base_displ_size(SCRATCH, 7, 1);
        self.asm.rm(Code::Lea_r64_m, Register::RDX, padded);
        self.asm.ri(Code::And_rm64_imm8, Register::RDX, -8);
        let images = if self.is_shared { 2 } else { 1 };
        let record_len = MemoryOperand::new(
            Register::None,
            Register::RDX,
            images,
            i64::from(VALUE_AT),
            4,
            false,
            Register::None,
        );
        self.asm.rm(Code::Lea_r64_m, Register::RDX, record_len);
        self.asm.rr(Code::Mov_r64_rm64, self.record, Register::RDX);
        self.asm
            .mr(Code::Xadd_rm64_r64, gs(offset::CURSOR), self.record);
        let last =
            MemoryOperand::with_base_index_scale_displ_size(self.record, Register::RDX, 1, -1, 1);
        self.asm.rm(Code::Lea_r64_m, Register::RAX, last);
        self.refill_if_full(full, again);
    }

    fn describe_piece(&mut self, store: Store) {
        let found = if self.is_shared { FLAG_FOUND } else { 0 };
        let header = self.header(store.kind, FLAG_ADDRESS | found, 0);
        self.asm.rr(Code::Mov_r64_rm64, Register::RAX, SCRATCH);
        self.asm.ri(Code::Shl_rm32_imm8, Register::EAX, 16);
        self.asm.ri(
            Code::Or_rm32_imm32,
            Register::EAX,
            header.low().cast_signed(),
        );
        self.asm
            .mr(Code::Mov_rm32_r32, at(self.record, 0), Register::EAX);
        self.describe_site();
        self.asm.mr(
            Code::Mov_rm64_r64,
            at(self.record, ADDRESS_AT),
            Register::RDI,
        );
    }

    fn repeat(&mut self, element: u32, copies: bool) {
        let opcode = if copies { 0xa4 } else { 0xaa };
        match element {
            1 => self.asm.raw(&[0xf3, opcode]),
            2 => self.asm.raw(&[0xf3, 0x66, opcode + 1]),
            4 => self.asm.raw(&[0xf3, opcode + 1]),
            _ => self.asm.raw(&[0xf3, 0x48, opcode + 1]),
        }
    }

    /// Moves the slots behind the piece.
    fn advance(&mut self, element: u32, copies: bool, repeats: bool) {
        self.asm.reload(Register::RDI);
        self.asm.rm(
            Code::Lea_r64_m,
            Register::RAX,
            MemoryOperand::with_base_index(Register::RDI, SCRATCH),
        );
        self.asm.mi(Code::Cmp_rm32_imm8, gs(BACKWARD.offset()), 0);
        let back = MemoryOperand::with_base_displ_size(Register::RDI, -i64::from(element), 1);
        self.asm.rm(Code::Lea_r64_m, Register::RDI, back);
        self.asm
            .rr(Code::Cmove_r64_rm64, Register::RDI, Register::RAX);
        self.asm.save(ScratchSlot::Register(7), Register::RDI);
        if copies {
            self.asm.load(Register::RSI, NEXT_SOURCE);
            self.asm.save(ScratchSlot::Register(6), Register::RSI);
        }
        if repeats {
            self.asm.reload(Register::RCX);
            self.asm.rr(Code::Sub_r64_rm64, Register::RCX, PIECE);
            self.asm.save(ScratchSlot::Register(1), Register::RCX);
        }
    }
}
