//! The flags that a comparison sets. Depends on nothing, and is tested by `tests/units.rs`.
//!
//! # Safety
//!
//! The instructions compute with registers only, and leave the stack as it was.
#![allow(unsafe_code, reason = "computes flags")]

use core::arch::asm;

/// The flags after a comparison of operands of a length.
pub(crate) fn compare(is_test: bool, one: u64, other: u64, len: u64) -> u64 {
    let flags: u64;
    macro_rules! flags_of {
        ($instruction:literal, $class:ident, $one:expr, $other:expr) => {
            // SAFETY: computes with registers, and takes the flags off the stack.
            unsafe {
                asm!(
                    $instruction,
                    "pushfq",
                    "pop {flags}",
                    one = in($class) $one,
                    other = in($class) $other,
                    flags = lateout(reg) flags,
                );
            }
        };
    }
    match (is_test, len) {
        (false, 1) => flags_of!("cmp {one}, {other}", reg_byte, one as u8, other as u8),
        (false, 2) => flags_of!("cmp {one:x}, {other:x}", reg, one, other),
        (false, 4) => flags_of!("cmp {one:e}, {other:e}", reg, one, other),
        (false, _) => flags_of!("cmp {one}, {other}", reg, one, other),
        (true, 1) => flags_of!("test {one}, {other}", reg_byte, one as u8, other as u8),
        (true, 2) => flags_of!("test {one:x}, {other:x}", reg, one, other),
        (true, 4) => flags_of!("test {one:e}, {other:e}", reg, one, other),
        (true, _) => flags_of!("test {one}, {other}", reg, one, other),
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::compare;

    const CARRY: u64 = 1;
    const ZERO: u64 = 1 << 6;
    const SIGN: u64 = 1 << 7;
    const OVERFLOW: u64 = 1 << 11;

    /// What the manual says about the flags that programs branch on.
    fn expected(is_test: bool, one: u64, other: u64, len: u64) -> u64 {
        let shift = 64 - 8 * len as u32;
        let (one, other) = (one << shift, other << shift);
        let (result, carry, overflow) = if is_test {
            (one & other, false, false)
        } else {
            let overflow = (one as i64).checked_sub(other as i64).is_none();
            (one.wrapping_sub(other), one < other, overflow)
        };
        let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
        flag(carry, CARRY)
            | flag(result == 0, ZERO)
            | flag(result >> 63 != 0, SIGN)
            | flag(overflow, OVERFLOW)
    }

    #[test]
    fn comparisons_set_the_flags_of_their_length() {
        let words = [
            0,
            1,
            0x7f,
            0x80,
            0xff,
            0x100,
            0x7fff,
            0x8000,
            0x1_0000,
            0x7fff_ffff,
            0x8000_0000,
            0x1_0000_0001,
            i64::MAX as u64,
            1 << 63,
            u64::MAX,
        ];
        for one in words {
            for other in words {
                for len in [1, 2, 4, 8] {
                    for is_test in [false, true] {
                        let flags = compare(is_test, one, other, len);
                        assert_eq!(
                            flags & (CARRY | ZERO | SIGN | OVERFLOW),
                            expected(is_test, one, other, len),
                            "{one:#x} {other:#x} {len} {is_test}"
                        );
                    }
                }
            }
        }
    }
}
