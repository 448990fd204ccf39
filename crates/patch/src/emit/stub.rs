//! The way from emitted code to the runtime's refill function and back.
//!
//! Reached by a jump, with everything that matters in registers but RAX and the flags, which the
//! jumping code has given up. The target's stack is not used. What must survive a signal handler
//! that comes this way too is on the slow stack, not in slots.
//!
//! The control word of SSE stays the target's: the refill function does no floating point.

use iced_x86::{Code, MemoryOperand, Register};
use powerfail_protocol::{ScratchSlot, offset};

use crate::assembler::{Assembler, at, gs};

const SAVED: [Register; 14] = [
    Register::RCX,
    Register::RDX,
    Register::RBX,
    Register::RBP,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

/// Offset and length of the header in the area of `xsave`, which must be zero before.
const XSAVE_HEADER_AT: u32 = 512;
const XSAVE_HEADER_WORDS: u32 = 8;

pub(super) fn body(assembler: &mut Assembler<'_>, xsave_len_bytes: u32) {
    let stack_pointer = ScratchSlot::Register(4);
    assembler.save(stack_pointer, Register::RSP);
    assembler.rm(
        Code::Mov_r64_rm64,
        Register::RSP,
        gs(offset::SLOW_STACK_TOP),
    );
    assembler.m(Code::Push_rm64, gs(stack_pointer.offset()));
    assembler.m(Code::Push_rm64, gs(ScratchSlot::Resume.offset()));
    assembler.op0(Code::Pushfq);
    assembler.op0(Code::Cld);
    for register in SAVED {
        assembler.r(Code::Push_r64, register);
    }
    assembler.rr(Code::Mov_r64_rm64, Register::RBP, Register::RSP);
    assembler.ri(
        Code::Sub_rm64_imm32,
        Register::RSP,
        xsave_len_bytes.cast_signed(),
    );
    assembler.ri(Code::And_rm64_imm8, Register::RSP, -64);
    assembler.rr(Code::Xor_r32_rm32, Register::EAX, Register::EAX);
    for word in 0..XSAVE_HEADER_WORDS {
        assembler.mr(
            Code::Mov_rm64_r64,
            at(Register::RSP, XSAVE_HEADER_AT + 8 * word),
            Register::RAX,
        );
    }
    all_components(assembler);
    assembler.m(Code::Xsave64_mem, MemoryOperand::with_base(Register::RSP));
    assembler.rm(Code::Mov_r64_rm64, Register::RDI, gs(offset::SELF_ADDRESS));
    assembler.m(Code::Call_rm64, gs(offset::REFILL_FUNCTION));
    all_components(assembler);
    assembler.m(Code::Xrstor64_mem, MemoryOperand::with_base(Register::RSP));
    assembler.rr(Code::Mov_r64_rm64, Register::RSP, Register::RBP);
    for register in SAVED.into_iter().rev() {
        assembler.r(Code::Pop_r64, register);
    }
    assembler.op0(Code::Popfq);
    assembler.m(Code::Pop_rm64, gs(ScratchSlot::Resume.offset()));
    assembler.r(Code::Pop_r64, Register::RSP);
    assembler.m(Code::Jmp_rm64, gs(ScratchSlot::Resume.offset()));
}

fn all_components(assembler: &mut Assembler<'_>) {
    assembler.load_constant(Register::RAX, u64::MAX);
    assembler.load_constant(Register::RDX, u64::MAX);
}
