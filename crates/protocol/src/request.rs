//! Valgrind client requests, by which a program talks to the tool that runs it.
//!
//! A request is a sequence of instructions that does nothing. RAX points to six words, its number and
//! five arguments; RDX holds the default of its result, and that is what natively comes of it.

/// The instructions: RDI is rotated by 128 in all, and RBX is exchanged with itself.
pub const SEQUENCE: [u8; 19] = [
    0x48, 0xc1, 0xc7, 0x03, // rol rdi, 3
    0x48, 0xc1, 0xc7, 0x0d, // rol rdi, 13
    0x48, 0xc1, 0xc7, 0x3d, // rol rdi, 61
    0x48, 0xc1, 0xc7, 0x33, // rol rdi, 51
    0x48, 0x87, 0xdb, // xchg rbx, rbx
];

/// How many words RAX points to.
pub const WORDS: usize = 6;

/// How many Valgrinds run the program, one inside of the other.
pub const RUNNING_ON_VALGRIND: u64 = 0x1001;

/// First request of a tool, by the two letters that it has.
pub const fn tool_base(letters: [u8; 2]) -> u64 {
    (letters[0] as u64) << 24 | (letters[1] as u64) << 16
}

/// The requests of pmemcheck, the tool for persistent memory: what is added to its base.
pub mod pmemcheck {
    /// The first one.
    pub const BASE: u64 = super::tool_base(*b"PC");

    /// Memory is persistent: address, length.
    pub const REGISTER_MAPPING: u64 = 0x00;
    /// A file is mapped: descriptor, address, length, offset in the file.
    pub const REGISTER_FILE: u64 = 0x01;
    /// Memory is no longer persistent: address, length.
    pub const REMOVE_MAPPING: u64 = 0x02;
    /// Is memory persistent? Address, length.
    pub const CHECK_MAPPING: u64 = 0x03;
    /// The tool may print what it knows.
    pub const PRINT_MAPPINGS: u64 = 0x04;
    /// As a flush of each line: address, length.
    pub const FLUSH: u64 = 0x05;
    /// As a fence.
    pub const FENCE: u64 = 0x06;
    /// As the removed instruction `pcommit`.
    pub const COMMIT: u64 = 0x07;
    /// The tool may print how much it knows.
    pub const WRITE_STATS: u64 = 0x08;
    /// Stores need not be flushed: address, length.
    pub const SET_CLEAN: u64 = 0x11;
    /// The thread begins a transaction.
    pub const START_TRANSACTION: u64 = 0x12;
    /// It begins one that has a number: number.
    pub const START_TRANSACTION_N: u64 = 0x13;
    /// It ends its transaction.
    pub const END_TRANSACTION: u64 = 0x14;
    /// It ends the one with this number.
    pub const END_TRANSACTION_N: u64 = 0x15;
    /// A range is added to the transaction: address, length.
    pub const ADD: u64 = 0x16;
    /// To the one with this number: number, address, length.
    pub const ADD_N: u64 = 0x17;
    /// A range is no longer part of the transaction: address, length.
    pub const REMOVE: u64 = 0x18;
    /// Of the one with this number: number, address, length.
    pub const REMOVE_N: u64 = 0x19;
    /// The thread takes part in the transaction with this number.
    pub const ADD_THREAD_N: u64 = 0x1a;
    /// The thread leaves that transaction.
    pub const REMOVE_THREAD_N: u64 = 0x1b;
    /// Stores to a range need no transaction, for good: address, length.
    pub const IGNORE: u64 = 0x1c;
    /// A line for the log: a string.
    pub const LOG: u64 = 0x1e;

    /// The name of a request.
    pub const fn name(number: u64) -> Option<&'static str> {
        Some(match number {
            REGISTER_MAPPING => "register-mapping",
            REGISTER_FILE => "register-file",
            REMOVE_MAPPING => "remove-mapping",
            CHECK_MAPPING => "check-mapping",
            PRINT_MAPPINGS => "print-mappings",
            FLUSH => "flush",
            FENCE => "fence",
            COMMIT => "commit",
            WRITE_STATS => "write-stats",
            SET_CLEAN => "set-clean",
            START_TRANSACTION | START_TRANSACTION_N => "start-transaction",
            END_TRANSACTION | END_TRANSACTION_N => "end-transaction",
            ADD | ADD_N => "add",
            REMOVE | REMOVE_N => "remove",
            ADD_THREAD_N => "add-thread",
            REMOVE_THREAD_N => "remove-thread",
            IGNORE => "ignore",
            LOG => "log",
            _ => return None,
        })
    }
}

/// Letters of the tools whose requests are known to say nothing about persistence: memcheck,
/// helgrind, drd, cachegrind, callgrind, massif and dhat.
pub const OTHER_TOOLS: [[u8; 2]; 7] = [*b"MC", *b"HG", *b"DR", *b"CG", *b"CT", *b"MS", *b"DH"];

/// Whether a request is one of Valgrind's own or of one of [`OTHER_TOOLS`].
pub const fn is_of_other_tool(number: u64) -> bool {
    const CORE: core::ops::Range<u64> = 0x1000..0x1_0000;
    if number >= CORE.start && number < CORE.end {
        return true;
    }
    let mut index = 0;
    while index < OTHER_TOOLS.len() {
        if number & !0xffff == tool_base(OTHER_TOOLS[index]) {
            return true;
        }
        index += 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::{is_of_other_tool, pmemcheck, tool_base};

    #[test]
    fn tools_are_told_apart() {
        assert_eq!(pmemcheck::BASE, 0x5043_0000);
        assert_eq!(tool_base(*b"MC"), 0x4d43_0000);
        assert!(is_of_other_tool(0x1201));
        assert!(is_of_other_tool(tool_base(*b"HG") + 0x105));
        assert!(!is_of_other_tool(pmemcheck::BASE + 5));
        assert!(!is_of_other_tool(5));
        assert_eq!(pmemcheck::name(5), Some("flush"));
        assert_eq!(pmemcheck::name(0x1d), None);
    }
}
