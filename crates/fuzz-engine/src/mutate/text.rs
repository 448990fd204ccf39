//! The structure of inputs: lines, words and numbers in bytes.

use std::ops::Range;

/// Whether bytes are lines of text; a few other bytes, left by havoc, are allowed.
pub(crate) fn is_text(bytes: &[u8]) -> bool {
    let plain = |byte: &&u8| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~');
    let odd = bytes.len() - bytes.iter().filter(plain).count();
    odd * 16 <= bytes.len()
}

/// The lines, each with its end.
pub(crate) fn lines(bytes: &[u8]) -> Vec<Range<usize>> {
    let mut lines = Vec::new();
    let mut start = 0;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        lines.push(start..start + line.len());
        start += line.len();
    }
    lines
}

/// Whether a byte separates words.
fn separates(byte: u8) -> bool {
    byte.is_ascii_whitespace()
        || matches!(byte, b',' | b';' | b':' | b'=' | b'(' | b')' | b'"' | b'\'')
}

/// The words of a line.
pub(crate) fn words(line: &[u8]) -> Vec<Range<usize>> {
    runs(line, |byte| !separates(byte))
}

/// The first word of a line.
pub(crate) fn first_word(line: &[u8]) -> Option<Range<usize>> {
    let start = line.iter().position(|byte| !separates(*byte))?;
    let len = line[start..].iter().position(|byte| separates(*byte));
    Some(start..len.map_or(line.len(), |len| start + len))
}

/// The numbers of a line, including those at the end of words. The digits of its first word count only if there are no
/// others, because it is the name of a command.
pub(crate) fn numbers(line: &[u8]) -> Vec<Range<usize>> {
    let mut numbers = runs(line, |byte| byte.is_ascii_digit());
    if let (Some(word), Some(last)) = (first_word(line), numbers.last())
        && last.start >= word.end
    {
        numbers.retain(|number| number.start >= word.end);
    }
    numbers
}

/// The value of digits, if it fits into 64 bits.
pub(crate) fn value(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0_u64, |value, digit| {
        value
            .checked_mul(10)?
            .checked_add(u64::from(digit.wrapping_sub(b'0')))
    })
}

fn runs(bytes: &[u8], belongs: impl Fn(u8) -> bool) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (at, byte) in bytes.iter().enumerate() {
        if belongs(*byte) {
            match runs.last_mut() {
                Some(run) if run.end == at => run.end += 1,
                _ => runs.push(at..at + 1),
            }
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &str, ranges: &[Range<usize>]) -> Vec<String> {
        ranges
            .iter()
            .map(|range| line[range.clone()].to_owned())
            .collect()
    }

    #[test]
    fn words_and_numbers() {
        let line = "set2 key12=34, x\n";
        assert_eq!(
            texts(line, &words(line.as_bytes())),
            ["set2", "key12", "34", "x"]
        );
        assert_eq!(texts(line, &numbers(line.as_bytes())), ["12", "34"]);
        assert_eq!(texts("n5\n", &numbers(b"n5\n")), ["5"]);
        assert_eq!(value(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(value(b"18446744073709551616"), None);
    }

    #[test]
    fn lines_keep_their_ends() {
        assert_eq!(lines(b"a\n\nbc"), [0..2, 2..3, 3..5]);
        assert!(lines(b"").is_empty());
    }

    #[test]
    fn text_may_have_some_odd_bytes() {
        assert!(
            is_text(b"") && is_text(b"put 1 2\nput 3 4\n") && is_text(b"put 1 2\nput 3 \xff\n")
        );
        assert!(!is_text(b"\x7fELF\x02\x01\x01"));
    }
}
