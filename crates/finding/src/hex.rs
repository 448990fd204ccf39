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
