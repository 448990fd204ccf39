//! What is asked of the analysis, and what can be wrong with it.

use std::fmt;

use powerfail_lint::ranges::PoolRange;
use powerfail_model::{EventIndex, PoolIndex, PoolOffset, Rules};

/// A commit variable, and what it decides about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitVariable {
    /// Where it is. A variable is known by its first byte.
    pub at: PoolRange,
    /// The bytes whose consistency its stores decide. If there are none, and it is the only commit variable,
    /// it decides about everything else.
    pub ranges: Vec<PoolRange>,
}

/// What is asked of the analysis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShadowOptions {
    /// The parameters of the model.
    pub rules: Rules,
    /// The rule of `XFDetector` for races: a read of any byte that is not surely durable is one, even if it reads
    /// the same value in any case.
    pub strict: bool,
    /// Commit variables that are known from the beginning. Those that the trace names come on top.
    pub commit_variables: Vec<CommitVariable>,
}

/// Two commit variables decide about the same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitError(Box<Overlap>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Overlap {
    variables: [PoolRange; 2],
    bytes: PoolRange,
    mark: Option<EventIndex>,
    /// The names of the pools of the variables, and of that of the bytes.
    pools: [String; 3],
}

impl CommitError {
    pub(crate) fn new(variables: [PoolRange; 2], bytes: PoolRange) -> Self {
        Self(Box::new(Overlap {
            variables,
            bytes,
            mark: None,
            pools: Default::default(),
        }))
    }

    /// Puts the names of pools in.
    pub(crate) fn named(mut self, name: impl Fn(PoolIndex) -> String) -> Self {
        let [first, second] = self.0.variables;
        self.0.pools = [first, second, self.0.bytes].map(|range| name(range.pool));
        self
    }

    /// Says where in the trace it is.
    pub(crate) fn at(mut self, mark: EventIndex) -> Self {
        self.0.mark = Some(mark);
        self
    }

    /// The variable that had the bytes first, and the other one.
    pub fn variables(&self) -> [PoolRange; 2] {
        self.0.variables
    }

    /// The mark that names the second one, if it was one of the trace.
    pub fn mark(&self) -> Option<EventIndex> {
        self.0.mark
    }
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = self.0.variables;
        let [first_pool, second_pool, pool] = &self.0.pools;
        let bytes = self.0.bytes;
        let is_own =
            first.pool == bytes.pool && first.offset <= bytes.offset && bytes.end() <= first.end();
        write!(
            f,
            "the commit variables at {} of {first_pool} and at {} of {second_pool} {} {}..{} of {pool}, but a \
             byte can have one commit variable only",
            first.offset,
            second.offset,
            if is_own {
                "share the bytes"
            } else {
                "both decide about"
            },
            bytes.offset,
            PoolOffset(bytes.end()),
        )
    }
}

impl std::error::Error for CommitError {}
