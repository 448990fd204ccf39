//! Words from the file of a program: strings of its constant data, and what it compares with in its code.
//!
//! Strings are ranked: a string that is one word may be compared with an input; words of longer strings are
//! messages more often, but usage texts name commands. Compilers compare short strings as numbers: these
//! are operands of instructions.

use std::collections::HashSet;

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind};
use object::{Object, ObjectSection, SectionKind};
use thiserror::Error;

/// A dictionary with more words than this dilutes itself.
const MOST_WORDS: usize = 512;
const LONGEST_WORD: usize = 24;
/// A message has more words than a command and its arguments.
const LONGEST_USAGE: usize = 24;
/// Code of a program; what is behind is left out.
const MOST_CODE: usize = 16 << 20;

/// A file is not a program.
#[derive(Debug, Error)]
#[error("the words of the program cannot be read: {0}")]
pub struct ProgramError(#[from] object::Error);

/// Words of an ELF file, the most promising first.
///
/// # Errors
/// It is not an ELF file.
pub fn of_program(file: &[u8]) -> Result<Vec<Vec<u8>>, ProgramError> {
    let file = object::File::parse(file)?;
    let mut ranks: [Vec<Vec<u8>>; 3] = Default::default();
    for section in file.sections() {
        match section.kind() {
            SectionKind::ReadOnlyData | SectionKind::ReadOnlyString
                if section.name().is_ok_and(|name| name.starts_with(".rodata")) =>
            {
                strings(&section.uncompressed_data()?, &mut ranks);
            }
            SectionKind::Text if section.name() == Ok(".text") => {
                let code = section.uncompressed_data()?;
                operands(
                    &code[..code.len().min(MOST_CODE)],
                    section.address(),
                    &mut ranks[1],
                );
            }
            _ => {}
        }
    }
    let mut known = HashSet::new();
    let words = ranks
        .into_iter()
        .flatten()
        .filter(|word| known.insert(word.clone()))
        .take(MOST_WORDS);
    Ok(words.collect())
}

/// Whether this may be a word of an input.
fn is_word(word: &[u8]) -> bool {
    let belongs =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'?');
    (1..=LONGEST_WORD).contains(&word.len())
        && word.iter().all(belongs)
        && word.iter().any(u8::is_ascii_alphabetic)
}

/// Strings that end with zero: single words go to the first rank, words of short texts to the last.
fn strings(data: &[u8], ranks: &mut [Vec<Vec<u8>>; 3]) {
    for string in data.split(|byte| *byte == 0) {
        let printable = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~');
        if string.is_empty() || !string.iter().all(printable) {
            continue;
        }
        if is_word(string.trim_ascii()) {
            ranks[0].push(string.trim_ascii().to_vec());
            continue;
        }
        let words: Vec<&[u8]> = string
            .split(|byte| {
                byte.is_ascii_whitespace()
                    || matches!(byte, b',' | b'|' | b'<' | b'>' | b'[' | b']' | b':')
            })
            .collect();
        if words.len() <= LONGEST_USAGE {
            let plain = words
                .into_iter()
                .filter(|word| is_word(word) && !word.contains(&b'%'));
            ranks[2].extend(plain.map(<[u8]>::to_vec));
        }
    }
}

/// Constants that instructions compare with and that read as text.
fn operands(code: &[u8], address: u64, words: &mut Vec<Vec<u8>>) {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let compares = matches!(
            instruction.mnemonic(),
            Mnemonic::Cmp | Mnemonic::Sub | Mnemonic::Xor
        );
        if !compares || instruction.op_count() != 2 {
            continue;
        }
        let len = match instruction.op1_kind() {
            OpKind::Immediate8 => 1,
            OpKind::Immediate16 => 2,
            OpKind::Immediate32 | OpKind::Immediate8to32 | OpKind::Immediate32to64 => 4,
            _ => continue,
        };
        let bytes = instruction.immediate(1).to_le_bytes();
        let end = bytes[..len]
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |last| last + 1);
        // Subtractions of small constants are arithmetic; only longer ones are strings.
        if is_word(&bytes[..end]) && (end > 1 || instruction.mnemonic() == Mnemonic::Cmp) {
            words.push(bytes[..end].to_vec());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_strings_by_rank() {
        let mut ranks: [Vec<Vec<u8>>; 3] = Default::default();
        strings(
            b"put\0%d\n\0usage: del <key>\0\x01\x02\0cannot open '%s'\0",
            &mut ranks,
        );
        let texts = |rank: &[Vec<u8>]| {
            rank.iter()
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(texts(&ranks[0]), ["put"]);
        assert_eq!(texts(&ranks[2]), ["usage", "del", "key", "cannot", "open"]);
    }

    #[test]
    fn strings_that_are_compared_as_numbers() {
        // cmp dword [rdi], "dele"; cmp al, 'q'; sub eax, 1; cmp eax, 1000; xor ax, "te"
        let code = b"\x81\x3fdele\x3cq\x83\xe8\x01\x3d\xe8\x03\0\0\x66\x35te";
        let mut words = Vec::new();
        operands(code, 0, &mut words);
        assert_eq!(words, [b"dele".as_slice(), b"q", b"te"]);
    }
}
