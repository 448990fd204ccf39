//! Integers of variable length: seven bits in each byte, the lowest first.

/// Appends a number.
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Removes a number from the front; `None` if there is none.
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        if shift == 63 && part > 1 {
            return None;
        }
        value |= part << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Removes bytes from the front; `None` if there are too few.
pub(crate) fn take_bytes<'a>(bytes: &mut &'a [u8], len: u64) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(usize::try_from(len).ok()?)?;
    *bytes = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let values = [0, 1, 127, 128, 300, 1 << 35, u64::MAX - 1, u64::MAX];
        let mut bytes = Vec::new();
        for value in values {
            put(&mut bytes, value);
        }
        let mut rest = &bytes[..];
        for value in values {
            assert_eq!(take(&mut rest), Some(value));
        }
        assert_eq!(take(&mut rest), None);
    }

    #[test]
    fn more_than_64_bits_are_no_number() {
        assert_eq!(take(&mut &[0xff; 20][..]), None);
        let mut large = [0xff; 10];
        large[9] = 2;
        assert_eq!(take(&mut &large[..]), None);
    }
}
