//! What to try, and whom to tell.

use powerfail_detect::LintOptions;
use powerfail_explore::{EagerOptions, TreeOptions};
use powerfail_finding::Eager;
use regex::bytes::Regex;
use std::time::Duration;

/// What `crash` is to do.
#[derive(Clone, Debug)]
pub struct CrashOptions {
    /// Which failure points.
    pub tree: TreeOptions,
    /// How long all recoveries may take, about.
    pub budget: Option<Duration>,
    /// Whom to trust, and what survives.
    pub lint: LintOptions,
    /// What in the output of the workload acknowledges an operation.
    pub ack: Option<Regex>,
    /// Let all stores before a failure survive, at the failure points of the tree.
    pub prefix: bool,
    /// Try every combination of what may survive, or a sample of them.
    pub eager: Option<EagerOptions>,
}

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The trace is linted.
    Lint,
    /// Failure points are looked for.
    Points,
    /// Recovery is tried without a crash.
    Undisturbed,
    /// Recovery runs on crash images.
    Crashes,
    /// Failures are traced back to stores.
    Reasons,
}

/// Hears how far things are.
pub trait Observer {
    /// This many of so many are done.
    fn progress(&mut self, step: Step, done: u64, of: u64);
    /// Before recovery runs on crash images: how many will be run, of how many failure points, and how
    /// long it will take, about.
    fn plan(&mut self, runs: u64, points: u64, estimate: Duration);
    /// Before recovery runs on combinations of what may survive: how many there are, how many will be run,
    /// and how long it will take, about.
    fn combinations(&mut self, eager: &Eager, states: u64, estimate: Duration);
    /// Whether to stop.
    fn is_interrupted(&self) -> bool;
}
