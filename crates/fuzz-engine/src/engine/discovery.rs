//! What an engine has found.

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
    /// PM path locations that were reached for the first time. What crashed or hung is compared only with
    /// what crashed or hung before.
    pub new_locations: Vec<u32>,
    /// PM path locations whose counter is in a new bucket.
    pub changed_locations: Vec<u32>,
    /// How many branches are new, or are taken in a new number of times.
    pub new_branches: usize,
    /// How it ended. A test case that crashed or hung is reported, but never mutated.
    pub end: End,
    /// How long it took.
    pub elapsed: Duration,
    /// What it touched, without what is unstable.
    pub footprint: Arc<Footprint>,
    /// Hash of its PM path.
    pub path: u64,
    /// How many executions came before it.
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
            Self::Grammar => "grammar",
            Self::OtherImage => "other image",
        }
    }
}

/// A test case whose footprint is known already: one of another worker, or of the campaign that is resumed.
#[derive(Clone, Debug)]
pub struct KnownCase {
    /// The test case.
    pub case: TestCase,
    /// Its priority when it was found.
    pub priority: Priority,
    /// What it touched.
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
