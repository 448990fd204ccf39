//! The answers of a zygote to requests.

use std::fmt;
use std::io;
use std::path::PathBuf;

use powerfail_protocol::explore::RefusalKind;
use powerfail_trace::Module;
use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::denied::DeniedAccess;
use crate::file_use::FileUse;
use crate::hang::HangKnowledge;
use crate::lazy::StageStart;
use crate::message::{modules, path};
use crate::verdict::{Backtrace, Stage, SuspectLine};

/// Bytes that are copied in one piece; serde would take a `Vec<u8>` one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct BytesVisitor;

        impl Visitor<'_> for BytesVisitor {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
                Ok(Bytes(bytes.to_vec()))
            }
        }

        from.deserialize_bytes(BytesVisitor)
    }
}

/// An error of the operating system on its way to the oracle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SystemFailure {
    errno: Option<i32>,
    text: String,
}

impl From<&io::Error> for SystemFailure {
    fn from(error: &io::Error) -> Self {
        Self {
            errno: error.raw_os_error(),
            text: error.to_string(),
        }
    }
}

impl From<SystemFailure> for io::Error {
    fn from(failure: SystemFailure) -> Self {
        match failure.errno {
            Some(errno) => Self::from_raw_os_error(errno),
            None => Self::other(failure.text),
        }
    }
}

/// How a command failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FailureKind {
    Exited(i32),
    Signaled(i32),
    TimedOut,
    /// Its output matched this pattern.
    Matched(String),
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum RunReply {
    Success {
        dump: Option<Bytes>,
    },
    Failure {
        stage: Stage,
        kind: FailureKind,
        output: String,
        backtrace: Option<Backtrace>,
    },
    CannotStart {
        stage: Stage,
        #[serde(with = "path")]
        program: PathBuf,
        error: SystemFailure,
    },
    DumpTooLong,
    /// The zygote could not do its part.
    ZygoteFailed(SystemFailure),
    /// The process that executions are forked from ended during a run. Later runs execute the command.
    SnapshotLost {
        reason: String,
    },
}

impl RunReply {
    /// Whether the reply says something about the image.
    pub(crate) fn is_verdict(&self) -> bool {
        matches!(self, Self::Success { .. } | Self::Failure { .. })
    }
}

/// The outcome of a run, and how it was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunResult {
    pub(crate) reply: RunReply,
    /// The output of each command, except the content that a dump prints; empty unless requested.
    pub(crate) outputs: Vec<String>,
    /// Whether a command was forked from a snapshot.
    pub(crate) from_snapshot: bool,
    /// Why a command was not, if that was requested.
    pub(crate) snapshot_note: Option<String>,
    /// What it shows about hangs.
    pub(crate) shown: HangKnowledge,
    /// If it succeeded, lines that look like failures.
    pub(crate) suspects: Vec<SuspectLine>,
    /// What was denied, and how often, if it was audited.
    pub(crate) denied: Vec<(DeniedAccess, u64)>,
    /// What was read of files of trees and written to them, if that was watched.
    pub(crate) uses: Vec<FileUse>,
}

impl RunResult {
    /// A reply, and nothing else to tell.
    pub(crate) fn of(reply: RunReply) -> Self {
        Self {
            reply,
            outputs: Vec::new(),
            from_snapshot: false,
            snapshot_note: None,
            shown: HangKnowledge::default(),
            suspects: Vec::new(),
            denied: Vec::new(),
            uses: Vec::new(),
        }
    }
}

/// One lazy execution. Choices, log and notes have the form that they have in the shared file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LazyReply {
    pub(crate) reply: RunReply,
    pub(crate) choices: Bytes,
    pub(crate) log: Bytes,
    pub(crate) notes: Bytes,
    pub(crate) stages: Vec<StageStart>,
}

impl LazyReply {
    /// About as many bytes as its message has.
    pub(crate) fn len_bytes(&self) -> usize {
        const VERDICT: usize = 1 << 10;
        self.choices.0.len() + self.log.0.len() + self.notes.0.len() + VERDICT
    }
}

/// Why a recovery is not explored, and what that rules out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refusal {
    #[serde(with = "RefusalKindForm")]
    pub(crate) kind: RefusalKind,
    pub(crate) reason: String,
}

/// The serde form of [`RefusalKind`], whose crate has no dependencies.
#[derive(Serialize, Deserialize)]
#[serde(remote = "RefusalKind")]
enum RefusalKindForm {
    NotExplorable,
    NotForkable,
}

impl Refusal {
    pub(crate) fn not_explorable(reason: impl Into<String>) -> Self {
        Self {
            kind: RefusalKind::NotExplorable,
            reason: reason.into(),
        }
    }

    pub(crate) fn not_forkable(reason: impl Into<String>) -> Self {
        Self {
            kind: RefusalKind::NotForkable,
            reason: reason.into(),
        }
    }
}

/// The answers to a request to explore: executions, several to a message, then one of the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum ExploreReply {
    /// Some executions; more messages follow.
    Executions(Vec<LazyReply>),
    /// There are no more.
    Done {
        /// Whether the limit of executions was reached.
        stopped: bool,
        warnings: Vec<String>,
        /// What the executions show about hangs.
        shown: HangKnowledge,
    },
    /// The recovery cannot be explored, or not by forking.
    Refused(Refusal),
    /// There is no verdict, for a reason other than the recovery.
    NoVerdict(RunReply),
}

/// The modules that a command had loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageModules {
    /// The command.
    pub stage: Stage,
    /// Its modules.
    #[serde(with = "modules")]
    pub modules: Vec<Module>,
}
