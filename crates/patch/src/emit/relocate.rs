//! An instruction at another address.

use iced_x86::{Encoder, FlowControl, Instruction, OpKind};

use super::EmitError;
use crate::assembler::Assembler;

/// Whether an instruction has the same effect elsewhere, followed by a jump back.
pub(super) fn check(instruction: &Instruction) -> Result<(), EmitError> {
    let movable = match instruction.flow_control() {
        FlowControl::Next => true,
        // Loops and `jrcxz` have no long form; the others do.
        FlowControl::UnconditionalBranch => instruction.is_jmp_short_or_near(),
        FlowControl::ConditionalBranch => instruction.is_jcc_short_or_near(),
        // Calls push where they are; returns, interrupts and system calls are looked for by
        // address, by unwinders and by the kernel's restart logic.
        _ => false,
    };
    if movable && instruction.op0_kind() != OpKind::NearBranch16 {
        Ok(())
    } else {
        Err(EmitError::NotMovable)
    }
}

/// Appends the instruction. Branches get their long form.
pub(super) fn body(assembler: &mut Assembler<'_>, instruction: &Instruction) {
    let mut moved = *instruction;
    moved.as_near_branch();
    assembler.op(moved);
}

/// Emits an instruction to run at `at`, and the jump back behind it.
pub(super) fn emit(
    encoder: &mut Encoder,
    instruction: &Instruction,
    at: u64,
    out: &mut [u8],
) -> Result<usize, EmitError> {
    check(instruction)?;
    let mut assembler = Assembler::new(encoder, at);
    body(&mut assembler, instruction);
    assembler.jump_to(instruction.next_ip());
    Ok(assembler.finish(out)?.len_bytes)
}
