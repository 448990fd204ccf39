//! The file that host and targets map: control page, thread slots, chunks.
//!
//! The host makes it (a memfd), the runtime in each process of the target maps it, all at the same
//! fixed addresses. Nothing in it needs its process to be alive: whatever a killed target had
//! committed is there for the host to read.
//!
//! # Life of a chunk
//!
//! Free (`thread` is 0) → taken by a thread with a compare-and-swap of `thread` → retired when it
//! is full, or when its thread ends → read by the host → zeroed by the host → free, with a bump of
//! [`RecordingControl::freed`] for threads that wait for one. A chunk of a dead thread is read as if retired.
//! The chunks of a thread are ordered by their `sequence`.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::clock::Clock;
use crate::file::TreeTable;
pub use crate::schedule::Schedule;
use crate::{ThreadBlock, chunk, store_lock};

/// First word of the file.
pub const MAGIC: u64 = u64::from_le_bytes(*b"PFSHARED");
/// How many chunks there can be: some to be filled one after the other, and one for every thread.
pub const CHUNKS_MAX: usize = 64 + SLOTS_MAX;
/// How many threads can be recorded at a time, over all processes of the target.
pub const SLOTS_MAX: usize = 1024;

/// Environment variable with the number of the descriptor of the shared file.
pub const SHARED_FD_VARIABLE: &str = "POWERFAIL_SHARED_FD";
/// Environment variable with the number of the descriptor of the socket for messages.
pub const SOCKET_FD_VARIABLE: &str = "POWERFAIL_SOCKET_FD";
/// Environment variable with what a process needs that has not inherited these descriptors: see [`HostAddress`].
pub const HOST_VARIABLE: &str = "POWERFAIL_HOST";
/// Environment variable that makes time, random numbers and process ids the same in every run.
pub const DERANDOMISE_VARIABLE: &str = "POWERFAIL_DERANDOMISE";
/// Environment variable that makes connections of the target come from its standard input.
pub const DESOCK_VARIABLE: &str = "POWERFAIL_DESOCK";

/// Offset of the first thread slot in the file.
pub const SLOTS_AT: u64 = 64 * 1024;
/// Offset of the table of store locks in the file.
pub const STORE_LOCKS_AT: u64 = SLOTS_AT + (SLOTS_MAX * size_of::<ThreadSlot>()) as u64;
/// Offset of the first chunk in the file. Chunks follow each other.
pub const CHUNKS_AT: u64 = STORE_LOCKS_AT + store_lock::TABLE_LEN as u64;

/// Where every process of the target maps the control page, the slots and the store locks.
pub const CONTROL_ADDRESS: u64 = 0x1a00_0000_0000;
/// Where every process of the target maps the first chunk; the others follow at
/// [`chunk::ALIGNMENT`].
pub const CHUNKS_ADDRESS: u64 = 0x1800_0000_0000;
/// First address of the pool window, of the same length as its alias, which follows it.
pub const WINDOW_ADDRESS: u64 = 0x1000_0000_0000;
/// What `PMEM_MMAP_HINT` is set to, for the target and for recovery: far enough inside of the window.
pub const PMDK_HINT_ADDRESS: u64 = WINDOW_ADDRESS + (1 << 30);
/// Environment variable with the address, in hexadecimal, at which libpmem begins to look for room.
pub const PMDK_HINT_VARIABLE: &str = "PMEM_MMAP_HINT";
/// Length of the pool window.
pub const WINDOW_LEN: u64 = 1 << 42;

/// Length of the file with this many chunks.
pub const fn file_len(chunk_count: u32) -> u64 {
    chunk_offset(chunk_count)
}

/// Offset of a chunk in the file.
pub const fn chunk_offset(index: u32) -> u64 {
    CHUNKS_AT + index as u64 * chunk::LEN
}

/// Where a chunk is in every process of the target.
pub const fn chunk_address(index: u32) -> u64 {
    CHUNKS_ADDRESS + index as u64 * chunk::ALIGNMENT
}

/// The chunk in which an address of a target lies or behind whose end it lies, and the offset in it.
pub const fn chunk_of(address: u64) -> (u32, u64) {
    let offset = address - CHUNKS_ADDRESS;
    (
        (offset / chunk::ALIGNMENT) as u32,
        offset % chunk::ALIGNMENT,
    )
}

/// The first page of the file.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct RecordingControl {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`crate::PROTOCOL_VERSION`] of the host.
    pub protocol_version: u32,
    /// How many chunks the file has.
    pub chunk_count: u32,
    /// How many of them, from the first on, any thread takes. The others are spare: only a thread that has no chunk takes one.
    /// So a thread always gets one, also if all that have the others wait for it, and a target that is faster than the host
    /// does not fill all. A process maps a spare one when it takes it.
    pub common_count: u32,
    /// [`Mode`] as a number.
    pub mode: u32,
    /// [`Stacks`] as a number.
    pub stacks: u32,
    /// Futex: grows whenever the host has freed chunks.
    pub freed: AtomicU32,
    /// Futex: grows whenever a thread has retired a chunk.
    pub retired: AtomicU32,
    /// The next thread's number, over all processes. Numbers begin at 0 and are not used again.
    pub next_thread: AtomicU32,
    /// The next site's number, over all processes.
    pub next_site: AtomicU32,
    /// The chunks.
    pub chunks: [ChunkState; CHUNKS_MAX],
    /// How threads are scheduled.
    pub schedule: Schedule,
    /// How many operations the scheduler has counted, over all processes.
    pub schedule_steps: AtomicU64,
    /// How often it timed out on a thread.
    pub schedule_lapses: AtomicU64,
    /// Futex: grows whenever a [`ThreadSlot::doubt`] is to be answered.
    pub schedule_doubts: AtomicU32,
    /// The next free run of the heap, over all processes.
    pub next_run: AtomicU64,
    /// Not zero: the target sees that it runs under Valgrind.
    pub plays_valgrind: u32,
    /// How many client requests the target has made, over all processes.
    pub requests: RequestCounts,
    /// Where the [`crate::fuzz::Area`] is in the file; 0 if the target is not repeated.
    pub area_at: u64,
    /// A process that ended because it could not reach the host; 0 if there was none.
    pub unreachable_from: AtomicU32,
    /// Not zero: a thread has used a store lock.
    pub store_locks_used: AtomicU32,
    /// The trees whose files are recorded.
    pub trees: TreeTable,
    /// What orders the records of all threads.
    pub clock: Clock,
    /// Behind all slots that a thread has ever had: who looks for threads need not touch the memory of others. Grows before
    /// a slot is taken.
    pub slots_end: AtomicU32,
}

/// Where the clock is in every process of the target.
pub const CLOCK_ADDRESS: u64 = CONTROL_ADDRESS + offset_of!(RecordingControl, clock) as u64;

/// How a process of the target reaches the host without inherited descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostAddress {
    /// The process of the host.
    pub process: u32,
    /// The number of the shared file among its descriptors.
    pub shared: u32,
    /// The inode of the inherited socket, which tells whether a descriptor is still that socket.
    pub socket_inode: u32,
}

impl HostAddress {
    /// From the value of [`HOST_VARIABLE`].
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(':').map(|number| number.parse().ok());
        let address = Self {
            process: numbers.next()??,
            shared: numbers.next()??,
            socket_inode: numbers.next()??,
        };
        numbers.next().is_none().then_some(address)
    }
}

/// The value of [`HOST_VARIABLE`]. Always of the same length: stacks of targets begin behind their environment, and their
/// addresses must not depend on numbers of processes.
impl core::fmt::Display for HostAddress {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self {
            process,
            shared,
            socket_inode,
        } = self;
        write!(formatter, "{process:07}:{shared:07}:{socket_inode:010}")
    }
}

/// The path of a file that a process has open: its id, and the number of the descriptor. Always of the same length, as
/// [`HostAddress`].
#[derive(Clone, Copy, Debug)]
pub struct DescriptorPath(pub u32, pub u32);

impl core::fmt::Display for DescriptorPath {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "/proc/{:/>7}/fd/{:/>7}", self.0, self.1)
    }
}

/// The abstract name of the socket on which the host accepts connections.
#[derive(Clone, Copy, Debug)]
pub struct ListenerName(pub HostAddress);

impl core::fmt::Display for ListenerName {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "powerfail/{}/{}", self.0.process, self.0.shared)
    }
}

/// The numbers of client requests, by how they were answered.
#[repr(C)]
#[derive(Debug)]
pub struct RequestCounts {
    /// Those that powerfail understands.
    pub understood: AtomicU64,
    /// Those of other tools of Valgrind, which are not about persistence: they got their default.
    pub of_other_tools: AtomicU64,
    /// Those that are unknown: they got their default.
    pub unknown: AtomicU64,
    /// The number of the first of these.
    pub first_unknown: AtomicU64,
}

/// Whether a thread sleeps, which only the host can find out without descriptors of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Doubt {
    /// No question is open.
    None = 0,
    /// The question: does it sleep?
    Asked = 1,
    /// The answer: it sleeps.
    Sleeps = 2,
    /// The answer: it runs, or would if it had a processor.
    Runs = 3,
}

/// How stores are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Mode {
    /// After its first fault an instruction is patched.
    Patch = 0,
    /// Every store faults.
    Trap = 1,
}

/// How much of the call stack of an event is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Stacks {
    /// Nothing.
    None = 0,
    /// The instruction.
    Sites = 1,
    /// The whole call stack.
    Full = 2,
}

/// The owner of a chunk.
#[repr(C)]
#[derive(Debug)]
pub struct ChunkState {
    /// 0: free; else the number of its thread plus one.
    pub thread: AtomicU32,
    /// 1: its thread will not append to it any more.
    pub retired: AtomicU32,
    /// Its position among the chunks of its thread, from 0.
    pub sequence: AtomicU64,
}

/// A thread of the target.
#[repr(C, align(1024))]
#[derive(Debug)]
pub struct ThreadSlot {
    /// What the emitted code uses.
    pub block: ThreadBlock,
    /// 0: free; else the number of the thread plus one.
    pub thread: AtomicU32,
    /// The process that it belongs to.
    pub process_id: AtomicU32,
    /// Futex: 0 while the thread waits for the host's answer to a message, else a [`Reply`].
    pub reply: AtomicU32,
    /// How many chunks it has taken.
    pub chunks_taken: AtomicU64,
    /// Its thread id in the system.
    pub thread_id: AtomicU32,
    /// A [`Doubt`] as a number.
    pub doubt: AtomicU32,
}

/// The host's answer to [`crate::message::MessageKind::PoolMap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Reply {
    /// Record it.
    Record = 1,
    /// Do not record it.
    Ignore = 2,
}

#[cfg(test)]
mod tests {
    use super::{CHUNKS_AT, RecordingControl, SLOTS_AT, ThreadSlot, chunk_address, chunk_of};

    #[test]
    fn everything_has_its_place() {
        assert!(size_of::<RecordingControl>() as u64 <= SLOTS_AT);
        assert_eq!(CHUNKS_AT % 4096, 0);
        assert_eq!(size_of::<ThreadSlot>(), 1024);
        assert_eq!(chunk_of(chunk_address(7) + 9), (7, 9));
    }
}
