//! Where things are in the guest's memory.
//!
//! ```text
//! 0          RAM_LEN           + pm         + MARKS_LEN    + EXCHANGE_LEN
//! | RAM      | persistent      | marks       | exchange     | more RAM |
//! ```
//!
//! Persistent memory must not be the last of all memory, part of which the firmware keeps, so there is RAM behind it.
//! The marks are ordinary stores of the guest to a page that the kernel does not use: the plugin sees them in their order
//! among the others. The exchange is a second device, through which files come into a running guest.

use serde::{Deserialize, Serialize};

/// One mebibyte.
pub(crate) const MIB: u64 = 1 << 20;
/// What everything is aligned to: devices cannot begin elsewhere.
const ALIGNMENT: u64 = 2 * MIB;
const RAM_LEN: u64 = 256 * MIB;
const TOP_LEN: u64 = 32 * MIB;
/// How much the largest guest can have: what lies below the addresses of PCI devices.
const PM_LEN_MAX: u64 = 2048 * MIB;

/// The length of the range for marks.
pub(crate) const MARKS_LEN: u64 = ALIGNMENT;
/// The length of the device for files.
pub(crate) const EXCHANGE_LEN: u64 = 32 * MIB;

/// The memory of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryLayout {
    /// The length of persistent memory.
    pub pm_len: u64,
}

impl MemoryLayout {
    /// A layout with so much persistent memory, rounded up to what a device can have; nothing if it is too much.
    pub fn new(pm_len: u64) -> Option<Self> {
        let pm_len = pm_len.max(ALIGNMENT).checked_next_multiple_of(ALIGNMENT)?;
        (pm_len <= PM_LEN_MAX).then_some(Self { pm_len })
    }

    /// The length of the first range of RAM.
    pub(crate) const fn ram_len() -> u64 {
        RAM_LEN
    }

    /// The address of persistent memory.
    pub(crate) const fn pm_address() -> u64 {
        RAM_LEN
    }

    /// The number that QEMU gives plugins for the first byte of persistent memory: its place in all memory of QEMU, which is
    /// behind the first range of RAM, plus the address of its region.
    pub(crate) const fn pm_number() -> u64 {
        RAM_LEN + Self::pm_address()
    }

    /// The address of the marks.
    pub(crate) const fn marks_address(self) -> u64 {
        RAM_LEN + self.pm_len
    }

    /// The length of the file behind persistent memory and marks.
    pub(crate) const fn pm_file_len(self) -> u64 {
        self.pm_len + MARKS_LEN
    }

    /// The address of the exchange.
    pub(crate) const fn exchange_address(self) -> u64 {
        self.marks_address() + MARKS_LEN
    }

    /// The length of the last range of RAM.
    pub(crate) const fn top_len() -> u64 {
        TOP_LEN
    }

    /// How much memory the guest has in all.
    pub(crate) const fn total(self) -> u64 {
        self.exchange_address() + EXCHANGE_LEN + TOP_LEN
    }

    /// What the kernel is told about the ranges.
    pub(crate) fn kernel_options(self) -> String {
        format!(
            "memmap={}M!{}M memmap={}M${}M memmap={}M!{}M",
            self.pm_len / MIB,
            Self::pm_address() / MIB,
            MARKS_LEN / MIB,
            self.marks_address() / MIB,
            EXCHANGE_LEN / MIB,
            self.exchange_address() / MIB,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_adjacent_and_aligned() {
        let layout = MemoryLayout::new(31 * MIB + 1).unwrap();
        assert_eq!(layout.pm_len, 32 * MIB);
        assert_eq!(
            layout.kernel_options(),
            "memmap=32M!256M memmap=2M$288M memmap=32M!290M"
        );
        assert_eq!(layout.total(), (290 + 32 + 32) * MIB);
        assert_eq!(MemoryLayout::new(0).unwrap().pm_len, 2 * MIB);
        assert!(MemoryLayout::new(u64::MAX).is_none());
        assert!(MemoryLayout::new(PM_LEN_MAX + 1).is_none());
    }
}
