//! What the runtime shares with the oracle when it runs in a *recovery*: the plan of an execution, and what was
//! observed in it.
//!
//! The oracle's zygote makes one file (a memfd) for each command of a plan, of the layout below, and starts
//! the command with its number and that of a socket in the environment. Every process maps it at
//! [`ADDRESS`]. The parts that describe a crash (the *table*) are written before an execution begins;
//! the parts that describe the execution are written by it.
//!
//! # Life of a recovery
//!
//! 1. The process starts, and stops just before it first touches a pool: **the snapshot**. It sends
//!    [`RecoveryMessageKind::AtSnapshot`] and waits for an order.
//! 2. At [`RecoveryOrder::Run`] it forks. The child continues as one execution; the snapshot waits for its end,
//!    sends [`RecoveryMessageKind::Ended`], and waits for the next order.
//! 3. In a lazy execution the child forks by itself wherever a load can observe several values
//!    ([`flag::FORK`]): the parent waits for the end of the child, sends [`RecoveryMessageKind::Ended`], waits for
//!    an order, and takes the next value; the last value it takes itself. So one process runs at a time,
//!    and the choices in the file are those of that process.
//!
//! # Which memory is whose
//!
//! With [`flag::PRIVATE`] an execution changes nothing that another one sees: the pool is mapped privately,
//! pages with open lines live in private memory. Without it, the pool is mapped shared, and what is known
//! of lines and the content of open pages lies in the file, so that a later command of the same plan
//! (a checker) continues where the first one ended.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// First word of the file.
pub const MAGIC: u64 = u64::from_le_bytes(*b"PFEXPLOR");
/// Version of everything in this module.
pub const VERSION: u32 = 3;
/// Environment variable with the number of the descriptor of the file.
pub const FILE_VARIABLE: &str = "POWERFAIL_EXPLORE_FD";
/// Environment variable with the number of the descriptor of the socket, which preserves message boundaries.
pub const SOCKET_VARIABLE: &str = "POWERFAIL_EXPLORE_SOCKET";
/// Environment variable with the number of the descriptor of the pipe that standard output and standard
/// error lead to. It is not for text: see [`RecoveryControl::output_mark`].
pub const OUTPUT_VARIABLE: &str = "POWERFAIL_EXPLORE_OUTPUT_FD";
/// Where every process maps the file.
pub const ADDRESS: u64 = 0x1c00_0000_0000;

/// Offset of the pools: a [`PoolEntry`] for each, then their paths.
pub const POOLS_AT: u64 = 64 << 10;
/// Offset of the open lines: a [`LineEntry`] for each, by pool and offset.
pub const LINES_AT: u64 = 1 << 20;
/// Offset of the contents of lines, one after the other: see [`LineEntry::contents_at`].
pub const CONTENTS_AT: u64 = 64 << 20;
/// Offset of what is known of lines, without [`flag::PRIVATE`]; private memory has the same layout.
pub const KNOWLEDGE_AT: u64 = 1 << 30;
/// Offset of the pages with open or watched lines, without [`flag::PRIVATE`], in the order of
/// [`OpenPage`]s.
pub const PAGES_AT: u64 = 2 << 30;
/// Offset of the table of pages with open or watched lines: [`OpenPage`]s by pool and offset.
pub const OPEN_PAGES_AT: u64 = 3 << 30;
/// Offset of the choices to follow: `u32`s.
pub const PREFIX_AT: u64 = 4 << 30;
/// Offset of the choices that were made: [`Choice`]s.
pub const CHOICES_AT: u64 = (4 << 30) + (64 << 20);
/// Offset of the log of what recovery does to pools: [`LogHeader`]s with their bytes.
pub const LOG_AT: u64 = 5 << 30;
/// Offset of the addresses of instructions that loaded from or stored to protected pages: `u64`s.
pub const SITES_AT: u64 = 6 << 30;
/// Offset of the bytes whose first reads are noted: [`Watch`]es by pool and offset.
pub const WATCHES_AT: u64 = 7 << 30;
/// Offset of the watched bytes that were neither read nor overwritten yet, without [`flag::PRIVATE`]: a `u64` for
/// each [`Watch`]; private memory has the same layout.
pub const UNREAD_AT: u64 = (7 << 30) + (512 << 20);
/// Offset of the notes: [`Note`]s.
pub const NOTES_AT: u64 = 8 << 30;
/// Length of the file. Only what is used takes memory.
pub const FILE_LEN: u64 = 9 << 30;

/// How many choices an execution can make.
pub const CHOICES_MAX: u32 = 1 << 20;
/// How many bytes the log can hold.
pub const LOG_MAX: u64 = 1 << 30;
/// How many sites are noted.
pub const SITES_MAX: u32 = 1 << 20;
/// How many lines have watched bytes.
pub const WATCHES_MAX: u32 = 1 << 24;
/// How many notes an execution can make.
pub const NOTES_MAX: u32 = 1 << 22;

/// Bits of [`RecoveryControl::flags`].
pub mod flag {
    /// Loads from open lines are choices. Without it an execution runs on the image as it is.
    pub const LAZY: u32 = 1;
    /// Branch by forking at the load. Without it the first value is taken, and the others are left.
    pub const FORK: u32 = 2;
    /// An execution changes nothing that others see.
    pub const PRIVATE: u32 = 4;
    /// Log all stores to pools, flushes and fences.
    pub const LOG: u32 = 8;
    /// Note the first read of each watched byte, and the annotations of recovery.
    pub const NOTES: u32 = 16;
    /// With [`NOTES`]: note every byte that a load reads, whether or not it matters to the instruction, so that all
    /// choices follow from the notes; and stop watching lines that are read very often.
    pub const OBSERVATIONS: u32 = 32;
}

/// The first page of the file.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct RecoveryControl {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// Bits of [`flag`].
    pub flags: u32,
    /// Length of a line: 64, or 512 for a page cache.
    pub line_bytes: u32,
    /// How many pools there are.
    pub pool_count: u32,
    /// How many open lines.
    pub line_count: u32,
    /// How many pages have open or watched lines.
    pub page_count: u32,
    /// How many of the choices in the file are to be followed, before new ones are made.
    pub prefix_len: u32,
    /// How many processes may wait in branches at a time; at more a branch is left.
    pub waiting_max: u32,
    /// How many choices the execution that runs has made.
    pub choice_count: AtomicU32,
    /// The process that runs now.
    pub active: AtomicU32,
    /// How many processes wait in branches.
    pub waiting: AtomicU32,
    /// The process that has a pool mapped, or zero: a second one at the same time is refused.
    pub attached: AtomicU32,
    /// How long the log is, in bytes.
    pub log_len: AtomicU64,
    /// How many sites are noted.
    pub site_count: AtomicU32,
    /// Faults and breakpoints that were handled, over all executions.
    pub traps: AtomicU64,
    /// Loads and stores that were single-stepped, over all executions.
    pub steps: AtomicU64,
    /// Loads from open lines that could observe one value only.
    pub forced: AtomicU64,
    /// The first process of the command, which alone can be a snapshot: set by itself, where there is
    /// zero. (Its number stays the same when it executes another program.)
    pub root: AtomicU32,
    /// Whether a process has begun to use a pool. Without [`flag::PRIVATE`] what is known of lines, and the
    /// content of open pages, in the file are then those of a former command of the same execution. The host
    /// writes zero before the first one.
    pub begun: AtomicU32,
    /// A branch that is about to fork writes these bytes, at once, to the pipe of [`OUTPUT_VARIABLE`]: what
    /// was written before belongs to the branch and to its child, what comes after only to the child. They
    /// are random, so that no program writes them by itself.
    pub output_mark: [u8; OUTPUT_MARK_BYTES],
    /// How many lines have watched bytes.
    pub watch_count: u32,
    /// How many notes the execution that runs has made.
    pub note_count: AtomicU32,
    /// What the annotations of the current execution say about its reads: bits of [`attention`].
    pub attention: AtomicU32,
}

/// Bits of [`RecoveryControl::attention`].
pub mod attention {
    /// All regions of interest that have begun have ended.
    pub const OUTSIDE: u32 = 1;
    /// Detection is to be skipped.
    pub const SKIPPED: u32 = 2;
    /// The recovery is complete.
    pub const COMPLETE: u32 = 4;
    /// There was a region of interest.
    pub const HAS_REGION: u32 = 8;
    /// With any of these, reads are not reported.
    pub const NONE: u32 = OUTSIDE | SKIPPED | COMPLETE;
    /// One region of interest that is open: the bits of [`REGIONS`] count them.
    pub const REGION: u32 = 1 << 8;
    /// How many regions of interest are open.
    pub const REGIONS: u32 = 0xfff * REGION;
    /// One beginning of what is to be skipped: the bits of [`SKIPS`] count them.
    pub const SKIP: u32 = 1 << 20;
    /// How often skipping has begun and not ended.
    pub const SKIPS: u32 = 0xfff * SKIP;
}

/// Length of [`RecoveryControl::output_mark`]: short enough for a pipe to take it whole.
pub const OUTPUT_MARK_BYTES: usize = 32;

/// A pool in the table.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolEntry {
    /// Where its path is: offset in the file.
    pub path_at: u64,
    /// How long it is.
    pub path_len: u64,
}

/// A page of a pool that is protected.
#[repr(C)]
#[derive(Debug, Default)]
pub struct OpenPage {
    /// The pool.
    pub pool: u32,
    /// How many lines of it are open.
    pub open_lines: u32,
    /// Its offset in the pool.
    pub offset: u64,
    /// Lines of it, in units of 64 bytes, whose reads are reported: a bit each.
    pub watched: u64,
    /// Those that were read, by any execution since the table was written.
    pub read: AtomicU64,
}

/// An open line in the table.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct LineEntry {
    /// The pool.
    pub pool: u32,
    /// How many contents it can have.
    pub content_count: u32,
    /// Its offset in the pool.
    pub offset: u64,
    /// Where they are: offset from [`CONTENTS_AT`]. The newest first; all are different.
    pub contents_at: u64,
    /// Where the words of the possible ones are: offset from [`KNOWLEDGE_AT`]. Before them lies the set
    /// of overwritten bytes ([`OVERWRITTEN_BYTES`]).
    pub knowledge_at: u64,
}

/// Length of the set of overwritten bytes of a line.
pub const OVERWRITTEN_BYTES: u64 = 64;
/// How many return addresses a choice keeps.
pub const CHOICE_FRAMES: usize = 12;
/// Words of a set of bytes of a line, in a choice.
pub const OBSERVED_WORDS: usize = OVERWRITTEN_BYTES as usize / 8;

/// A load that could observe several values, and the one that was taken.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The line, by its place in the table.
    pub line: u32,
    /// First byte in the line.
    pub from: u16,
    /// End of the bytes in the line.
    pub to: u16,
    /// How many values there were.
    pub class_count: u16,
    /// Which was taken, by the first content of each class.
    pub class: u16,
    /// The first content that has it.
    pub content: u32,
    /// 1: the values after this one were left to be explored later.
    pub left: u32,
    /// How many stores recovery had logged before.
    pub log_events: u32,
    /// Where: the instruction, then return addresses, innermost first; zero where there is none.
    pub frames: [u64; CHOICE_FRAMES],
    /// The bytes of the line that told the values apart: those of the load that recovery had not
    /// overwritten before it. Byte *n* is bit `n % 64` of word `n / 64`. Without them the
    /// choices could not be followed without the stores between them.
    pub observed: [u64; OBSERVED_WORDS],
    /// How many notes were made before.
    pub notes: u32,
    /// 1: the annotations of recovery exclude it (outside of its region of interest, or where detection is
    /// skipped).
    pub skipped: u32,
}

/// Bytes of a line of 64 bytes whose first read is noted, unless recovery overwrites them before.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    /// The pool.
    pub pool: u32,
    /// Zero.
    pub reserved: u32,
    /// Its offset in the pool.
    pub offset: u64,
    /// Its bytes: a bit each.
    pub bytes: u64,
}

/// [`Note::code`]: the rest of a line counts as read from here on, because watching it has become too slow. Only with
/// [`flag::OBSERVATIONS`].
pub const REST_OF_LINE: u32 = u32::MAX;

/// The first read of watched bytes, or an annotation of recovery.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// Zero: a read. [`REST_OF_LINE`]. Else the code of an annotation ([`crate::mark`]).
    pub code: u32,
    /// The pool.
    pub pool: u32,
    /// Of a read: the offset of the line. Of an annotation: that of its first range.
    pub offset: u64,
    /// Of a read: the watched bytes of the line that were read now, a bit each. Of an annotation: the length of
    /// its first range.
    pub bytes: u64,
    /// How many choices were made before.
    pub choices: u32,
    /// 1: the annotations of recovery exclude it.
    pub skipped: u32,
    /// Of an annotation with two ranges: pool, offset and length of the second one. Of a read with
    /// [`flag::OBSERVATIONS`]: see [`Note::load`].
    pub second: [u64; 3],
    /// Where: the instruction, then return addresses, innermost first; zero where there is none.
    pub frames: [u64; CHOICE_FRAMES],
}

/// What is known of the load behind a note, with [`flag::OBSERVATIONS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotedLoad {
    /// The number of the load in its process: notes of one load have the same.
    pub number: u32,
    /// How long the log was before.
    pub log_len: u32,
    /// The bytes that it loads: first, in the page.
    pub from: u16,
    /// Behind the last, in the page.
    pub to: u16,
    /// Of [`REST_OF_LINE`]: several values are possible, so nothing of it counts as read.
    pub is_open: bool,
}

impl Note {
    /// What is known of the load.
    pub const fn load(&self) -> NotedLoad {
        let [_, numbers, range] = self.second;
        NotedLoad {
            number: numbers as u32,
            log_len: (numbers >> 32) as u32,
            from: range as u16,
            to: (range >> 16) as u16,
            is_open: range >> 32 != 0,
        }
    }

    /// The same note with what is known of the load.
    #[must_use]
    pub const fn with_load(mut self, load: NotedLoad) -> Self {
        let numbers = load.number as u64 | (load.log_len as u64) << 32;
        let range = load.from as u64 | (load.to as u64) << 16 | (load.is_open as u64) << 32;
        self.second = [0, numbers, range];
        self
    }
}

/// The kind of an event in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum LogKind {
    /// A store; its bytes follow, padded to 8.
    Store = 1,
    /// A non-temporal store; its bytes follow, padded to 8.
    StoreNonTemporal = 2,
    /// clflush.
    Flush = 3,
    /// clflushopt or clwb.
    FlushOptimized = 4,
    /// A fence, or a locked operation.
    Fence = 5,
    /// msync, fsync or fdatasync of a range.
    Sync = 6,
}

/// The header of an event in the log of recovery.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct LogHeader {
    /// [`LogKind`] as a number.
    pub kind: u32,
    /// The pool.
    pub pool: u32,
    /// Offset in the pool.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// The instruction.
    pub site: u64,
    /// The thread.
    pub thread: u32,
    /// How many choices were made before.
    pub choices: u32,
}

/// The kind of a message from a process to the zygote: the first word of [`MESSAGE_LEN`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum RecoveryMessageKind {
    /// The snapshot is ready: its process number.
    AtSnapshot = 1,
    /// There is no snapshot, and the process runs on. Text: the reason.
    NoSnapshot = 2,
    /// An execution has ended: its process number, its status as of `wait4`.
    Ended = 3,
    /// The process did something that cannot be explored, and ends: its process number, a
    /// [`RefusalKind`] as a number. Text: the reason.
    Refused = 4,
    /// A warning. Text: a sentence.
    Warning = 5,
}

/// What a recovery that was refused rules out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum RefusalKind {
    /// The recovery cannot be explored at all.
    NotExplorable = 0,
    /// The recovery cannot be explored by forking, because forks share the files of pools. It can be
    /// explored by executing it again for each combination of values.
    NotForkable = 1,
}

impl RefusalKind {
    /// The kind with this number; an unknown number rules out the most.
    pub const fn from_number(number: u64) -> Self {
        match number {
            1 => Self::NotForkable,
            _ => Self::NotExplorable,
        }
    }
}

/// Length of every message: kind, three words, text that ends with a zero.
pub const MESSAGE_LEN: usize = 512;

/// An order of the zygote to a process that waits for one: one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum RecoveryOrder {
    /// The snapshot runs one execution; a branch takes its next value.
    Run = 1,
    /// The process ends at once.
    Stop = 2,
    /// Only to a snapshot: it continues as the one execution itself, without forking, and does not report its
    /// end. For commands that are run once: servers, and programs that a script starts.
    Go = 3,
}

#[cfg(test)]
mod tests {
    use super::{
        CHOICES_AT, CHOICES_MAX, Choice, LINES_AT, LOG_AT, POOLS_AT, RecoveryControl, SITES_AT,
    };
    use super::{
        FILE_LEN, LOG_MAX, NOTES_AT, NOTES_MAX, Note, SITES_MAX, UNREAD_AT, WATCHES_AT,
        WATCHES_MAX, Watch,
    };

    #[test]
    fn areas_do_not_overlap() {
        assert!(size_of::<RecoveryControl>() as u64 <= POOLS_AT);
        const { assert!(POOLS_AT < LINES_AT && LOG_AT + LOG_MAX <= SITES_AT) };
        assert!(CHOICES_AT + u64::from(CHOICES_MAX) * size_of::<Choice>() as u64 <= LOG_AT);
        assert!(SITES_AT + 8 * u64::from(SITES_MAX) <= WATCHES_AT);
        assert!(WATCHES_AT + u64::from(WATCHES_MAX) * size_of::<Watch>() as u64 <= UNREAD_AT);
        assert!(UNREAD_AT + 8 * u64::from(WATCHES_MAX) <= NOTES_AT);
        assert!(NOTES_AT + u64::from(NOTES_MAX) * size_of::<Note>() as u64 <= FILE_LEN);
    }
}
