//! What a trial of a program proposes: the content of a first `powerfail.toml`.

use std::time::Duration;

use crate::NotChecked;

/// What was seen of a program, and how it can be checked.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// The program and its arguments, as the user gave them.
    pub given: Vec<String>,
    /// The same, with `{pool}` or `{dir}` in place of its data, where that works.
    pub command: Vec<String>,
    /// Directories whose files are recorded, if `command` names its data itself.
    pub trees: Vec<String>,
    /// Files that the program maps.
    pub mapped: Vec<String>,
    /// Files that the program writes with system calls.
    pub written: Vec<String>,
    /// Records in the trace.
    pub events: u64,
    /// The persistence domain, if the program maps its data.
    pub domain: Option<ProposedDomain>,
    /// The command that recovers; `None` is the workload again.
    pub recover: Option<String>,
    /// What it did in the trial.
    pub recovery: RecoveryTrial,
    /// How long one recovery takes, about.
    pub recovery_time: Duration,
    /// Failure points in the trace.
    pub failure_points: u64,
    /// How long a check may take.
    pub budget: Duration,
    /// Bugs that the trial has found already.
    pub bugs: u64,
    /// Orders of threads to try; `None` if the program has one thread.
    pub schedules: Option<u64>,
    /// What the trial cannot see, a sentence each.
    pub unseen: Vec<String>,
}

/// A domain, and what it was concluded from.
#[derive(Clone, Debug)]
pub struct ProposedDomain {
    /// Its name.
    pub name: &'static str,
    /// Why it was chosen.
    pub reason: String,
}

/// What recovery did without a crash.
#[derive(Clone, Debug)]
pub enum RecoveryTrial {
    /// It succeeds, and it can fail.
    Succeeds,
    /// It succeeds, but a check would show nothing.
    ShowsNothing(NotChecked),
    /// It fails; the sentence says how.
    Fails(String),
}
