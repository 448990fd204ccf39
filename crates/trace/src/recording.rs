//! The summary of a recording: what a recorder tells about the run beside its trace.
//!
//! It is here, and not in the recorder, so that a report can show it without depending on the crate that
//! starts processes. Nothing of it is in the trace file.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use powerfail_protocol::message::SiteTactic;

use crate::kind::RecordKind;

/// The summary of a recording.
#[derive(Clone, Debug, Default)]
pub struct RecordingSummary {
    /// How the target ended.
    pub status: TargetStatus,
    /// Whether it was killed at its time limit.
    pub timed_out: bool,
    /// What its threads did when it was killed at its time limit, in sentences.
    pub waiting: Vec<String>,
    /// How many of its processes were recorded.
    pub process_count: u32,
    /// How many threads of all processes were recorded.
    pub thread_count: u32,
    /// The files that were recorded.
    pub pools: Vec<PoolSummary>,
    /// The trees whose files were recorded.
    pub trees: Vec<TreeSummary>,
    /// Files that the target wrote with system calls and that are neither pools nor in a tree. They are not recorded.
    pub elsewhere: Vec<PathBuf>,
    /// The files that were mapped and not recorded.
    pub ignored: Vec<IgnoredFile>,
    /// Files beside a pool and named after it that the target wrote with system calls: a journal, for instance. They are
    /// not recorded.
    pub companions: Vec<PathBuf>,
    /// The instructions that appended records, by how they are reached.
    pub sites: TacticCounts,
    /// How many events came from sites that trap at each execution.
    pub trap_events: u64,
    /// How many records of the runtime were never committed: their threads were killed.
    pub uncommitted_records: u64,
    /// How many recorded stores were removed, because their thread was killed before it made them.
    pub unperformed_stores: u64,
    /// Stored bytes whose address lies in no known mapping of a pool.
    pub unmapped_bytes: u64,
    /// The time from start to end of the target.
    pub wall_time: Duration,
    /// Processor time of the target and those of its children that it waited for.
    pub cpu_time: Duration,
    /// Length of the trace.
    pub trace_bytes: u64,
    /// How many operations the scheduler of the target counted, if there was one: those made while there were
    /// several threads.
    pub schedule_steps: u64,
    /// How often the scheduler timed out on a thread: the order may not be reproducible then.
    pub schedule_lapses: u64,
    /// The Valgrind client requests of the target.
    pub client_requests: ClientRequests,
    /// What the recording may lack, in sentences.
    pub warnings: Vec<String>,
    /// Why the runtime ended a process of the target, in sentences.
    pub fatal: Vec<String>,
    /// Which processes were not recorded and may have changed a pool, and why, in sentences.
    pub unrecorded: Vec<String>,
    /// Which programs were not recorded, but had no way to a pool, in sentences.
    pub notes: Vec<String>,
    /// How many records of each kind the trace has, by the number of the kind.
    pub counts: [u64; RecordKind::ALL.len()],
}

impl RecordingSummary {
    /// How many records of a kind the trace has.
    pub const fn events_of(&self, kind: RecordKind) -> u64 {
        self.counts[kind as usize]
    }

    /// How many records the trace has.
    pub fn events(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// The Valgrind client requests of a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientRequests {
    /// Those that powerfail understands.
    pub understood: u64,
    /// Those of other tools than pmemcheck, which are not about persistence.
    pub of_other_tools: u64,
    /// Those that are unknown.
    pub unknown: u64,
    /// The number of the first unknown one; 0 without one.
    pub first_unknown: u64,
}

impl ClientRequests {
    /// How many there were.
    pub const fn total(&self) -> u64 {
        self.understood + self.of_other_tools + self.unknown
    }
}

/// How a target ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetStatus {
    /// With an exit code.
    Exited(i32),
    /// By a signal.
    Killed(i32),
}

impl Default for TargetStatus {
    fn default() -> Self {
        Self::Exited(0)
    }
}

impl fmt::Display for TargetStatus {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(formatter, "exit code {code}"),
            Self::Killed(signal) => write!(formatter, "signal {signal}"),
        }
    }
}

/// A file that was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSummary {
    /// As the target named it.
    pub path: PathBuf,
    /// Its length when it was first mapped.
    pub initial_len_bytes: u64,
    /// Its length at the end.
    pub final_len_bytes: u64,
}

/// A tree whose files were recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeSummary {
    /// Its root.
    pub path: PathBuf,
    /// How many names it has at the end, without its root.
    pub names: u64,
}

/// A file that was mapped and not recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IgnoredFile {
    /// As the target named it.
    pub path: PathBuf,
    /// Why.
    pub reason: IgnoreReason,
}

/// Why a file was not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IgnoreReason {
    /// It is not among the selected pools.
    NotSelected,
    /// It is among the files that are not pools.
    Excluded,
    /// It holds nothing that a program reads again after a power failure.
    NoData(NoData),
    /// It has no name, so it would not survive a power failure.
    Nameless,
    /// It is neither a regular file nor a DAX device.
    NotPersistent,
    /// It could not be read.
    Unreadable,
}

/// A file that programs map shared and writable, and begin anew when they start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoData {
    /// The counters of a Java virtual machine.
    JavaCounters,
    /// The index of the write-ahead log of `SQLite`.
    SqliteSharedMemory,
    /// The table of readers of LMDB.
    LmdbLock,
    /// A region of the environment of Berkeley DB.
    BerkeleyRegion,
    /// A named semaphore of the C library.
    Semaphore,
    /// Dynamic shared memory of `PostgreSQL`.
    PostgresMemory,
}

/// How many sites there are of each tactic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TacticCounts([u64; 5]);

impl TacticCounts {
    /// Of one tactic.
    pub const fn of(&self, tactic: SiteTactic) -> u64 {
        self.0[tactic as usize]
    }

    /// Of all.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Counts one more site of a tactic.
    pub const fn add(&mut self, tactic: SiteTactic) {
        self.0[tactic as usize] += 1;
    }

    /// Counts one site of a tactic less.
    pub const fn remove(&mut self, tactic: SiteTactic) {
        self.0[tactic as usize] -= 1;
    }
}
