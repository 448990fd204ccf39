//! What can go wrong, one sentence each.

use std::fmt;
use std::io;
use std::path::PathBuf;

use powerfail_model::PoolOffset;
use powerfail_trace::TraceError;

use crate::summary::Summary;

/// Why a recording failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// This target cannot be recorded, however often one tries.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The command is empty.
    #[error("there is no command to record")]
    EmptyCommand,
    /// There is no such program.
    #[error("{} is not there; check the name and PATH", program.display())]
    NotFound {
        /// What was looked for.
        program: PathBuf,
    },
    /// The program is there but may not be executed.
    #[error("{} is not executable; check its permissions", program.display())]
    NotExecutable {
        /// The file.
        program: PathBuf,
    },
    /// The operating system refused something.
    #[error("cannot {what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// The trace cannot be written or read back.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The target ran, but the runtime in it never spoke.
    #[error("the runtime did not come up in the target, which ended with {status}")]
    RuntimeSilent {
        /// How the target ended.
        status: crate::summary::TargetStatus,
    },
    /// Runtime and host are of different builds.
    #[error(
        "the runtime speaks protocol version {found}, this powerfail speaks {supported}; build both together"
    )]
    ProtocolVersion {
        /// What the runtime said.
        found: u64,
        /// What this crate speaks.
        supported: u32,
    },
    /// Replaying the trace does not give the pools as they are: events are missing or wrong.
    #[error(transparent)]
    SelfCheck(Box<SelfCheckFailure>),
}

impl RecordError {
    pub(crate) fn system(what: &'static str, source: impl Into<io::Error>) -> Self {
        Self::System {
            what,
            source: source.into(),
        }
    }
}

/// The trace does not explain the pool.
#[derive(Debug)]
pub struct SelfCheckFailure {
    /// The pool's file.
    pub path: PathBuf,
    /// Its length by the trace.
    pub replayed_len_bytes: u64,
    /// Its length in fact.
    pub actual_len_bytes: u64,
    /// Where the contents first differ; `None` if only the lengths do.
    pub first_difference: Option<FirstDifference>,
    /// The rest of what there is to say about the recording. The trace is there.
    pub summary: Summary,
}

/// A byte that is not what the trace says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstDifference {
    /// Where.
    pub offset: PoolOffset,
    /// Its value by the trace.
    pub replayed: u8,
    /// Its value in fact.
    pub actual: u8,
    /// How many bytes differ in all.
    pub count: u64,
}

impl fmt::Display for SelfCheckFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "the recording of {} is incomplete: ",
            self.path.display()
        )?;
        if self.replayed_len_bytes != self.actual_len_bytes {
            write!(
                formatter,
                "replayed it has {} bytes, in fact {}; ",
                self.replayed_len_bytes, self.actual_len_bytes
            )?;
        }
        match self.first_difference {
            Some(first) => write!(
                formatter,
                "byte {} is {:#04x} when replayed and {:#04x} in fact, and {} bytes differ in all",
                first.offset, first.replayed, first.actual, first.count
            ),
            None => write!(formatter, "all bytes that both have are equal"),
        }
    }
}

impl std::error::Error for SelfCheckFailure {}

/// A target or machine that the recorder cannot work with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsupported {
    /// Nothing can be preloaded into it.
    #[error("{} is statically linked; link it dynamically to record it", program.display())]
    Static {
        /// The file.
        program: PathBuf,
    },
    /// The loader ignores preloads for such programs.
    #[error("{} is setuid or setgid; record a copy without these bits", program.display())]
    SetId {
        /// The file.
        program: PathBuf,
    },
    /// The loader ignores preloads for such programs.
    #[error("{} has file capabilities; record a copy without them", program.display())]
    Capabilities {
        /// The file.
        program: PathBuf,
    },
    /// Not 64-bit.
    #[error("{} is a 32-bit program; build it for x86-64 to record it", program.display())]
    ThirtyTwoBit {
        /// The file.
        program: PathBuf,
    },
    /// Not x86-64.
    #[error("{} is for another architecture (ELF machine {machine}); build it for x86-64 to record it", program.display())]
    Architecture {
        /// The file.
        program: PathBuf,
        /// The number in its header.
        machine: u16,
    },
    /// Neither ELF nor a script.
    #[error("{} is neither an ELF program nor a script with an interpreter line; give the program itself", program.display())]
    NotElf {
        /// The file.
        program: PathBuf,
    },
    /// Scripts that are run by scripts without end.
    #[error("{} is run by too many interpreters in a row; give the program itself", program.display())]
    InterpreterDepth {
        /// The script.
        program: PathBuf,
    },
    /// The runtime keeps its state at the GS base.
    #[error(
        "this machine does not let programs set their GS base; use a CPU with FSGSBASE and Linux 5.9 or later"
    )]
    NoFsGsBase,
}
