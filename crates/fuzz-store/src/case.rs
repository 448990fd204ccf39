//! The basic types of a campaign: test cases, and edges of the image tree.

use std::fmt;
use std::io;

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

/// Runs the target on an image again, to rebuild other images.
pub trait Rebuild {
    /// The images that one run leads to: one for each failure point, in the same order. `None` is the end of the run.
    ///
    /// # Errors
    /// The target cannot be run. [`io::ErrorKind::Interrupted`] means that the user has interrupted powerfail.
    fn run(
        &mut self,
        from: &DirectoryContents,
        input: &[u8],
        failure_points: &[Option<u64>],
    ) -> io::Result<Vec<DirectoryContents>>;
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
