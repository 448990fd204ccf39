//! New test cases that an engine has found.

use std::sync::Arc;
use std::time::Duration;

use crate::coverage::Footprint;
use crate::{End, Priority, TestCase};

/// A test case that did something new.
#[derive(Clone, Debug)]
pub struct Discovery {
    /// The test case.
    pub case: TestCase,
    /// How promising it is.
    pub priority: Priority,
    /// PM path locations that were reached for the first time. A test case that crashed or hung is compared only with others
    /// that did.
    pub new_locations: Vec<u32>,
    /// PM path locations whose counter is in a new bucket.
    pub changed_locations: Vec<u32>,
    /// The number of branches that are new or in a new bucket.
    pub new_branches: usize,
    /// How it ended. A test case that crashed or hung is reported, but never mutated.
    pub end: End,
    /// How long it took.
    pub elapsed: Duration,
    /// Its coverage, without unstable locations.
    pub footprint: Arc<Footprint>,
    /// Hash of its PM path.
    pub path: u64,
    /// The number of executions before it.
    pub execution: u64,
    /// What made it.
    pub origin: Origin,
}

/// What made a test case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// It was added from outside.
    Added,
    /// Mutators of `LibAFL`: havoc, tokens, crossover.
    Havoc,
    /// Mutators of command lines.
    Commands,
    /// What the program does with its inputs.
    Learnt,
    /// The grammar.
    Grammar,
    /// An input as it was, on another image.
    OtherImage,
}

impl Origin {
    /// Its name in statistics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Havoc => "havoc",
            Self::Commands => "commands",
            Self::Learnt => "learnt",
            Self::Grammar => "grammar",
            Self::OtherImage => "other image",
        }
    }
}

/// A test case with known coverage: of another worker, or of a resumed campaign.
#[derive(Clone, Debug)]
pub struct KnownCase {
    /// The test case.
    pub case: TestCase,
    /// Its priority when it was found.
    pub priority: Priority,
    /// Its coverage.
    pub footprint: Arc<Footprint>,
    /// How long it took.
    pub elapsed: Duration,
}

impl From<&Discovery> for KnownCase {
    fn from(discovery: &Discovery) -> Self {
        Self {
            case: discovery.case.clone(),
            priority: discovery.priority,
            footprint: Arc::clone(&discovery.footprint),
            elapsed: discovery.elapsed,
        }
    }
}
