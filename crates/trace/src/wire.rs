//! Integers and byte strings as they stand in a payload. Knows no structure.

use crate::error::{Result, TraceError};
use crate::varint;

/// Appends a byte string with its length in front.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    varint::put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Maps small differences of either sign to small numbers.
#[inline]
pub(crate) const fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ 0u64.wrapping_sub(difference >> 63)
}

/// The inverse of [`zigzag`].
#[inline]
pub(crate) const fn unzigzag(value: u64) -> u64 {
    (value >> 1) ^ 0u64.wrapping_sub(value & 1)
}

/// A payload that is read field by field.
pub(crate) struct Fields<'a> {
    bytes: &'a [u8],
    position: usize,
    block_offset: u64,
}

impl<'a> Fields<'a> {
    /// Begins to read `bytes`, the payload of the block at `block_offset` of the file.
    pub(crate) const fn new(bytes: &'a [u8], block_offset: u64) -> Self {
        Self {
            bytes,
            position: 0,
            block_offset,
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.position >= self.bytes.len()
    }

    pub(crate) const fn corrupt(&self, what: &'static str) -> TraceError {
        TraceError::corrupt(what, self.block_offset)
    }

    pub(crate) const fn unknown(&self, what: &'static str, code: u64) -> TraceError {
        TraceError::UnknownCode {
            what,
            code,
            offset: self.block_offset,
        }
    }

    pub(crate) fn varint(&mut self) -> Result<u64> {
        varint::take_at(self.bytes, &mut self.position)
            .ok_or_else(|| self.corrupt("an integer is cut off or too long"))
    }

    /// A varint that must fit in 32 bits.
    pub(crate) fn varint_u32(&mut self) -> Result<u32> {
        u32::try_from(self.varint()?).map_err(|_| self.corrupt("an integer exceeds 32 bits"))
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        let taken = rest
            .get(..len)
            .ok_or_else(|| self.corrupt("a field is cut off"))?;
        self.position += len;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.take(N)?;
        <[u8; N]>::try_from(bytes).map_err(|_| self.corrupt("a field is cut off"))
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A byte string with its length in front.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = usize::try_from(self.varint()?)
            .map_err(|_| self.corrupt("a byte string is cut off"))?;
        self.take(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_come_back() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1u64 << shift) - 1, !0u64 >> shift] {
                assert_eq!(unzigzag(zigzag(value)), value);
            }
        }
    }

    #[test]
    fn small_differences_are_small() {
        assert_eq!(zigzag(0), 0);
        assert_eq!(zigzag(8u64.wrapping_neg()), 15);
        assert_eq!(zigzag(8), 16);
    }
}
