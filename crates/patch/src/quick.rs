//! Where instructions end, and nothing else: a decoder for sweeps over whole libraries.
//!
//! A sweep looks at a million instructions to find a thousand that matter. Decoding each in full takes most of the time
//! that a recording needs to begin. This knows the lengths of the instructions that compilers emit, where branches lead,
//! and which instructions are worth a look. Whatever it does not know, it leaves to the decoder
//! ([`crate::Classifier::scan`]); a test compares the two on real libraries and on random bytes.

use crate::classify::MAX_INSTRUCTION_LEN;

/// What is known of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quick {
    pub(crate) len_bytes: usize,
    pub(crate) kind: QuickKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuickKind {
    Other,
    /// Leads so far from its end.
    Branch(i32),
    SystemCall,
    /// It may have to be patched before it first runs: it is locked, an exchange with memory, a flush, a fence, or the
    /// beginning of a client request.
    MaySilent,
}

/// What follows an opcode.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Unknown,
    /// Nothing.
    Plain,
    /// So many bytes.
    Immediate(u8),
    /// 4 bytes, or 2 with an operand size prefix.
    ImmediateWide,
    /// A branch with 1 or 4 bytes.
    Branch(u8),
    /// A byte that says what the operands are, and what that calls for.
    Operands,
    /// As `Operands`, and then so many bytes.
    OperandsImmediate(u8),
    OperandsImmediateWide,
}

const ONE_BYTE: [Form; 256] = {
    let mut forms = [Form::Unknown; 256];
    let mut code = 0;
    while code < 256 {
        forms[code] = match code {
            0x00..=0x3f => match code & 7 {
                0..=3 => Form::Operands,
                4 => Form::Immediate(1),
                5 => Form::ImmediateWide,
                _ => Form::Unknown,
            },
            0x50..=0x5f
            | 0x6c..=0x6f
            | 0x90..=0x99
            | 0x9b..=0x9f
            | 0xa4..=0xa7
            | 0xaa..=0xaf
            | 0xc3
            | 0xc9
            | 0xcb
            | 0xcc
            | 0xcf
            | 0xd7
            | 0xec..=0xef
            | 0xf1
            | 0xf4
            | 0xf5
            | 0xf8..=0xfd => Form::Plain,
            0x63 | 0x84..=0x8e | 0xd0..=0xd3 | 0xd8..=0xdf => Form::Operands,
            0x68 | 0xa9 => Form::ImmediateWide,
            0x69 | 0x81 => Form::OperandsImmediateWide,
            0x6a | 0xa8 | 0xb0..=0xb7 | 0xcd | 0xe4..=0xe7 => Form::Immediate(1),
            0x6b | 0x80 | 0x83 | 0xc0 | 0xc1 | 0xc6 => Form::OperandsImmediate(1),
            0x70..=0x7f | 0xe0..=0xe3 | 0xeb => Form::Branch(1),
            0xc2 | 0xca => Form::Immediate(2),
            0xc8 => Form::Immediate(3),
            0xe8 | 0xe9 => Form::Branch(4),
            // These depend on more than the opcode.
            _ => Form::Unknown,
        };
        code += 1;
    }
    forms
};

const TWO_BYTES: [Form; 256] = {
    let mut forms = [Form::Unknown; 256];
    let mut code = 0;
    while code < 256 {
        forms[code] = match code {
            0x05..=0x09
            | 0x0b
            | 0x30..=0x35
            | 0x37
            | 0x77
            | 0xa0..=0xa2
            | 0xa8..=0xaa
            | 0xc8..=0xcf => Form::Plain,
            0x00..=0x03
            | 0x0d
            | 0x10..=0x1f
            | 0x28..=0x2f
            | 0x40..=0x6f
            | 0x74..=0x76
            | 0x7c..=0x7f
            | 0x90..=0x9f
            | 0xa3
            | 0xa5
            | 0xab
            | 0xad..=0xb7
            | 0xb9
            | 0xbb..=0xc1
            | 0xc3
            | 0xc7
            | 0xd0..=0xff => Form::Operands,
            0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6 => Form::OperandsImmediate(1),
            0x80..=0x8f => Form::Branch(4),
            _ => Form::Unknown,
        };
        code += 1;
    }
    forms
};

/// What stands before the opcode.
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
#[derive(Clone, Copy, Default)]
struct Prefixes {
    has_operand_size: bool,
    has_lock: bool,
    /// A prefix that no vector encoding may have: operand size, lock, repetition or REX.
    forbids_vector: bool,
    /// REX.W: an operand of 8 bytes.
    is_wide: bool,
}

/// The instruction at the beginning of `code`, if it is known.
#[inline]
pub(crate) fn decode(code: &[u8]) -> Option<Quick> {
    let mut prefixes = Prefixes::default();
    let mut at = 0;
    let opcode = loop {
        let byte = *code.get(at)?;
        at += 1;
        match byte {
            0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x67 => {}
            0x66 => {
                prefixes.has_operand_size = true;
                prefixes.forbids_vector = true;
            }
            0xf0 => {
                prefixes.has_lock = true;
                prefixes.forbids_vector = true;
            }
            0xf2 | 0xf3 => prefixes.forbids_vector = true,
            0x40..=0x4f => {
                prefixes.is_wide = byte & 8 != 0;
                prefixes.forbids_vector = true;
                // It counts only directly before the opcode.
                let opcode = *code.get(at)?;
                at += 1;
                if is_prefix(opcode) {
                    return None;
                }
                break opcode;
            }
            opcode => break opcode,
        }
    };
    let found = match opcode {
        0x0f => two_bytes(code, at, prefixes)?,
        0xc4 | 0xc5 | 0x62 => vector(code, at, opcode, prefixes)?,
        _ => one_byte(code, at, opcode, prefixes)?,
    };
    let is_whole = found.len_bytes <= code.len() && found.len_bytes <= MAX_INSTRUCTION_LEN;
    is_whole.then_some(if prefixes.has_lock {
        Quick {
            kind: QuickKind::MaySilent,
            ..found
        }
    } else {
        found
    })
}

fn is_prefix(byte: u8) -> bool {
    matches!(
        byte,
        0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3
    )
}

/// An opcode of one byte; `at` is behind it.
fn one_byte(code: &[u8], at: usize, opcode: u8, prefixes: Prefixes) -> Option<Quick> {
    let operands = code.get(at).copied();
    let form = match opcode {
        0xb8..=0xbf if prefixes.is_wide => Form::Immediate(8),
        0xb8..=0xbf => Form::ImmediateWide,
        // A test has an immediate, the others have none.
        0xf6 if operands? & 0x38 < 0x10 => Form::OperandsImmediate(1),
        0xf7 if operands? & 0x38 < 0x10 => Form::OperandsImmediateWide,
        0xf6 | 0xf7 => Form::Operands,
        0xfe if operands? & 0x38 < 0x10 => Form::Operands,
        0xff if operands? & 0x38 != 0x38 => Form::Operands,
        0xc6 if operands? & 0x38 == 0 => Form::OperandsImmediate(1),
        0xc7 if operands? & 0x38 == 0 => Form::OperandsImmediateWide,
        0xc6 => Form::Unknown,
        _ => ONE_BYTE[usize::from(opcode)],
    };
    let kind = match opcode {
        0x86 | 0x87 if operands? < 0xc0 => QuickKind::MaySilent,
        0xc1 if operands? == 0xc7 => QuickKind::MaySilent,
        _ => QuickKind::Other,
    };
    finish(code, at, form, kind, prefixes)
}

/// An opcode behind 0f; `at` is there.
fn two_bytes(code: &[u8], at: usize, prefixes: Prefixes) -> Option<Quick> {
    let opcode = *code.get(at)?;
    let at = at + 1;
    let (at, form) = match opcode {
        0x38 => (at + 1, Form::Operands),
        0x3a => (at + 1, Form::OperandsImmediate(1)),
        _ => (at, TWO_BYTES[usize::from(opcode)]),
    };
    let kind = match opcode {
        0x05 => QuickKind::SystemCall,
        0xae => QuickKind::MaySilent,
        _ => QuickKind::Other,
    };
    finish(code, at, form, kind, prefixes)
}

/// A vector instruction; `at` is behind its first byte.
fn vector(code: &[u8], at: usize, first: u8, prefixes: Prefixes) -> Option<Quick> {
    if prefixes.forbids_vector {
        return None;
    }
    let (map, at) = match first {
        0xc5 => (1, at + 1),
        0xc4 => (*code.get(at)? & 0x1f, at + 2),
        _ => {
            let (one, two) = (*code.get(at)?, *code.get(at + 1)?);
            if one & 8 != 0 || two & 4 == 0 {
                return None;
            }
            (one & 7, at + 3)
        }
    };
    let opcode = *code.get(at)?;
    let form = match (map, opcode) {
        (1, 0x77) if first != 0x62 => Form::Plain,
        (1, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6) | (3, _) => Form::OperandsImmediate(1),
        (1 | 2, _) => Form::Operands,
        _ => Form::Unknown,
    };
    finish(code, at + 1, form, QuickKind::Other, prefixes)
}

/// Adds what follows an opcode; `at` is behind it.
fn finish(
    code: &[u8],
    at: usize,
    form: Form,
    kind: QuickKind,
    prefixes: Prefixes,
) -> Option<Quick> {
    let wide = if prefixes.has_operand_size && !prefixes.is_wide {
        2
    } else {
        4
    };
    let (rest, kind) = match form {
        Form::Unknown => return None,
        Form::Plain => (0, kind),
        Form::Immediate(len) => (usize::from(len), kind),
        Form::ImmediateWide => (wide, kind),
        Form::Branch(_) if prefixes.has_operand_size => return None,
        Form::Branch(1) => {
            let distance = i8::from_le_bytes([*code.get(at)?]);
            (1, QuickKind::Branch(distance.into()))
        }
        Form::Branch(_) => {
            let bytes = code.get(at..at + 4)?;
            let distance = i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            (4, QuickKind::Branch(distance))
        }
        Form::Operands => (operands_len(code, at)?, kind),
        Form::OperandsImmediate(len) => (operands_len(code, at)? + usize::from(len), kind),
        Form::OperandsImmediateWide => (operands_len(code, at)? + wide, kind),
    };
    Some(Quick {
        len_bytes: at + rest,
        kind,
    })
}

/// The length of the byte that says what the operands are, and of what belongs to it.
fn operands_len(code: &[u8], at: usize) -> Option<usize> {
    let operands = *code.get(at)?;
    let (mode, place) = (operands >> 6, operands & 7);
    if mode == 3 {
        return Some(1);
    }
    let (index, base) = if place == 4 {
        (1, *code.get(at + 1)? & 7)
    } else {
        (0, place)
    };
    let displacement = match mode {
        0 if base == 5 => 4,
        0 => 0,
        1 => 1,
        _ => 4,
    };
    Some(1 + index + displacement)
}

#[cfg(test)]
mod tests {

    use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic};

    use crate::mapped_code::mapped_code;

    use super::{Quick, QuickKind, decode};
    use crate::classify::{MAX_INSTRUCTION_LEN, may_be_silent};

    const ADDRESS: u64 = 0x5000_0000;

    fn decoded(code: &[u8]) -> Instruction {
        Decoder::with_ip(64, code, ADDRESS, DecoderOptions::NONE).decode()
    }

    /// Compares the two on an instruction; whether it is known to both.
    fn compare(code: &[u8], instruction: &Instruction) -> bool {
        let Some(Quick { len_bytes, kind }) = decode(code) else {
            return false;
        };
        let bytes = &code[..code.len().min(MAX_INSTRUCTION_LEN)];
        let place = format!("{:?} in {bytes:02x?}", instruction.code());
        assert_eq!(len_bytes, instruction.len(), "{place}");
        if may_be_silent(instruction) {
            assert_eq!(kind, QuickKind::MaySilent, "{place}");
        }
        if kind == QuickKind::MaySilent {
            // The decoder has the last word.
            return true;
        }
        let target = match kind {
            QuickKind::Branch(distance) => {
                (ADDRESS + len_bytes as u64).wrapping_add_signed(distance.into())
            }
            _ => 0,
        };
        assert_eq!(target, instruction.near_branch_target(), "{place}");
        let is_system_call = instruction.mnemonic() == Mnemonic::Syscall;
        assert_eq!(kind == QuickKind::SystemCall, is_system_call, "{place}");
        true
    }

    #[test]
    fn real_code() {
        let code = mapped_code().concat();
        assert!(code.len() > 1 << 20, "only {} bytes of code", code.len());
        let (mut all, mut known, mut at) = (0, 0, 0);
        while at + MAX_INSTRUCTION_LEN < code.len() {
            let instruction = decoded(&code[at..]);
            if !instruction.is_invalid() {
                all += 1;
                known += usize::from(compare(&code[at..], &instruction));
            }
            at += instruction.len().max(1);
        }
        assert!(known > all - all / 200, "{known} of {all} are known");
    }

    #[test]
    fn random_bytes() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut known = 0;
        for _ in 0..300_000 {
            let bytes = [next().to_le_bytes(), next().to_le_bytes()].concat();
            let instruction = decoded(&bytes);
            if !instruction.is_invalid() {
                known += usize::from(compare(&bytes, &instruction));
            }
        }
        assert!(known > 100_000, "{known}");
    }

    #[test]
    fn the_end_of_the_code_is_known() {
        // mov rax, [rip + 0x10], cut everywhere.
        let code = [0x48, 0x8b, 0x05, 0x10, 0, 0, 0];
        for len in 0..code.len() {
            assert_eq!(decode(&code[..len]), None, "{len} bytes");
        }
        assert_eq!(decode(&code).map(|quick| quick.len_bytes), Some(7));
    }
}
