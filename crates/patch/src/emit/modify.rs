//! Read-modify-writes, plain and locked.
//!
//! The old value is copied to the record, the instruction runs on the record, and the record's value
//! is stored: so the processor itself computes the value, the flags and the register that `xadd`,
//! `xchg` and `cmpxchg` change. If locked, the store is a `lock cmpxchg` that succeeds only if the old
//! value is still there; else everything begins again from the target's own state in the slots.
//!
//! The thread may lose its processor between the record and the exchange, for as long as a reader of the
//! record likes to take. So the stamp of a record that may be made anew is tentative until the exchange
//! has succeeded.

use iced_x86::{Code, Mnemonic, OpKind, Register};
use powerfail_protocol::{
    EventKind, FLAG_ADDRESS, Header, STAMP_AT, STAMP_TENTATIVE, ScratchSlot, VALUE_AT,
};

use super::builder::{Builder, Width, width};
use super::lock::{Extent, LOCK};
use super::state::WorkForm;
use crate::assembler::{Condition, Label, at, gs};
use crate::classify::Store;

/// The zero flag in AH as `lahf` leaves it.
const AH_ZERO_FLAG: i32 = 0x40;

/// The header of a compare-and-swap that failed: it stores nothing and is only a fence.
fn failed_exchange(header: Header) -> Header {
    Header {
        kind: EventKind::FenceLocked,
        ..header
    }
}

impl Builder<'_> {
    /// A register other than RAX and RDX that the instruction changes.
    fn changed_register(&self) -> Option<Register> {
        let instruction = &self.site.instruction;
        let exchanges = matches!(instruction.mnemonic(), Mnemonic::Xadd | Mnemonic::Xchg);
        let register = instruction.op1_register().full_register();
        (exchanges
            && instruction.op1_kind() == OpKind::Register
            && register != Register::RAX
            && register != Register::RDX)
            .then_some(register)
    }

    /// Add, shift, `xadd`, `xchg`, `cmpxchg` and the like.
    pub(super) fn modify(&mut self, store: Store) {
        // The flags are an output, and may be an input.
        self.keeps_flags = true;
        let changed = self.changed_register();
        let outside = self.enter();
        let state = self.asm.state();
        self.go_inside();
        if let Some(changed) = changed {
            self.asm.spill(changed);
        }
        self.alone_or_shared(|builder| builder.modify_inside(store, changed));
        if store.kind == EventKind::StoreLocked {
            self.locked_outside(outside, state);
        } else {
            self.outside(outside, state);
        }
    }

    fn modify_inside(&mut self, store: Store, changed: Option<Register>) {
        let locked = store.kind == EventKind::StoreLocked;
        let moves = width(store.len_bytes);
        let header = self.store_header(store, FLAG_ADDRESS);
        self.describe_record(header);
        self.switch_to_alias();
        let retry = self.asm.label();
        self.asm.bind(retry);
        self.lock(Extent::Fixed(store.len_bytes));
        self.record_found(header);
        if !locked {
            self.commits_from_here();
        }
        self.asm.rm(moves.load, moves.rax, at(self.address, 0));
        self.asm.save(ScratchSlot::Old, Register::RAX);
        self.asm
            .mr(moves.store, at(self.record, VALUE_AT), moves.rax);
        if locked {
            self.tentative_stamp();
        } else {
            self.stamp();
        }
        self.asm.save(ScratchSlot::Stamp, Register::RAX);
        self.run_on_record(changed);
        self.asm.save(ScratchSlot::RaxOut, Register::RAX);
        self.asm.save(ScratchSlot::RdxOut, Register::RDX);
        self.asm.save_flags(ScratchSlot::FlagsOut);
        if locked && self.site.instruction.mnemonic() == Mnemonic::Cmpxchg {
            self.describe_outcome(header);
        }
        self.asm.load(Register::RAX, ScratchSlot::Stamp);
        self.write_stamp();
        self.asm
            .rm(moves.load, moves.rdx, at(self.record, VALUE_AT));
        if locked {
            self.asm.load(Register::RAX, ScratchSlot::Old);
            self.exchange(moves);
            self.confirm_or(retry, Register::RAX);
            self.set_pending(false);
        } else {
            self.works_here();
            self.asm.mr(moves.store, at(self.address, 0), moves.rdx);
            self.unlock(WorkForm::Whole, Register::RAX);
        }
        if let Some(changed) = changed {
            self.asm.restored(changed);
        }
        self.leave_with_outputs();
    }

    /// RAX = stamp of a record that may be made anew: always a new one. Uses RDX and the flags.
    fn tentative_stamp(&mut self) {
        const BIT: i32 = STAMP_TENTATIVE.trailing_zeros().cast_signed();
        self.new_stamp();
        self.asm.ri(Code::Bts_rm64_imm8, Register::RAX, BIT);
    }

    /// After an exchange: if it succeeded, what is recorded has happened. Else it has not, and what the
    /// record is to say next is not there yet. `scratch` is free where pools are shared.
    fn confirm_or(&mut self, retry: Label, scratch: Register) {
        const HIGHEST_BYTE: u32 = 7;
        if self.is_shared {
            self.unlock_or_retry(retry, scratch);
        } else {
            let confirmed = self.asm.label();
            self.asm.jump_if(Condition::Equal, confirmed);
            self.asm
                .mi(Code::Mov_rm64_imm32, at(self.record, STAMP_AT), 0);
            self.asm.jump(retry);
            self.asm.bind(confirmed);
        }
        let highest = at(self.record, STAMP_AT + HIGHEST_BYTE);
        self.asm.mi(Code::Mov_rm8_imm8, highest, 0);
    }

    /// The instruction on the record, from the state of before it.
    fn run_on_record(&mut self, changed: Option<Register>) {
        if let Some(bit) = self.far_bit() {
            // On the record there is nothing beyond: the number of the bit is cut, in RDX.
            let number = bit.full_register();
            if number == Register::RAX || number == Register::RDX {
                self.asm.reload(number);
            }
            self.asm.rr(Code::Mov_r64_rm64, Register::RDX, number);
            let last_bit = match bit.size() {
                2 => 15,
                4 => 31,
                _ => 63,
            };
            self.asm.ri(Code::And_rm32_imm8, Register::EDX, last_bit);
            self.asm.load_flags(ScratchSlot::Flags);
            let mut instruction = self.redirected(self.record, VALUE_AT);
            instruction.set_op1_register(match bit.size() {
                2 => Register::DX,
                4 => Register::EDX,
                _ => Register::RDX,
            });
            self.asm.op(instruction);
            self.asm.reload(Register::RAX);
            self.asm.reload(Register::RDX);
            return;
        }
        self.asm.load_flags(ScratchSlot::Flags);
        self.asm.reload(Register::RAX);
        self.asm.reload(Register::RDX);
        if let Some(changed) = changed {
            self.asm.reload(changed);
        }
        self.on_record(0);
    }

    /// After a `cmpxchg` on the record, with its flags in AH: a failure stores nothing and is only
    /// a fence. The header is written anew each time, since a retry may end otherwise.
    fn describe_outcome(&mut self, header: Header) {
        let failed = self.asm.label();
        let done = self.asm.label();
        self.asm.ri(Code::Test_rm8_imm8, Register::AH, AH_ZERO_FLAG);
        self.asm.jump_if(Condition::Equal, failed);
        self.describe_kind(header);
        self.asm.jump(done);
        self.asm.bind(failed);
        self.describe_kind(failed_exchange(header));
        self.asm.bind(done);
    }

    /// `lock cmpxchg [address], rdx` in the width.
    fn exchange(&mut self, moves: Width) {
        let code = match moves.rdx {
            Register::DL => Code::Cmpxchg_rm8_r8,
            Register::DX => Code::Cmpxchg_rm16_r16,
            Register::EDX => Code::Cmpxchg_rm32_r32,
            _ => Code::Cmpxchg_rm64_r64,
        };
        self.works_here();
        self.asm.raw(&[LOCK]);
        self.asm.mr(code, at(self.address, 0), moves.rdx);
    }

    /// Restores everything, with RAX, RDX and the flags as the instruction left them, and returns.
    fn leave_with_outputs(&mut self) {
        self.asm.load(Register::RDX, ScratchSlot::RdxOut);
        self.asm.restored(Register::RDX);
        self.asm.restore(self.record);
        self.asm.restore(self.address);
        self.restore_flags_and_rax(ScratchSlot::FlagsOut, ScratchSlot::RaxOut);
        self.back();
    }

    /// `cmpxchg8b` and `cmpxchg16b`, with or without lock: executed with what the memory holds as
    /// the expected value; the new value is the target's if it expected the same, else the old one.
    pub(super) fn compare_exchange_pair(&mut self, store: Store) {
        // Only the zero flag is changed, but that is an output.
        self.keeps_flags = true;
        let outside = self.enter();
        let state = self.asm.state();
        self.go_inside();
        self.asm.spill(Register::RBX);
        self.asm.spill(Register::RCX);
        self.alone_or_shared(|builder| builder.compare_exchange_pair_inside(store));
        if store.kind == EventKind::StoreLocked {
            self.locked_outside(outside, state);
        } else {
            self.outside(outside, state);
        }
    }

    fn compare_exchange_pair_inside(&mut self, store: Store) {
        let locked = store.kind == EventKind::StoreLocked;
        let half = store.len_bytes / 2;
        let moves = width(half);
        let (rbx, rcx) = if half == 8 {
            (Register::RBX, Register::RCX)
        } else {
            (Register::EBX, Register::ECX)
        };
        let compare = if half == 8 {
            Code::Cmp_r64_rm64
        } else {
            Code::Cmp_r32_rm32
        };
        let high = u32::from(half);
        let header = self.store_header(store, FLAG_ADDRESS);
        self.describe_record(header);
        self.switch_to_alias();
        let retry = self.asm.label();
        let failed = self.asm.label();
        let decided = self.asm.label();
        self.asm.bind(retry);
        self.lock(Extent::Fixed(store.len_bytes));
        self.record_found(header);
        self.asm.rm(moves.load, moves.rax, at(self.address, 0));
        self.asm.save(ScratchSlot::Old, Register::RAX);
        self.asm.rm(moves.load, moves.rax, at(self.address, high));
        self.asm.save(ScratchSlot::OldHigh, Register::RAX);
        self.tentative_stamp();
        self.asm.save(ScratchSlot::Stamp, Register::RAX);
        self.asm.load(Register::RAX, ScratchSlot::Old);
        self.asm.load(Register::RDX, ScratchSlot::OldHigh);
        self.asm
            .rm(compare, moves.rax, gs(ScratchSlot::Register(0).offset()));
        self.asm.jump_if(Condition::NotEqual, failed);
        self.asm
            .rm(compare, moves.rdx, gs(ScratchSlot::Register(2).offset()));
        self.asm.jump_if(Condition::NotEqual, failed);
        self.asm.reload(Register::RBX);
        self.asm.reload(Register::RCX);
        self.describe_kind(header);
        self.asm.jump(decided);
        self.asm.bind(failed);
        self.asm
            .rr(Code::Mov_r64_rm64, Register::RBX, Register::RAX);
        self.asm
            .rr(Code::Mov_r64_rm64, Register::RCX, Register::RDX);
        if locked {
            self.describe_kind(failed_exchange(header));
        }
        self.asm.bind(decided);
        self.asm.mr(moves.store, at(self.record, VALUE_AT), rbx);
        self.asm
            .mr(moves.store, at(self.record, VALUE_AT + high), rcx);
        self.asm.load(Register::RDX, ScratchSlot::Stamp);
        self.asm
            .mr(Code::Mov_rm64_r64, at(self.record, STAMP_AT), Register::RDX);
        self.asm.load(Register::RDX, ScratchSlot::OldHigh);
        self.works_here();
        if locked {
            self.asm.raw(&[LOCK]);
        }
        self.asm.op(self.redirected(self.address, 0));
        self.confirm_or(retry, Register::RBX);
        if locked {
            self.set_pending(false);
        }
        self.leave_pair(compare, moves);
    }

    /// RDX:RAX hold what was in memory. Success leaves the target's registers alone (of a pair of
    /// halves: their high parts too); failure loads them. The zero flag says which.
    fn leave_pair(&mut self, compare: Code, moves: Width) {
        let failed = self.asm.label();
        let done = self.asm.label();
        let zero_flag_at = ScratchSlot::Flags.offset() + 1;
        self.asm
            .rm(compare, moves.rax, gs(ScratchSlot::Register(0).offset()));
        self.asm.jump_if(Condition::NotEqual, failed);
        self.asm
            .rm(compare, moves.rdx, gs(ScratchSlot::Register(2).offset()));
        self.asm.jump_if(Condition::NotEqual, failed);
        self.asm
            .mi(Code::Or_rm8_imm8, gs(zero_flag_at), AH_ZERO_FLAG);
        self.asm.jump(done);
        self.asm.bind(failed);
        self.asm
            .mi(Code::And_rm8_imm8, gs(zero_flag_at), !AH_ZERO_FLAG);
        self.asm.save(ScratchSlot::Register(0), Register::RAX);
        self.asm.save(ScratchSlot::Register(2), Register::RDX);
        self.asm.bind(done);
        self.asm.restore(Register::RCX);
        self.asm.restore(Register::RBX);
        self.restore_all();
        self.back();
    }
}
