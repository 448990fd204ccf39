//! What came of an execution.

use std::fmt;
use std::time::Duration;

/// How an execution ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// By itself, with this code.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// It took too long, and was killed.
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

/// What came of an execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// How many operations on persistent memory there were, those before the input included.
    pub operations: u64,
    /// Whether the host lost count of operations: the map is not that of the whole execution.
    pub truncated: bool,
    /// How long it took, from the order to its end.
    pub elapsed: Duration,
    /// Why it was ended, if the runtime could not go on.
    pub fatal: Option<String>,
}

/// What an execution has covered.
#[derive(Clone, Copy, Debug)]
pub struct Coverage<'a> {
    /// Locations of PM paths, each with how often it was met.
    pub pm: &'a [u8],
    /// Branches, each with how often it was taken. Empty if the target does not count them.
    pub branches: &'a [u8],
}

/// What came of opening an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// Inputs can be run on it.
    Ready,
    /// The target has ended before it touched its input, so it does the same whatever the input is.
    Ended(Outcome),
}

/// How executions are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// From a process that has opened its pool.
    FromTemplates,
    /// From a process that is about to open its pool.
    FromRoot,
    /// As a new process.
    NewProcesses,
}

/// How executions are made, and why not faster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeedReport {
    /// How they are made at present.
    pub speed: Speed,
    /// Why not faster, if so.
    pub reason: Option<String>,
    /// How many were made from templates.
    pub from_templates: u64,
    /// How many were made from the root.
    pub from_root: u64,
    /// How many were new processes.
    pub new_processes: u64,
    /// How many templates there were.
    pub templates: u64,
    /// How often the target had to be started anew.
    pub restarts: u64,
    /// After how many executions everything had to be compared to be put back.
    pub compared: u64,
}
