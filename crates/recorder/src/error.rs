//! The errors of a recording, one sentence each.

use std::fmt;
use std::io;
use std::path::PathBuf;

use powerfail_model::PoolOffset;
use powerfail_trace::TraceError;
use powerfail_trace::recording::RecordingSummary;
use powerfail_trace::tree_replay::TreeDifference;

/// Why a recording failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// This target, or this machine, is not supported.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The command is empty.
    #[error("there is no command to record")]
    EmptyCommand,
    /// The program does not exist.
    #[error("{} was not found; check the name and PATH", program.display())]
    NotFound {
        /// Its name or path.
        program: PathBuf,
    },
    /// The program exists but may not be executed.
    #[error("{} is not executable; check its permissions", program.display())]
    NotExecutable {
        /// The file.
        program: PathBuf,
    },
    /// A pattern of pools is wrong.
    #[error(
        "'{}' is not a pattern of paths: {reason}; a backslash makes the next character ordinary",
        pattern.display()
    )]
    Pattern {
        /// The pattern.
        pattern: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A directory that is to be recorded cannot be read.
    #[error("cannot read the directory {}", path.display())]
    Tree {
        /// As it was given.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A directory that was recorded is not there any more.
    #[error(
        "the workload has removed or renamed {}, the directory whose files are recorded; name the one above it with --tree",
        path.display()
    )]
    TreeGone {
        /// As it was recorded.
        path: PathBuf,
    },
    /// The operating system refused something.
    #[error("cannot {action}")]
    System {
        /// What was tried; completes "cannot ...".
        action: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The address space is limited.
    #[error(
        "the address space is limited to {} KiB (ulimit -v), but a recorded program needs {} TiB of addresses; remove the \
         limit with `ulimit -v unlimited`",
        limit_bytes >> 10,
        needed_bytes >> 40
    )]
    AddressSpace {
        /// The limit.
        limit_bytes: u64,
        /// What is needed.
        needed_bytes: u64,
    },
    /// The trace cannot be written or read back.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The target ran, but the runtime in it never connected.
    #[error("the runtime did not start in the target, which ended with {status}")]
    RuntimeSilent {
        /// How the target ended.
        status: powerfail_trace::recording::TargetStatus,
    },
    /// An interruption came when the target had ended and its trace was being completed or checked.
    #[error("interrupted; the trace is not complete, or not checked")]
    Interrupted,
    /// The runtime and this crate were built from different sources.
    #[error(
        "the runtime has protocol version {found}, but this powerfail expects {supported}; build both together"
    )]
    ProtocolVersion {
        /// The version of the runtime.
        found: u64,
        /// The version of this crate.
        supported: u32,
    },
    /// Replaying the trace does not give the final pools: events are missing or wrong.
    #[error(transparent)]
    SelfCheck(Box<SelfCheckFailure>),
    /// Replaying the trace does not give the final trees: operations are missing or wrong.
    #[error(transparent)]
    TreeCheck(Box<TreeCheckFailure>),
}

impl RecordError {
    pub(crate) fn system(action: &'static str, source: impl Into<io::Error>) -> Self {
        Self::System {
            action,
            source: source.into(),
        }
    }
}

/// A trace that does not give the final pool when it is replayed.
#[derive(Debug)]
pub struct SelfCheckFailure {
    /// The file of the pool.
    pub path: PathBuf,
    /// Its length according to the trace.
    pub replayed_len_bytes: u64,
    /// Its actual length.
    pub actual_len_bytes: u64,
    /// Where the contents first differ; `None` if only the lengths differ, or the order.
    pub first_difference: Option<FirstDifference>,
    /// Where the order of stores is first wrong, if that is what failed: replaying the trace gives the final pool.
    pub wrong_order: Option<WrongOrder>,
    /// The summary of the recording. The trace exists.
    pub summary: RecordingSummary,
}

/// A trace that does not give the final tree when it is replayed.
#[derive(Debug)]
pub struct TreeCheckFailure {
    /// The root of the tree.
    pub path: PathBuf,
    /// What is different.
    pub difference: TreeDifference,
    /// The summary of the recording. The trace exists.
    pub summary: RecordingSummary,
}

impl fmt::Display for TreeCheckFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "the recording of the files in {} is incomplete: {}; --tree none records mapped pools only",
            self.path.display(),
            self.difference
        )
    }
}

impl std::error::Error for TreeCheckFailure {}

/// A byte that differs from the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstDifference {
    /// Its offset.
    pub offset: PoolOffset,
    /// Its value according to the trace.
    pub replayed: u8,
    /// Its actual value.
    pub actual: u8,
    /// How many bytes differ in total.
    pub count: u64,
}

/// A byte that a store found otherwise than the stores before it in the trace have left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongOrder {
    /// Its offset.
    pub offset: PoolOffset,
    /// What the stores before have left there, according to the trace.
    pub replayed: u8,
    /// What the store found.
    pub found: u8,
    /// How many bytes were found otherwise in total.
    pub count: u64,
}

impl fmt::Display for SelfCheckFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(wrong) = self.wrong_order {
            return write!(
                formatter,
                "the recording of {} has stores in the wrong order: byte {} is {:#04x} in the trace when a store found {:#04x} \
                 there ({} bytes in total)",
                self.path.display(),
                wrong.offset,
                wrong.replayed,
                wrong.found,
                wrong.count
            );
        }
        write!(
            formatter,
            "the recording of {} is incomplete: ",
            self.path.display()
        )?;
        if self.replayed_len_bytes != self.actual_len_bytes {
            write!(
                formatter,
                "it has {} bytes in the trace, but the file has {}; ",
                self.replayed_len_bytes, self.actual_len_bytes
            )?;
        }
        match self.first_difference {
            Some(first) => write!(
                formatter,
                "byte {} is {:#04x} in the trace, but {:#04x} in the file ({} bytes differ in total)",
                first.offset, first.replayed, first.actual, first.count
            ),
            None => write!(formatter, "the bytes that both have are equal"),
        }
    }
}

impl std::error::Error for SelfCheckFailure {}

/// A target or machine that cannot be recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsupported {
    /// A statically linked program loads no libraries, so the runtime cannot be preloaded.
    #[error("{} is statically linked; link it dynamically to record it", program.display())]
    Static {
        /// The file.
        program: PathBuf,
    },
    /// Without the C library, Go makes threads and their storage with system calls of its own.
    #[error(
        "{} is a Go program without C code, which loads no libraries; build it with CGO_ENABLED=1 and add `import \"C\"` \
         to one of its files",
        program.display()
    )]
    Go {
        /// The file.
        program: PathBuf,
    },
    /// The program would be recorded under QEMU, which is not there.
    #[error(
        "{} would be recorded under QEMU, and there is no qemu-x86_64; install the package qemu-user (it is not in \
         qemu-user-static), or link the program dynamically",
        program.display()
    )]
    NoQemu {
        /// The file.
        program: PathBuf,
    },
    /// The recorder under QEMU lacks something that was asked for.
    #[error("{} would be recorded under QEMU, where {option} is not available; link it dynamically for that", program.display())]
    Emulated {
        /// The file.
        program: PathBuf,
        /// What was asked for.
        option: &'static str,
    },
    /// QEMU executes programs, not scripts.
    #[error("{} is no ELF program, and QEMU executes no other; give the program itself", program.display())]
    EmulatedScript {
        /// The file.
        program: PathBuf,
    },
    /// The loader ignores preloads for programs with these bits.
    #[error("{} is setuid or setgid; record a copy without these bits", program.display())]
    SetId {
        /// The file.
        program: PathBuf,
    },
    /// The loader ignores preloads for programs with capabilities.
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
    /// A script whose interpreter is a script, and so on.
    #[error("{} has too many nested interpreters; give the program itself", program.display())]
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
