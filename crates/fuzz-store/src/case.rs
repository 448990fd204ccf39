//! The basic types of a campaign: test cases, edges of the image tree, findings.

use std::fmt;
use std::io;
use std::path::PathBuf;

use powerfail_finding::Finding;
use powerfail_image::{DirectoryContents, ImageId};
use serde::{Deserialize, Serialize};

/// What the target is executed with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TestCase {
    /// The image that the pool is before the execution.
    pub image: ImageId,
    /// The input.
    pub input: Vec<u8>,
}

/// How one image was made from another: an edge of the tree.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Edge {
    /// The input of the run.
    pub input: Vec<u8>,
    /// Where the power failed: the index of an event in the trace of the run. `None` if it ran to its end.
    pub failure_point: Option<u64>,
}

/// Runs the target on an image again, to rebuild another image.
pub trait Rebuild {
    /// The image that an edge leads to.
    ///
    /// # Errors
    /// The target cannot be run.
    fn run(&mut self, from: &DirectoryContents, edge: &Edge) -> io::Result<DirectoryContents>;
}

/// How promising a test case is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// It reaches nothing new.
    Low,
    /// It reaches a location more or less often than any other test case.
    Medium,
    /// It reaches a location that no other test case reaches.
    High,
}

/// The number of a test case in the queue, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CaseNumber(pub u64);

impl fmt::Display for CaseNumber {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:06}", self.0)
    }
}

/// A finding and the directory of its evidence.
#[derive(Clone, Debug)]
pub struct StoredFinding {
    /// The finding.
    pub finding: Finding,
    /// Its directory, which `powerfail replay` can read.
    pub directory: PathBuf,
}
