//! Small pieces of text.

use std::borrow::Cow;
use std::ffi::OsString;

use anstyle::{AnsiColor, Style};
use powerfail_model::BigUint;

pub(crate) const GOOD: Style = AnsiColor::Green.on_default().bold();
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
pub(crate) const WARNING: Style = AnsiColor::Yellow.on_default().bold();
pub(crate) const STRONG: Style = Style::new().bold();
pub(crate) const FAINT: Style = Style::new().dimmed();

/// `1 event`, `2 events`: for nouns that take an s.
pub fn plural(number: u64, noun: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", count(number))
}

/// A number with its thousands set apart.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A number of states: in full while it can be read, then also as a power of ten.
pub(crate) fn big_count(number: &BigUint) -> String {
    const DIGITS_READABLE: usize = 15;
    let digits = number.to_string();
    if digits.len() <= DIGITS_READABLE {
        return count(number.try_into().unwrap_or(u64::MAX));
    }
    format!("{}.{}e{}", &digits[..1], &digits[1..3], digits.len() - 1)
}

/// The same for a number of which only the decimal logarithm is known: for numbers that are too
/// large to be worth computing.
pub(crate) fn power_of_ten(log10: f64) -> String {
    let exponent = log10.floor();
    format!("{:.2}e{exponent}", 10f64.powf(log10 - exponent))
}

/// `1 crash state`, `2 crash states`.
pub(crate) fn big_plural(number: &BigUint, noun: &str) -> String {
    let ending = if *number == BigUint::from(1u32) {
        ""
    } else {
        "s"
    };
    format!("{} {noun}{ending}", big_count(number))
}

/// A text from a file, safe to print: control characters could move the cursor or fake a line, and others reverse the
/// order of what follows.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let misleads = |letter: char| {
        letter.is_control() || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(misleads) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::new();
    for character in text.chars() {
        if misleads(character) {
            safe.extend(character.escape_default());
        } else {
            safe.push(character);
        }
    }
    Cow::Owned(safe)
}

/// Quotes a word for a shell.
pub(crate) fn shell_word(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+:@%,=".contains(letter);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Words as a command line for a shell.
pub fn shell_words(words: &[OsString]) -> String {
    let words = words.iter().map(|word| shell_word(&word.to_string_lossy()));
    words.collect::<Vec<_>>().join(" ")
}

/// How many columns a text takes, about: characters, and not bytes.
pub(crate) fn width(text: &str) -> usize {
    text.chars().count()
}

/// A number of bytes, in units that people read.
pub fn bytes(number: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut divisor = 1u64;
    while unit + 1 < UNITS.len() && number / divisor >= 1024 {
        divisor *= 1024;
        unit += 1;
    }
    if unit == 0 {
        return format!("{number} B");
    }
    let tenths = u128::from(number) * 10 / u128::from(divisor);
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1000), "1,000");
        assert_eq!(count(12_345_678), "12,345,678");
        assert_eq!(plural(1, "event"), "1 event");
        assert_eq!(plural(0, "event"), "0 events");
    }

    #[test]
    fn one_state_is_no_plural() {
        assert_eq!(
            big_plural(&BigUint::from(1u32), "crash state"),
            "1 crash state"
        );
        assert_eq!(
            big_plural(&BigUint::from(2u32), "crash state"),
            "2 crash states"
        );
    }

    #[test]
    fn control_characters_are_not_printed() {
        assert_eq!(printable("größe"), "größe");
        assert_eq!(printable("a\u{1b}[2Jb\n\r"), "a\\u{1b}[2Jb\\n\\r");
    }

    #[test]
    fn large_numbers_are_powers_of_ten() {
        assert_eq!(big_count(&BigUint::from(123_456u32)), "123,456");
        assert_eq!(big_count(&BigUint::from(10u32).pow(600)), "1.00e600");
        assert_eq!(power_of_ten(600.5), "3.16e600");
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(8 << 20), "8.0 MiB");
        assert_eq!(bytes(u64::MAX), "16777215.9 TiB");
    }
}
