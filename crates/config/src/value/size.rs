//! Sizes in bytes, with binary units.

use std::str::FromStr;

use powerfail_protocol::memory::HEAP_LEN_MAX;

use super::value_from_text;

/// Reads a number of bytes, or one with K, M, G or T.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.split_at_checked(text.len().saturating_sub(1)) {
        Some((digits, "K" | "k")) => (digits, 1 << 10),
        Some((digits, "M" | "m")) => (digits, 1 << 20),
        Some((digits, "G" | "g")) => (digits, 1 << 30),
        Some((digits, "T" | "t")) => (digits, 1 << 40),
        _ => (text, 1),
    };
    digits
        .parse::<u64>()
        .ok()
        .filter(|_| digits.bytes().all(|digit| digit.is_ascii_digit()))
        .and_then(|number| number.checked_mul(unit))
        .ok_or_else(|| "expected a size such as 500M or 4G".to_owned())
}

/// The size of a persistent heap, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapSize(pub u64);

impl FromStr for HeapSize {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match parse_size(text) {
            Ok(len) if (1..=HEAP_LEN_MAX).contains(&len) => Ok(Self(len)),
            _ => Err("expected a size up to 64G, such as 65536, 512M or 2G"),
        }
    }
}

value_from_text!(HeapSize, "a size such as \"512M\"");

#[cfg(test)]
mod tests {
    use super::{HeapSize, parse_size};

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("3K"), Ok(3072));
        assert_eq!(parse_size("4G"), Ok(4 << 30));
        for wrong in [
            "",
            "G",
            "-1",
            "+1",
            "1.5G",
            "4GB",
            "99999999999T",
            "4 G",
            "1é",
        ] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn heaps_have_limits() {
        assert_eq!("65536".parse(), Ok(HeapSize(65_536)));
        assert_eq!("512M".parse(), Ok(HeapSize(512 << 20)));
        for wrong in ["", "0", "65G", "10 M"] {
            assert!(wrong.parse::<HeapSize>().is_err(), "{wrong}");
        }
    }
}
