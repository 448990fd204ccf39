//! What the simple operations of the processor give, with the flags that they set. Depends on nothing, and is tested by
//! `tests/units.rs`.
//!
//! # Safety
//!
//! The instructions compute with registers only, and leave the stack as it was.
#![allow(unsafe_code, reason = "computes flags")]

use core::arch::asm;

/// An operation on two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Add,
    Subtract,
    And,
    Or,
    ExclusiveOr,
}

/// The result of an operation on operands of a length, and the flags after it.
pub(crate) fn compute(operation: Operation, one: u64, other: u64, len: u64) -> (u64, u64) {
    macro_rules! run {
        ($instruction:expr, $class:ident, $number:ty) => {{
            let mut result = one as $number;
            let flags: u64;
            // SAFETY: computes with registers, and takes the flags off the stack.
            unsafe {
                asm!(
                    $instruction,
                    "pushfq",
                    "pop {flags}",
                    one = inout($class) result,
                    other = in($class) other as $number,
                    flags = lateout(reg) flags,
                );
            }
            (u64::from(result), flags)
        }};
    }
    macro_rules! of_len {
        ($name:literal) => {
            match len {
                1 => run!(concat!($name, " {one}, {other}"), reg_byte, u8),
                2 => run!(concat!($name, " {one:x}, {other:x}"), reg, u16),
                4 => run!(concat!($name, " {one:e}, {other:e}"), reg, u32),
                _ => run!(concat!($name, " {one}, {other}"), reg, u64),
            }
        };
    }
    match operation {
        Operation::Add => of_len!("add"),
        Operation::Subtract => of_len!("sub"),
        Operation::And => of_len!("and"),
        Operation::Or => of_len!("or"),
        Operation::ExclusiveOr => of_len!("xor"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Operation, compute};

    const CARRY: u64 = 1;
    const ZERO: u64 = 1 << 6;
    const SIGN: u64 = 1 << 7;
    const OVERFLOW: u64 = 1 << 11;

    /// What the manual says about the result, and about the flags that programs branch on.
    fn expected(operation: Operation, one: u64, other: u64, len: u64) -> (u64, u64) {
        let shift = 64 - 8 * len as u32;
        let (one, other) = (one << shift, other << shift);
        let (result, carry, overflow) = match operation {
            Operation::Add => {
                let overflow = (one as i64).checked_add(other as i64).is_none();
                let (result, carry) = one.overflowing_add(other);
                (result, carry, overflow)
            }
            Operation::Subtract => {
                let overflow = (one as i64).checked_sub(other as i64).is_none();
                let (result, carry) = one.overflowing_sub(other);
                (result, carry, overflow)
            }
            Operation::And => (one & other, false, false),
            Operation::Or => (one | other, false, false),
            Operation::ExclusiveOr => (one ^ other, false, false),
        };
        let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
        let flags = flag(carry, CARRY)
            | flag(result == 0, ZERO)
            | flag(result >> 63 != 0, SIGN)
            | flag(overflow, OVERFLOW);
        (result >> shift, flags)
    }

    #[test]
    fn operations_give_the_results_and_flags_of_their_length() {
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
        let operations = [
            Operation::Add,
            Operation::Subtract,
            Operation::And,
            Operation::Or,
            Operation::ExclusiveOr,
        ];
        for one in words {
            for other in words {
                for len in [1, 2, 4, 8] {
                    for operation in operations {
                        let (result, flags) = compute(operation, one, other, len);
                        assert_eq!(
                            (result, flags & (CARRY | ZERO | SIGN | OVERFLOW)),
                            expected(operation, one, other, len),
                            "{one:#x} {other:#x} {len} {operation:?}"
                        );
                    }
                }
            }
        }
    }
}
