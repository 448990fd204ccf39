//! Bytes as text.

use std::fmt::Write;

/// Bytes in hexadecimal digits, in the order of their addresses.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The bytes that hexadecimal digits stand for; `None` if the text is anything else.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits?;
    let (pairs, []) = digits.as_chunks::<2>() else {
        return None;
    };
    pairs
        .iter()
        .map(|[high, low]| u8::try_from(high << 4 | low).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back() {
        let bytes = [0, 255, 16, 128];
        assert_eq!(hex(&bytes), "00ff1080");
        assert_eq!(from_hex(&hex(&bytes)).as_deref(), Some(&bytes[..]));
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["0", "0g", "xx", "abc", "+f", "0x", "é"] {
            assert_eq!(from_hex(text), None, "{text}");
        }
    }
}
