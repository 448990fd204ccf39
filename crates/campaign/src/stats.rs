//! How a campaign is getting on.

use std::collections::BTreeMap;

use powerfail_finding::Class;
use serde::{Deserialize, Serialize};

/// A moment of a campaign: a line of `stats.jsonl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Since the campaign began, earlier runs of it included.
    pub time_s: f64,
    /// Executions of the target.
    pub execs: u64,
    /// The same per second, lately.
    pub execs_per_s: f64,
    /// Distinct PM paths.
    pub pm_paths: u64,
    /// Distinct transitions between PM operations.
    pub pm_locations: u64,
    /// Distinct branches, if the target was built with coverage.
    pub branches: u64,
    /// Test cases that are kept.
    pub corpus: u64,
    /// Images in the tree.
    pub images: u64,
    /// How many of them a crash left.
    pub crash_images: u64,
    /// Part of the transitions that are the same in each execution of a test case, between 0 and 1.
    pub stability: f64,
    /// When the last new test case was found.
    pub last_new_s: f64,
    /// Distinct findings.
    pub findings: u64,
    /// The same by class.
    pub findings_by_class: BTreeMap<Class, u64>,
    /// Test cases that wait for a check.
    pub checks_waiting: u64,
    /// Test cases that were checked.
    pub checks_done: u64,
    /// Executions that ended by a signal or took too long.
    pub crashes: u64,
    /// The latter.
    pub timeouts: u64,
    /// How executions are made, and why not faster: a sentence.
    pub speed: String,
}
