//! Persistent memory that is not a file of the target's: the heap of `--heap`, and ranges that a program
//! registers. The recorder and the oracle say where their files are, the runtime maps them.
//!
//! # The file of the heap
//!
//! | offset | what |
//! | --- | --- |
//! | 0 | nothing |
//! | [`ROOTS_AT`] | the roots, a line each |
//! | [`TABLES_AT`] | what the runs of the workload hold: 8 bytes for each run |
//! | + [`TABLE_LEN`] | what the runs of recoveries hold |
//! | [`RUNS_AT`] | the runs of the workload, then as many for recoveries |
//!
//! A run of [`RUN_LEN`] bytes holds objects of one length, and keeps that length for good. So an entry of
//! a table is written once, and which objects of a run are in use need not be known after a crash: no process
//! allocates from a run that another process has taken. Recoveries take runs of their own, so they need not
//! look at what the workload had taken when the power failed.
//!
//! An object begins with a line and shares none with another one: to flush it makes nothing else durable.

use crate::shared::{WINDOW_ADDRESS, WINDOW_LEN};

/// Environment variable with the path of the heap's file.
pub const HEAP_VARIABLE: &str = "POWERFAIL_HEAP";
/// Environment variable with the path of the directory for registered ranges.
pub const RANGES_VARIABLE: &str = "POWERFAIL_RANGES";
/// Environment variable with the addresses that pools had in the recording, for a recovery: for each pool its address in
/// hexadecimal, a colon and its path, separated by semicolons.
pub const ADDRESSES_VARIABLE: &str = "POWERFAIL_ADDRESSES";
/// What the file of a range is called behind its name.
pub const RANGE_SUFFIX: &str = ".pool";
/// What the file of the heap is called.
pub const HEAP_NAME: &str = "heap";

/// Addresses at the end of the pool window that are kept for the heap.
pub const HEAP_SPACE: u64 = 1 << 39;
/// Where the heap is mapped, in every process: the target's and those of recoveries.
pub const HEAP_ADDRESS: u64 = WINDOW_ADDRESS + WINDOW_LEN - HEAP_SPACE;
/// Addresses of the pool window that are kept for memory which the target maps and may register.
pub const RANGES_SPACE: u64 = 1 << 39;
/// Where such memory is mapped, one mapping after the other, in every process.
pub const RANGES_ADDRESS: u64 = HEAP_ADDRESS - RANGES_SPACE;
/// The default length of the heap.
pub const HEAP_LEN_DEFAULT: u64 = 256 << 20;
/// The greatest length of the heap.
pub const HEAP_LEN_MAX: u64 = 64 << 30;

/// How many roots there are.
pub const ROOT_COUNT: u64 = 1024;
/// Distance of two roots.
pub const ROOT_LEN: u64 = 64;
/// Offset of the first root.
pub const ROOTS_AT: u64 = 4096;
/// Offset of the tables.
pub const TABLES_AT: u64 = 1 << 20;
/// Length of a table: enough for the largest heap.
pub const TABLE_LEN: u64 = HEAP_LEN_MAX / RUN_LEN * 8;
/// Offset of the first run.
pub const RUNS_AT: u64 = 32 << 20;
/// Length of a run.
pub const RUN_LEN: u64 = 64 << 10;

/// Length of the file of a heap in which the workload has `len` bytes.
pub const fn heap_file_len(len: u64) -> u64 {
    RUNS_AT + 2 * run_count(len) * RUN_LEN
}

/// How many runs the workload has in a heap of `len` bytes.
pub const fn run_count(len: u64) -> u64 {
    let len = if len > HEAP_LEN_MAX {
        HEAP_LEN_MAX
    } else {
        len
    };
    let count = len.div_ceil(RUN_LEN);
    if count == 0 { 1 } else { count }
}

/// How many runs the workload has in a heap whose file has this length.
pub const fn run_count_of_file(file_len: u64) -> u64 {
    file_len.saturating_sub(RUNS_AT) / RUN_LEN / 2
}

/// What an entry of a table begins with. Bytes that were never written are all the same, and never this.
const TAKEN: u64 = 0x5046 << 48;
const LEN_MASK: u64 = (1 << 48) - 1;

/// The entry of a run with objects of this length; an object of several runs has an entry for the first.
pub const fn entry(object_len: u64) -> u64 {
    TAKEN | object_len
}

/// The length of the objects of a run; `None` if it is free.
pub const fn object_len(entry: u64) -> Option<u64> {
    if entry & !LEN_MASK == TAKEN {
        Some(entry & LEN_MASK)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{
        HEAP_ADDRESS, HEAP_LEN_MAX, HEAP_SPACE, ROOT_COUNT, ROOT_LEN, ROOTS_AT, RUNS_AT, TABLE_LEN,
        TABLES_AT, entry, heap_file_len, object_len, run_count, run_count_of_file,
    };

    #[test]
    fn everything_has_its_place() {
        const { assert!(ROOTS_AT + ROOT_COUNT * ROOT_LEN <= TABLES_AT) };
        const { assert!(TABLES_AT + 2 * TABLE_LEN <= RUNS_AT) };
        assert!(heap_file_len(HEAP_LEN_MAX) < HEAP_SPACE);
        assert_eq!(HEAP_ADDRESS % (2 << 20), 0);
        for len in [1, 65_536, 65_537, 256 << 20, HEAP_LEN_MAX, u64::MAX] {
            assert_eq!(run_count_of_file(heap_file_len(len)), run_count(len));
        }
    }

    #[test]
    fn a_byte_that_fills_memory_is_no_entry() {
        for byte in 0..=u8::MAX {
            assert_eq!(object_len(u64::from_le_bytes([byte; 8])), None);
        }
        assert_eq!(object_len(entry(192)), Some(192));
    }
}
