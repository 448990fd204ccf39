//! Words from the file of a program: strings of its constant data, and what it compares with in its code.
//!
//! Strings are ranked: a string that is one word may be compared with an input; words of longer strings are
//! messages more often, but usage texts name commands. Compilers compare short strings as numbers: these are operands
//! of instructions ([`super::compared`]).

use std::collections::HashSet;

use object::{Object, ObjectSection, SectionKind};
use thiserror::Error;

use super::compared::compared;

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
                let code = &code[..code.len().min(MOST_CODE)];
                ranks[1].extend(compared(code, section.address()));
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
}
