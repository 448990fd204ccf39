//! How promising a test case is: algorithm 2 of PMFuzz.

/// Priority of a test case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Priority {
    /// It does nothing new to persistent memory. It is kept only if its branches are new, or because
    /// nothing was tried on its image yet.
    Low,
    /// A location was passed in a number of times that falls into a new bucket.
    Medium,
    /// It reached a location that no test case had reached.
    High,
}
