//! The requests to a zygote that is set up.

use serde::{Deserialize, Serialize};

use crate::hang::HangKnowledge;

/// What a zygote is asked to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Run the plan once.
    Run(RunOptions),
    /// Explore the crash states that the shared file describes.
    Explore(ExploreOptions),
    /// List the modules that processes had loaded when they were about to open a pool.
    Modules,
    /// Learn what other slots have seen. It has no reply.
    Learn(HangKnowledge),
}

/// How to run the plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunOptions {
    pub(crate) start: StartMode,
    /// Whether to report the output of each command, whatever its outcome.
    pub(crate) with_outputs: bool,
    pub(crate) patience: Patience,
}

/// How long a command may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Patience {
    /// As long as the plan says.
    #[default]
    Full,
    /// Only several times as long as commands that succeeded. A hang is not confirmed, so nothing may be reported of it.
    Short,
}

impl RunOptions {
    pub(crate) fn with_outputs(self) -> Self {
        Self {
            with_outputs: true,
            ..self
        }
    }
}

/// How the commands of a plan are started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StartMode {
    /// Each command is executed.
    #[default]
    Execute,
    /// Each command is executed under ptrace, to learn where it crashes.
    ExecuteTraced,
    /// Each command is executed under ptrace, to learn what it is denied.
    ExecuteAudited,
    /// Each command is executed under ptrace, to learn what it reads of files.
    ExecuteWatched,
    /// Commands are forked from snapshots where that works.
    ForkFromSnapshot,
}

/// How to explore lazily.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExploreOptions {
    /// Whether executions are forked from one snapshot and change no file.
    pub(crate) private: bool,
    /// Whether stores, flushes and fences are logged.
    pub(crate) with_log: bool,
    /// Whether reads of watched bytes and annotations are noted.
    pub(crate) with_notes: bool,
    /// The zygote stops after this many executions.
    pub(crate) max_executions: u64,
}
