//! Store locks: what gives the stores of several threads to the same bytes one order.
//!
//! A stamp is taken before its store is made, so two threads that store to the same bytes could be recorded in one order
//! and store in the other. Where a pool is shared by threads or processes ([`crate::ThreadBlock::is_shared`]), a store
//! holds the lock of the [`GRANULE_LEN`] bytes that it writes to from before its stamp until after the store. A store of at
//! most that length reaches into two granules at most, and holds both locks. A flush holds the lock of its line.
//!
//! - A lock is a word: zero, or **the address of the record whose store holds it**. So the record tells its owner: the
//!   thread that has its chunk.
//! - A thread names the locks in [`crate::ScratchSlot::Lock`] and [`crate::ScratchSlot::SecondLock`] before it takes them.
//!   When a thread was killed, the host releases those that hold a record of it.
//! - A system call that writes to the file of a pool, or makes it durable, may concern more than two granules. Its thread holds all their locks, taken
//!   in the order of the table, until its records are made. They hold **the address of the thread's block**, and the host finds
//!   them in the table.
//! - Nothing waits while it holds a lock, but for the second one and for the kernel to write a file back, and a thread that does not get that gives the first one
//!   back. No handler of the target runs while its thread holds one: the store is undone or completed before.
//! - Locks are found by the low bits of an address. All mappings of a pool are at the same distance from its offsets,
//!   modulo [`PERIOD_LEN`], unless the target insists on another address.

/// How many bytes a lock is for. No record has a longer value.
pub const GRANULE_LEN: u64 = 1 << GRANULE_LOG2;
/// How many locks there are.
pub const COUNT: usize = 1 << COUNT_LOG2;
/// Distance from a lock to the next: a line, so that threads that take different locks do not disturb each other.
pub const STRIDE: usize = 1 << STRIDE_LOG2;
/// Addresses at this distance have the same lock.
pub const PERIOD_LEN: u64 = GRANULE_LEN << COUNT_LOG2;
/// The length of all locks.
pub const TABLE_LEN: usize = COUNT * STRIDE;

const GRANULE_LOG2: u32 = 10;
const COUNT_LOG2: u32 = 11;
const STRIDE_LOG2: u32 = 6;

/// How far an address is shifted, and the mask that leaves of it the offset of its lock in the table. Emitted code computes
/// the same.
pub const OFFSET_SHIFT: u32 = GRANULE_LOG2 - STRIDE_LOG2;
/// See [`OFFSET_SHIFT`].
pub const OFFSET_MASK: u32 = ((COUNT as u32) - 1) << STRIDE_LOG2;

/// Where in the table the lock of the byte at an address is.
pub const fn offset_of(address: u64) -> u64 {
    (address >> OFFSET_SHIFT) & OFFSET_MASK as u64
}

#[cfg(test)]
mod tests {
    use super::{COUNT, GRANULE_LEN, PERIOD_LEN, STRIDE, TABLE_LEN, offset_of};
    use crate::MAX_VALUE_LEN;

    #[test]
    fn every_granule_of_a_period_has_its_own() {
        let first = 0x1000_4000_0000;
        let mut seen = [false; COUNT];
        for granule in 0..COUNT as u64 {
            let address = first + granule * GRANULE_LEN;
            let offset = offset_of(address);
            assert_eq!(offset, offset_of(address + GRANULE_LEN - 1));
            assert_eq!(offset, offset_of(address + PERIOD_LEN));
            assert!(offset < TABLE_LEN as u64);
            assert!(!core::mem::replace(
                &mut seen[offset as usize / STRIDE],
                true
            ));
        }
    }

    #[test]
    fn a_store_reaches_into_two_granules_at_most() {
        assert!(u64::from(MAX_VALUE_LEN) <= GRANULE_LEN);
    }
}
