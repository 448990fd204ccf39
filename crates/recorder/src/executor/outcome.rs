//! The results of the executor.

use std::fmt;
use std::time::Duration;

/// How an execution ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The process exited with this code.
    Exit(i32),
    /// This signal killed the process.
    Signal(i32),
    /// It timed out and was killed.
    Timeout,
}

impl fmt::Display for End {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(code) => write!(out, "exit code {code}"),
            Self::Signal(signal) => write!(out, "signal {signal}"),
            Self::Timeout => write!(out, "a timeout"),
        }
    }
}

/// The result of an execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// The number of operations on persistent memory, including those before the input.
    pub operations: u64,
    /// Whether records were lost, so that the coverage is incomplete.
    pub truncated: bool,
    /// How long it took.
    pub elapsed: Duration,
    /// Why the runtime ended it, if it did.
    pub fatal: Option<String>,
}

/// The coverage of an execution.
#[derive(Clone, Copy, Debug)]
pub struct Coverage<'a> {
    /// For each location of PM paths, how often it was reached.
    pub pm: &'a [u8],
    /// For each branch, how often it was taken. Empty if the target does not count branches.
    pub branches: &'a [u8],
}

/// The result of opening an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// Inputs can be run on it.
    Ready,
    /// The target ended before it read its input, so all inputs have the same result.
    Ended(Outcome),
}

/// How executions are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// Forked from a process that has opened its pool.
    FromTemplates,
    /// Forked from a process that is about to open its pool.
    FromRoot,
    /// As a new process.
    NewProcesses,
}

/// How executions are started, and why not in a faster way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeedReport {
    /// How they are started now.
    pub speed: Speed,
    /// Why not in a faster way.
    pub reason: Option<String>,
    /// Executions forked from templates.
    pub from_templates: u64,
    /// Executions forked from the root.
    pub from_root: u64,
    /// Executions as new processes.
    pub new_processes: u64,
    /// Templates.
    pub templates: u64,
    /// How often the target was started again.
    pub restarts: u64,
    /// Executions after which the whole directory had to be compared.
    pub compared: u64,
}
