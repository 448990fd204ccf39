//! The vocabulary of a campaign.

use std::fmt;
use std::io;

use powerfail_image::{Contents, ImageId};
use serde::{Deserialize, Serialize};

/// What a program is run on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TestCase {
    /// The image that its pool is.
    pub image: ImageId,
    /// What it is fed.
    pub input: Vec<u8>,
}

/// How one image came from another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Edge {
    /// What the program was fed.
    pub input: Vec<u8>,
    /// Where it was interrupted: the index of an event in the trace of that run. `None`: it ran to its end.
    pub failure_point: Option<u64>,
}

/// Who can run a program on an image once more.
pub trait Rebuild {
    /// What an edge leads to.
    ///
    /// # Errors
    /// The program cannot be run.
    fn run(&mut self, from: &Contents, edge: &Edge) -> io::Result<Contents>;
}

/// How much a test case promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// It reaches nothing new.
    Low,
    /// It reaches something more or less often than any other.
    Medium,
    /// It reaches a location that no other reaches.
    High,
}

/// Numbers the test cases of a queue, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CaseNumber(pub u64);

impl fmt::Display for CaseNumber {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:06}", self.0)
    }
}
