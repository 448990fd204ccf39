//! Words that the code of a program compares with: compilers turn comparisons with short strings, and switches over
//! characters, into instructions with constants.
//!
//! A comparison that leads on if its operands are equal is joined with the next one on that way: `put` is often compared
//! byte by byte. This guesses, and what it finds is only tried: it knows neither registers that are changed in between
//! nor whether the operand comes from the input.

use std::collections::HashSet;

use iced_x86::{
    Code, ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind,
    Register,
};

use super::differences::Differences;

/// A word is compared in no more steps than this.
const STEPS_MAX: usize = 16;
/// The next comparison of a word comes within this many instructions.
const DISTANCE_MAX: usize = 8;
/// A switch over characters has no more of them than are printable.
const CHARACTERS_MAX: u64 = 94;

/// Words that instructions compare with, in the order of the code and without duplicates.
pub(super) fn compared(code: &[u8], address: u64) -> Vec<Vec<u8>> {
    let code = CodeView { code, address };
    let mut words = Words::default();
    let mut before = Before::default();
    let mut differences = Differences::default();
    let mut joined = HashSet::new();
    let mut decoder = code.decoder(address);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if let Some(word) = eight_bytes(&instruction) {
            words.add(&word);
        } else if let Some(comparison) = Comparison::of(&instruction, &before) {
            let word = code.follow(comparison, instruction.next_ip(), &mut joined);
            // What belongs to a word that was found before is no word of its own.
            if !joined.contains(&instruction.ip()) {
                words.add(&word);
            }
        }
        if let Some(word) = differences.step(&instruction) {
            words.add(&word);
        }
        for character in before.switch(&instruction) {
            words.add(&[character]);
        }
        before.step(&instruction);
    }
    words.list
}

/// Words without duplicates.
#[derive(Default)]
struct Words {
    list: Vec<Vec<u8>>,
    known: HashSet<Vec<u8>>,
}

impl Words {
    fn add(&mut self, word: &[u8]) {
        let word = word.trim_ascii();
        let is_word = match word {
            [one] => one.is_ascii_graphic() && !one.is_ascii_digit(),
            more => more.iter().any(u8::is_ascii_graphic),
        };
        if is_word && self.known.insert(word.to_vec()) {
            self.list.push(word.to_vec());
        }
    }
}

/// Text of a constant.
fn text_of_constant(constant: u64, len: usize) -> Option<Vec<u8>> {
    text_of(&constant.to_le_bytes()[..len])
}

/// Text of bytes: they are printable, with zeros only at the end.
pub(super) fn text_of(bytes: &[u8]) -> Option<Vec<u8>> {
    let end = bytes.iter().rposition(|byte| *byte != 0)? + 1;
    let is_text = bytes[..end]
        .iter()
        .all(|byte| matches!(byte, b' '..=b'~' | b'\n'));
    is_text.then(|| bytes[..end].to_vec())
}

/// A constant of eight bytes cannot be compared with directly: it is loaded first.
fn eight_bytes(instruction: &Instruction) -> Option<Vec<u8>> {
    (instruction.code() == Code::Mov_r64_imm64)
        .then(|| text_of_constant(instruction.immediate64(), 8))?
        .filter(|text| text.len() == 8)
}

/// Where an operand is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) base: Register,
    pub(super) offset: u64,
}

impl Place {
    pub(super) fn of(instruction: &Instruction) -> Option<Self> {
        (instruction.memory_index() == Register::None).then(|| Self {
            base: instruction.memory_base(),
            offset: instruction.memory_displacement64(),
        })
    }
}

/// What was loaded last, and what was subtracted last.
#[derive(Default)]
struct Before {
    loaded: Option<(Register, Option<Place>)>,
    subtracted: Option<(Register, u8)>,
    /// Which range of characters was compared last.
    range: Option<(u8, u64)>,
}

impl Before {
    fn step(&mut self, instruction: &Instruction) {
        let register = instruction.op0_register().full_register();
        let loads = matches!(
            instruction.mnemonic(),
            Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd
        );
        if loads
            && instruction.op0_kind() == OpKind::Register
            && instruction.op1_kind() == OpKind::Memory
        {
            self.loaded = Some((register, Place::of(instruction)));
        }
        self.range = self.compared_range(instruction);
        if let Some(first) = subtracted(instruction) {
            self.subtracted = Some((register, first));
        }
    }

    /// `cmp eax, 20` after `sub eax, 'a'`.
    fn compared_range(&self, instruction: &Instruction) -> Option<(u8, u64)> {
        let (register, first) = self.subtracted?;
        let compares = instruction.mnemonic() == Mnemonic::Cmp
            && instruction.op0_register().full_register() == register
            && is_immediate(instruction.op1_kind());
        let last = compares.then(|| instruction.immediate(1))?;
        (last < CHARACTERS_MAX).then_some((first, last))
    }

    /// The characters of a switch, if this instruction leaves it for all others.
    fn switch(&self, instruction: &Instruction) -> impl Iterator<Item = u8> + use<> {
        let leaves = matches!(
            instruction.condition_code(),
            ConditionCode::a | ConditionCode::be
        ) && instruction.flow_control() == FlowControl::ConditionalBranch;
        let range = self.range.filter(|_| leaves);
        range.into_iter().flat_map(|(first, last)| {
            let characters = u64::from(first)..=u64::from(first) + last;
            characters.filter_map(|character| u8::try_from(character).ok())
        })
    }
}

/// The character that an instruction subtracts: `sub eax, 'a'` or `lea edx, [rax - 'a']`.
fn subtracted(instruction: &Instruction) -> Option<u8> {
    let constant = match instruction.mnemonic() {
        Mnemonic::Sub if is_immediate(instruction.op1_kind()) => instruction.immediate(1),
        Mnemonic::Lea if instruction.memory_index() == Register::None => instruction
            .memory_displacement64()
            .cast_signed()
            .unsigned_abs(),
        Mnemonic::Add if is_immediate(instruction.op1_kind()) => {
            instruction.immediate(1).cast_signed().unsigned_abs()
        }
        _ => return None,
    };
    u8::try_from(constant).ok().filter(u8::is_ascii_graphic)
}

pub(super) fn is_immediate(kind: OpKind) -> bool {
    matches!(
        kind,
        OpKind::Immediate8
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64
    )
}

/// A comparison with a text.
struct Comparison {
    text: Vec<u8>,
    place: Option<Place>,
    /// The length of the operands.
    len: usize,
    /// It leaves the operands equal if a flag says so, and compares nothing else: not a small subtraction.
    needs_branch: bool,
}

impl Comparison {
    fn of(instruction: &Instruction, before: &Before) -> Option<Self> {
        let compares = matches!(
            instruction.mnemonic(),
            Mnemonic::Cmp | Mnemonic::Sub | Mnemonic::Xor
        );
        if !compares || instruction.op_count() != 2 || !is_immediate(instruction.op1_kind()) {
            return None;
        }
        let (len, place) = if instruction.op0_kind() == OpKind::Memory {
            let len = instruction.memory_size().size();
            (len, Place::of(instruction))
        } else {
            let register = instruction.op0_register();
            let loaded = before.loaded;
            let loaded = loaded.filter(|(loaded, _)| *loaded == register.full_register());
            (register.size(), loaded.and_then(|(_, place)| place))
        };
        let text = text_of_constant(instruction.immediate(1), len.min(4))?;
        Some(Self {
            needs_branch: text.len() == 1 && instruction.mnemonic() != Mnemonic::Cmp,
            // A character in a register of four bytes was one byte in memory.
            len: if instruction.op0_kind() == OpKind::Memory {
                len
            } else {
                text.len()
            },
            text,
            place,
        })
    }

    /// Whether the other one compares the bytes behind, as far as that is known.
    fn is_followed_by(&self, other: &Self) -> bool {
        match (self.place, other.place) {
            (Some(one), Some(next)) if one.base == next.base => {
                next.offset == one.offset.wrapping_add(self.len as u64)
            }
            // Through a pointer that was moved, byte by byte.
            (Some(one), Some(next)) => {
                one.offset == 0 && next.offset == 0 && self.len == 1 && other.len == 1
            }
            _ => self.len == 1 && other.len == 1,
        }
    }
}

#[derive(Clone, Copy)]
struct CodeView<'a> {
    code: &'a [u8],
    address: u64,
}

impl<'a> CodeView<'a> {
    fn decoder(&self, at: u64) -> Decoder<'a> {
        let offset = at.wrapping_sub(self.address) as usize;
        let code = self.code.get(offset..).unwrap_or_default();
        Decoder::with_ip(64, code, at, DecoderOptions::NONE)
    }

    /// The text of a comparison, and of those that follow where its operands are equal. `joined` are the addresses of
    /// those that follow.
    fn follow(&self, first: Comparison, from: u64, joined: &mut HashSet<u64>) -> Vec<u8> {
        let mut text = Vec::new();
        let Some(mut at) = self.where_equal(from) else {
            // Compared in another way: with a flag that is stored, for example.
            return if first.needs_branch { text } else { first.text };
        };
        let mut last = first;
        for _ in 0..STEPS_MAX {
            text.extend_from_slice(&last.text);
            // A zero ends a string.
            if last.text.len() < last.len {
                break;
            }
            let Some((next, ip, behind)) = self.next_comparison(at) else {
                break;
            };
            if !last.is_followed_by(&next) {
                break;
            }
            let Some(after) = self.where_equal(behind) else {
                break;
            };
            joined.insert(ip);
            (last, at) = (next, after);
        }
        text
    }

    /// Where the code continues if the operands of the comparison before are equal.
    fn where_equal(&self, from: u64) -> Option<u64> {
        let mut decoder = self.decoder(from);
        for _ in 0..2 {
            if !decoder.can_decode() {
                return None;
            }
            let instruction = decoder.decode();
            match instruction.condition_code() {
                ConditionCode::e => return Some(instruction.near_branch_target()),
                ConditionCode::ne => return Some(instruction.next_ip()),
                _ if instruction.flow_control() != FlowControl::Next => return None,
                _ => {}
            }
        }
        None
    }

    /// The next comparison with a text, its address, and where it ends.
    fn next_comparison(&self, from: u64) -> Option<(Comparison, u64, u64)> {
        let mut decoder = self.decoder(from);
        let mut before = Before::default();
        for _ in 0..DISTANCE_MAX {
            if !decoder.can_decode() {
                return None;
            }
            let instruction = decoder.decode();
            if instruction.flow_control() != FlowControl::Next {
                return None;
            }
            if let Some(comparison) = Comparison::of(&instruction, &before) {
                return Some((comparison, instruction.ip(), instruction.next_ip()));
            }
            before.step(&instruction);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(code: &[u8]) -> Vec<String> {
        let words = compared(code, 0x1000).into_iter();
        words.map(|word| String::from_utf8(word).unwrap()).collect()
    }

    #[test]
    fn strings_that_are_compared_as_numbers() {
        // cmp dword [rdi], "dele"; cmp al, 'q'; sub eax, 1; cmp eax, 1000; xor ax, "te"; mov rbx, "truncate"
        let code = b"\x81\x3fdele\x3cq\x83\xe8\x01\x3d\xe8\x03\0\0\x66\x35te\x48\xbbtruncate";
        assert_eq!(words(code), ["dele", "q", "te", "truncate"]);
    }

    #[test]
    fn bytes_that_are_compared_one_after_the_other() {
        // cmp byte [rdi], 'p'; jne +30; cmp byte [rdi+1], 'u'; jne +24; cmp byte [rdi+2], 't'; jne +18
        let code = b"\x80\x3fp\x75\x1e\x80\x7f\x01u\x75\x18\x80\x7f\x02t\x75\x12";
        assert_eq!(words(code), ["put"]);
        // The same, with other commands in between: each byte is a word.
        let code = b"\x80\x3fp\x75\x1e\x80\x3fd\x75\x18\x80\x3fx\x75\x12";
        assert_eq!(words(code), ["p", "d", "x"]);
    }

    #[test]
    fn the_rest_of_a_word_may_be_elsewhere() {
        // cmp dword [rbp], "eras"; je +1; ret; cmp word [rbp+4], "e "; jne +9
        let code = b"\x81\x7d\0eras\x74\x01\xc3\x66\x81\x7d\x04e \x75\x09";
        assert_eq!(words(code), ["erase"]);
    }

    #[test]
    fn a_switch_with_a_table_is_a_range_of_characters() {
        // sub eax, 'g'; cmp eax, 3; ja +5
        assert_eq!(
            words(b"\x83\xe8g\x83\xf8\x03\x77\x05"),
            ["g", "h", "i", "j"]
        );
        // lea edx, [rax - 'g']; cmp dl, 1; ja +5
        assert_eq!(words(b"\x8d\x50\x99\x80\xfa\x01\x77\x05"), ["g", "h"]);
    }
}
