//! Instructions made to work on their bytes at another address than their own.
//!
//! While a recovery is explored the content of a page also lies where only the runtime uses it. A copy of an
//! instruction that works there does what the instruction would do, and the page that other threads see keeps its
//! rights meanwhile. [`Displaced::new`] makes the copy; where the bytes are is in registers, which the caller sets for the
//! time of the copy. Nothing here knows where pages lie.

use iced_x86::{
    Encoder, EncodingKind, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind,
    Register,
};

use crate::MAX_INSTRUCTION_LEN;
use crate::emit::redirected;

/// Which registers say where the copy finds its bytes, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pointers {
    /// One that the instruction does not use: it holds the address of the memory operand, without what the elements of
    /// a vector add to that. Afterwards it gets its own value back.
    Spare(u8),
    /// Those that the instruction itself takes addresses from, and moves on. They are shifted, and shifted back afterwards.
    Own(&'static [u8]),
}

/// A copy of an instruction that does not depend on where its bytes or it itself are.
#[derive(Clone, Copy, Debug)]
pub struct Displaced {
    moved: Instruction,
    pointers: Pointers,
}

const RSI: u8 = 6;
const RDI: u8 = 7;

impl Displaced {
    /// The copy of an instruction; `None` if it cannot be made.
    pub fn new(instruction: &Instruction, info: &mut InstructionInfoFactory) -> Option<Self> {
        if let Some(registers) = own_pointers(instruction) {
            return Some(Self {
                moved: *instruction,
                pointers: Pointers::Own(registers),
            });
        }
        let operands = (0..instruction.op_count())
            .filter(|index| instruction.op_kind(*index) == OpKind::Memory);
        let is_movable = operands.count() == 1
            && instruction.flow_control() == FlowControl::Next
            && instruction.code().encoding() != EncodingKind::MVEX
            // What is pushed and popped changes the stack pointer before or after the address is computed.
            && !(instruction.is_stack_instruction() && instruction.memory_base() == Register::RSP)
            // Its other address is in a register.
            && instruction.mnemonic() != Mnemonic::Movdir64b;
        if !is_movable {
            return None;
        }
        let used = info.info(instruction).used_registers();
        // None of these needs a prefix that AH, BH, CH and DH cannot have.
        let spare = [
            Register::RSI,
            Register::RDI,
            Register::RBX,
            Register::RCX,
            Register::RDX,
            Register::RBP,
        ]
        .into_iter()
        .find(|spare| {
            used.iter()
                .all(|it| it.register().full_register() != *spare)
        })?;
        let mut moved = redirected(instruction, spare);
        if instruction.is_vsib() {
            moved.set_memory_index(instruction.memory_index());
            moved.set_memory_index_scale(instruction.memory_index_scale());
        }
        Some(Self {
            moved,
            pointers: Pointers::Spare(spare.number() as u8),
        })
    }

    /// Which registers say where the bytes are.
    pub fn pointers(&self) -> Pointers {
        self.pointers
    }

    /// The code of the copy, and its length.
    pub fn code(&self) -> Option<([u8; MAX_INSTRUCTION_LEN], usize)> {
        let mut encoder = Encoder::try_new(64).ok()?;
        let len = encoder.encode(&self.moved, 0).ok()?;
        let mut code = [0; MAX_INSTRUCTION_LEN];
        code.get_mut(..len)?
            .copy_from_slice(encoder.take_buffer().get(..len)?);
        Some((code, len))
    }
}

/// The registers of an instruction that says nowhere but in them where its bytes are, all 64 bits of which it uses.
fn own_pointers(instruction: &Instruction) -> Option<&'static [u8]> {
    use OpKind as O;
    let is_masked = matches!(
        instruction.mnemonic(),
        Mnemonic::Maskmovq | Mnemonic::Maskmovdqu | Mnemonic::Vmaskmovdqu
    );
    if !is_masked && !instruction.is_string_instruction() {
        return None;
    }
    let has = |kind: O| instruction.op_kinds().any(|it| it == kind);
    match (
        has(O::MemorySegRSI),
        has(O::MemoryESRDI) || has(O::MemorySegRDI),
    ) {
        (true, true) => Some(&[RSI, RDI]),
        (true, false) => Some(&[RSI]),
        (false, true) => Some(&[RDI]),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    use super::{Displaced, Pointers};

    fn displaced(code: &[u8]) -> Option<(Vec<u8>, Pointers)> {
        let instruction = Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE).decode();
        assert!(!instruction.is_invalid(), "{code:02x?}");
        let displaced = Displaced::new(&instruction, &mut InstructionInfoFactory::new())?;
        let (bytes, len) = displaced.code()?;
        Some((bytes[..len].to_vec(), displaced.pointers()))
    }

    #[test]
    fn a_memory_operand_is_found_by_a_register_that_is_not_used() {
        for (code, expected, spare) in [
            // mov [rbx + 8 * rcx + 4], rdx
            (&[0x48, 0x89, 0x54, 0xcb, 4][..], &[0x48, 0x89, 0x16][..], 6),
            // lock xadd fs:[rsi], rdi
            (
                &[0x64, 0xf0, 0x48, 0x0f, 0xc1, 0x3e],
                &[0xf0, 0x48, 0x0f, 0xc1, 0x3b],
                3,
            ),
            // mov [rip + 1], ah
            (&[0x88, 0x25, 1, 0, 0, 0], &[0x88, 0x26], 6),
            // lock cmpxchg16b [rsi + rdi]; its own registers are four others.
            (
                &[0xf0, 0x48, 0x0f, 0xc7, 0x0c, 0x3e],
                &[0xf0, 0x48, 0x0f, 0xc7, 0x4d, 0],
                5,
            ),
            // push [rax]
            (&[0xff, 0x30], &[0xff, 0x36], 6),
            // mov [0x1122334455667788], eax
            (
                &[0xa3, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11],
                &[0x89, 0x06],
                6,
            ),
        ] {
            let found = displaced(code);
            assert_eq!(
                found,
                Some((expected.to_vec(), Pointers::Spare(spare))),
                "{code:02x?}"
            );
        }
    }

    #[test]
    fn elements_keep_their_indices() {
        // vpscatterdd [rax + 4 * zmm1 + 64] {k1}, zmm2
        let code = [0x62, 0xf2, 0x7d, 0x49, 0xa0, 0x54, 0x88, 16];
        let moved = vec![0x62, 0xf2, 0x7d, 0x49, 0xa0, 0x14, 0x8e];
        assert_eq!(displaced(&code), Some((moved, Pointers::Spare(6))));
    }

    #[test]
    fn implied_pointers_are_shifted() {
        // rep movsb; stosq; lodsb fs:[rsi]; maskmovdqu xmm1, xmm2.
        for (code, registers) in [
            (&[0xf3, 0xa4][..], &[6, 7][..]),
            (&[0x48, 0xab], &[7]),
            (&[0x64, 0xac], &[6]),
            (&[0x66, 0x0f, 0xf7, 0xca], &[7]),
        ] {
            let found = displaced(code).map(|(moved, pointers)| match pointers {
                Pointers::Own(own) => (moved, own.to_vec()),
                Pointers::Spare(_) => panic!("{code:02x?}"),
            });
            assert_eq!(found, Some((code.to_vec(), registers.to_vec())));
        }
    }

    #[test]
    fn what_branches_or_moves_the_stack_below_its_operand_is_left_alone() {
        // call [rax]; pop [rsp + 8]; movdir64b rax, [rsi]; movsb with 32-bit addresses.
        for code in [
            &[0xff, 0x10][..],
            &[0x8f, 0x44, 0x24, 8],
            &[0x66, 0x0f, 0x38, 0xf8, 0x06],
            &[0x67, 0xa4],
        ] {
            assert_eq!(displaced(code), None, "{code:02x?}");
        }
    }
}
