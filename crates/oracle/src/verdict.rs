//! The verdict of the oracle on a crash image.

use std::fmt;
use std::sync::Arc;

use powerfail_finding::RecoveryOutcome;
use powerfail_symbol::{Resolved, Symbolizer};
use powerfail_trace::{Frame, Module};
use serde::{Deserialize, Serialize};

use crate::{message, stored};

/// One of the commands of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Stage {
    /// The recovery, which may be a server.
    Recovery,
    /// The client of a server.
    Client,
    /// The command that stops a server.
    Stop,
    /// The checker.
    Checker,
    /// The dump.
    Dump,
}

impl Stage {
    /// Its name in outcomes and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Recovery => "recovery",
            Self::Client => "client",
            Self::Stop => "stop",
            Self::Checker => "checker",
            Self::Dump => "dump",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The verdict on a crash image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Verdict {
    /// All commands succeeded.
    Success {
        /// What the dump printed, if the plan has one.
        dump: Option<Vec<u8>>,
    },
    /// A command failed; those after it did not run.
    Failure(Box<Failure>),
}

/// A line that a command wrote that succeeded, though the line looks like a failure.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SuspectLine {
    /// The word that looks like a failure, in lower case.
    pub word: String,
    /// The line.
    pub line: String,
}

/// A recovery that failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// The command that failed.
    pub stage: Stage,
    /// How it failed.
    #[serde(with = "stored::outcome")]
    pub outcome: RecoveryOutcome,
    /// Where it hung. [`Slot::backtrace_of_crash`](crate::Slot::backtrace_of_crash) finds where it crashed.
    pub backtrace: Option<Backtrace>,
}

/// The call stacks of the threads of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backtrace {
    /// The modules that frames lie in.
    #[serde(with = "message::modules")]
    pub modules: Vec<Module>,
    /// The thread that matters comes first: the one that crashed; in a hang, one that was running, or else the
    /// main thread.
    pub threads: Vec<ThreadStack>,
}

/// The call stack of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadStack {
    /// The thread's name.
    pub name: String,
    /// Innermost first. The first address is that of an instruction, the others are return addresses.
    #[serde(with = "message::thread_frames")]
    pub frames: Vec<Frame>,
}

impl Backtrace {
    /// Functions and source lines of the thread that matters.
    pub fn resolve(&self) -> Vec<Arc<Resolved>> {
        let mut symbolizer = Symbolizer::new(&self.modules);
        let frames = self.threads.first().map_or(&[][..], |it| &it.frames);
        symbolizer.resolve_stack(frames.iter().copied())
    }
}
