//! What the oracle says about a crash image.

use std::fmt;
use std::sync::Arc;

use powerfail_finding::RecoveryOutcome;
use powerfail_symbol::{Resolved, Symbolizer};
use powerfail_trace::{Frame, Module};

/// One of the commands of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Recovery, or the server.
    Recovery,
    /// The server's client.
    Client,
    /// What stops the server.
    Stop,
    /// The checker.
    Checker,
    /// The dump.
    Dump,
}

impl Stage {
    const ALL: [Self; 5] = [
        Self::Recovery,
        Self::Client,
        Self::Stop,
        Self::Checker,
        Self::Dump,
    ];

    /// As it is called in outcomes.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Recovery => "recovery",
            Self::Client => "client",
            Self::Stop => "stop",
            Self::Checker => "checker",
            Self::Dump => "dump",
        }
    }

    pub(crate) const fn number(self) -> u64 {
        self as u64
    }

    pub(crate) fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.number() == number)
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What became of a crash image.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// All commands succeeded.
    Success {
        /// What the dump printed, if there is one.
        dump: Option<Vec<u8>>,
    },
    /// One of them failed; those after it did not run.
    Failure(Box<Failure>),
}

/// A recovery that failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// The command that failed.
    pub stage: Stage,
    /// How.
    pub outcome: RecoveryOutcome,
    /// Where it hung. Where it crashed is found by [`Slot::backtrace_of_crash`](crate::Slot::backtrace_of_crash).
    pub backtrace: Option<Backtrace>,
}

/// Where the threads of a process were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backtrace {
    /// The modules that frames lie in.
    pub modules: Vec<Module>,
    /// The thread that matters comes first: the one that crashed; of a hang one that was running, or
    /// else the first.
    pub threads: Vec<ThreadStack>,
}

/// The call stack of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadStack {
    /// The thread's name.
    pub name: String,
    /// Innermost first. The first address is that of an instruction, the others those to which calls
    /// return.
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
