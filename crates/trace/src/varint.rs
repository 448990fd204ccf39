//! Integers of variable length: seven bits in each byte, the lowest first. The high bit says that another byte follows.

/// Appends a number.
#[inline]
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Removes a number from the front. `None` if the bytes end or the value exceeds 64 bits.
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut position = 0;
    let value = take_at(bytes, &mut position)?;
    *bytes = bytes.get(position..)?;
    Some(value)
}

/// Reads a number at `position` and moves it. `None` if the bytes end or the value exceeds 64 bits.
#[inline]
pub fn take_at(bytes: &[u8], position: &mut usize) -> Option<u64> {
    let first = *bytes.get(*position)?;
    *position += 1;
    if first < 0x80 {
        return Some(u64::from(first));
    }
    take_long(bytes, position, first)
}

fn take_long(bytes: &[u8], position: &mut usize, first: u8) -> Option<u64> {
    let mut value = u64::from(first & 0x7f);
    let mut shift = 7;
    loop {
        let byte = *bytes.get(*position)?;
        *position += 1;
        if shift == 63 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
        shift += 7;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_length_come_back() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1u64 << shift) - 1, !0u64 >> shift] {
                let mut bytes = Vec::new();
                put(&mut bytes, value);
                let mut position = 0;
                assert_eq!(take_at(&bytes, &mut position), Some(value));
                assert_eq!(position, bytes.len());
            }
        }
    }

    #[test]
    fn numbers_are_removed_one_after_the_other() {
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
    fn more_than_64_bits_are_refused() {
        let mut bytes = vec![0xff; 9];
        bytes.push(2);
        assert_eq!(take_at(&bytes, &mut 0), None);
        assert_eq!(take_at(&[0x80; 30], &mut 0), None);
        assert_eq!(take_at(&[0x80], &mut 0), None);
        assert_eq!(take(&mut &[0xff; 20][..]), None);
    }
}
