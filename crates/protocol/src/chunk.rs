//! The pieces of memory that a thread's ring consists of.
//!
//! A chunk has [`LEN`] bytes and begins at a multiple of twice that. So the bit [`LEN`] of every
//! address in a chunk is clear, and that of every address up to [`LEN`] bytes behind its end is
//! set: the address of the last byte of a reservation tells by itself whether it fits. The second
//! half may hold anything but another chunk.

/// Length of a chunk. A power of two that fits an immediate operand.
pub const LEN: u64 = 1 << 18;

/// A chunk begins at a multiple of this.
pub const ALIGNMENT: u64 = 2 * LEN;

/// Whether a reservation whose last byte is at this address lies, at least in part, behind its
/// chunk. Emitted code does the same with one `test`.
pub const fn overflows(last_byte: u64) -> bool {
    last_byte & LEN != 0
}

#[cfg(test)]
mod tests {
    use super::{ALIGNMENT, LEN, overflows};

    #[test]
    fn the_last_byte_decides() {
        let chunk = 7 * ALIGNMENT;
        assert!(!overflows(chunk));
        assert!(!overflows(chunk + LEN - 1));
        assert!(overflows(chunk + LEN));
        assert!(overflows(chunk + 2 * LEN - 1));
    }
}
