//! `rep movs` and `rep stos` where bytes are not where the program sees them.
//!
//! ```text
//!     below the red zone: save RAX, RDX, RBX, R8, R9, flags;  backward? go to ORIGINAL
//! piece:
//!     nothing left? restore; jump back
//!     RBX = as much as is left, and as lies in one page on both sides
//!     R9 = where the destination is, R8 = where the source is;  lines that cannot be moved? go to ORIGINAL
//!     the instruction on these;  RSI, RDI and RCX behind the piece;  the next piece
//! ORIGINAL:
//!     restore; the instruction as it was, for what is left; jump back
//! ```
//!
//! A page whose copy is not away at all is used as it is, so one of the sides may be no pool. Where source and
//! destination overlap they are in the same page, or in different pieces: elements come out in order.

use iced_x86::{Code, Instruction, MemoryOperand, OpKind, Register};

use super::access::{AccessTrampoline, Body, LOADS_MOVE, STORES_MOVE, memory};
use crate::assembler::{Condition, Label};

const SAVED: [Register; 5] = [
    Register::RAX,
    Register::RDX,
    Register::RBX,
    Register::R8,
    Register::R9,
];
/// Where they are, from the stack pointer: the flags come last.
const RAX_AT: i32 = 40;
const PUSHED: u64 = 128 + 48;
const DIRECTION_FLAG: i32 = 0x400;
const PAGE: u64 = 4096;

/// A repeated string instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StringForm {
    /// Length of an element.
    pub(super) size: u8,
    /// The source is memory, too.
    pub(super) copies: bool,
}

impl StringForm {
    /// Of an instruction, if it is one that can be done here.
    pub(super) fn of(instruction: &Instruction) -> Option<Self> {
        use iced_x86::Mnemonic as M;
        if !instruction.is_string_instruction() || !instruction.has_rep_prefix() {
            return None;
        }
        let copies = match instruction.mnemonic() {
            M::Movsb | M::Movsw | M::Movsd | M::Movsq => true,
            M::Stosb | M::Stosw | M::Stosd | M::Stosq => false,
            _ => return None,
        };
        let is_wide = instruction.op0_kind() == OpKind::MemoryESRDI
            && (!copies || instruction.op1_kind() == OpKind::MemorySegRSI);
        let is_flat = !matches!(instruction.segment_prefix(), Register::FS | Register::GS);
        (is_wide && is_flat).then(|| Self {
            size: instruction.memory_size().size() as u8,
            copies,
        })
    }

    fn shift(self) -> i32 {
        self.size.trailing_zeros().cast_signed()
    }

    /// The registers and the flags that the program would have had at a fault of the instruction on a copy.
    /// `word` reads the stack.
    pub(super) fn undo(
        self,
        registers: &mut [u64; 16],
        flags: &mut u64,
        word: impl Fn(u64) -> u64,
    ) {
        let [rcx, rdx, rbx, r8, r9] = [1, 2, 3, 8, 9].map(|number: usize| registers[number]);
        let done = rbx.wrapping_sub(rcx << self.shift());
        let stack = registers[4];
        registers[1] = rdx.wrapping_add(rcx);
        registers[7] = r9.wrapping_add(done);
        if self.copies {
            registers[6] = r8.wrapping_add(done);
        }
        *flags = word(stack);
        for (place, register) in (1..).zip(SAVED.iter().rev()) {
            registers[register.number()] = word(stack + 8 * place);
        }
        registers[4] = stack + PUSHED;
    }
}

impl Body<'_> {
    /// All of it.
    pub(super) fn string(&mut self, form: StringForm, code: &[u8]) -> AccessTrampoline {
        let [original, piece, done] = [(); 3].map(|()| self.asm.label());
        self.move_stack(-128);
        for register in SAVED {
            self.asm.r(Code::Push_r64, register);
        }
        self.asm.op0(Code::Pushfq);
        let flags = memory(Register::RSP, 0);
        self.asm.mi(Code::Test_rm32_imm32, flags, DIRECTION_FLAG);
        self.asm.jump_if(Condition::NotEqual, original);
        self.asm.bind(piece);
        self.choose_piece(form, done, original);
        self.translate(Register::RDI, Register::R9, STORES_MOVE, original);
        if form.copies {
            self.translate(Register::RSI, Register::R8, LOADS_MOVE, original);
        }
        let moved_at = self.run_piece(form);
        self.asm.jump(piece);
        self.asm.bind(done);
        self.restore_string();
        self.asm.jump_to(self.instruction.next_ip());
        self.asm.bind(original);
        self.restore_string();
        let original_at = self.asm.position();
        self.asm.raw(code);
        self.asm.jump_to(self.instruction.next_ip());
        AccessTrampoline {
            len_bytes: 0,
            moved_at,
            original_at,
            scratch: 0,
            string: Some(form),
        }
    }

    fn restore_string(&mut self) {
        self.asm.op0(Code::Popfq);
        for register in SAVED.into_iter().rev() {
            self.asm.r(Code::Pop_r64, register);
        }
        self.move_stack(128);
    }

    /// RBX = how many bytes. Uses RDX.
    fn choose_piece(&mut self, form: StringForm, done: Label, original: Label) {
        let (bytes, left) = (Register::RBX, Register::RDX);
        self.asm
            .rr(Code::Test_rm64_r64, Register::RCX, Register::RCX);
        self.asm.jump_if(Condition::Equal, done);
        self.asm.load_constant(bytes, PAGE);
        self.asm.rr(Code::Cmp_r64_rm64, bytes, Register::RCX);
        self.asm.rr(Code::Cmova_r64_rm64, bytes, Register::RCX);
        if form.size > 1 {
            self.asm.ri(Code::Shl_rm64_imm8, bytes, form.shift());
        }
        let both = [Register::RDI, Register::RSI];
        for address in both.into_iter().take(if form.copies { 2 } else { 1 }) {
            // What is left of the page.
            self.asm.rr(Code::Mov_r64_rm64, left, address);
            self.asm.ri(Code::Or_rm64_imm32, left, -4096);
            self.asm.r(Code::Neg_rm64, left);
            self.asm.rr(Code::Cmp_r64_rm64, bytes, left);
            self.asm.rr(Code::Cmova_r64_rm64, bytes, left);
        }
        if form.size > 1 {
            let mask = -i32::from(form.size);
            self.asm.ri(Code::And_rm64_imm8, bytes, mask);
            // An element in two pages.
            self.asm.jump_if(Condition::Equal, original);
        }
    }

    /// `to` = where the RBX bytes at an address are. Uses RAX and RDX.
    fn translate(&mut self, address: Register, to: Register, bit: u8, original: Label) {
        let (rax, rdx) = (Register::RAX, Register::RDX);
        let [direct, look] = [(); 2].map(|()| self.asm.label());
        self.access.scratch = address;
        self.check_window(original);
        self.asm.rr(Code::Mov_r64_rm64, rax, address);
        let distance = self.page_word(rax);
        self.asm.rm(Code::Mov_r64_rm64, rdx, distance);
        let sum = MemoryOperand::with_base_index(address, rdx);
        self.asm.rm(Code::Lea_r64_m, to, sum);
        self.asm.rr(Code::Test_rm64_r64, rdx, rdx);
        self.asm.jump_if(Condition::Equal, direct);
        let end = MemoryOperand::with_base_index_scale_displ_size(address, Register::RBX, 1, -1, 1);
        self.asm.rm(Code::Lea_r64_m, rdx, end);
        let _ = self.line_byte(rdx);
        self.asm.rr(Code::Mov_r64_rm64, rax, address);
        let byte = self.line_byte(rax);
        self.asm.bind(look);
        self.asm.mi(Code::Test_rm8_imm8, byte, bit.into());
        self.asm.jump_if(Condition::Equal, original);
        self.asm.r(Code::Inc_rm64, rax);
        self.asm.rr(Code::Cmp_r64_rm64, rax, rdx);
        self.asm.jump_if(Condition::BelowOrEqual, look);
        self.asm.bind(direct);
    }

    /// The piece, and RSI, RDI and RCX behind it. Gives the offset of the instruction.
    fn run_piece(&mut self, form: StringForm) -> usize {
        let (rcx, rdx, rbx) = (Register::RCX, Register::RDX, Register::RBX);
        self.asm.rr(Code::Mov_r64_rm64, rdx, rcx);
        self.asm.rr(Code::Mov_r64_rm64, rcx, rbx);
        if form.size > 1 {
            self.asm.ri(Code::Shr_rm64_imm8, rcx, form.shift());
        }
        self.asm.rr(Code::Sub_r64_rm64, rdx, rcx);
        let both = [(Register::RDI, Register::R9), (Register::RSI, Register::R8)];
        let sides = || both.into_iter().take(if form.copies { 2 } else { 1 });
        for (seen, real) in sides() {
            self.asm.rr(Code::Xchg_rm64_r64, seen, real);
        }
        if !form.copies {
            let value = memory(Register::RSP, RAX_AT);
            self.asm.rm(Code::Mov_r64_rm64, Register::RAX, value);
        }
        let moved_at = self.asm.position();
        let opcode = if form.copies { 0xa4 } else { 0xaa };
        match form.size {
            1 => self.asm.raw(&[0xf3, opcode]),
            2 => self.asm.raw(&[0xf3, 0x66, opcode + 1]),
            4 => self.asm.raw(&[0xf3, opcode + 1]),
            _ => self.asm.raw(&[0xf3, 0x48, opcode + 1]),
        }
        for (seen, real) in sides() {
            self.asm.rr(Code::Add_r64_rm64, real, rbx);
            self.asm.rr(Code::Mov_r64_rm64, seen, real);
        }
        self.asm.rr(Code::Mov_r64_rm64, rcx, rdx);
        moved_at
    }
}
