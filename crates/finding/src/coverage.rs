//! Where the power was let fail, and what came of it: by call stack, in the words of the sources.
//!
//! It is kept beside the report, in `coverage.json`, for pictures of a run.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::place::StackFrame;

/// The failure points of a run, by call stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// Version of this format: 1.
    pub schema: u32,
    /// Frames that occur in the stacks, each once.
    pub frames: Vec<StackFrame>,
    /// The call stacks.
    pub stacks: Vec<StackCoverage>,
}

/// What was tried at the failure points of one call stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackCoverage {
    /// The frames, innermost first: positions in [`Coverage::frames`].
    pub stack: Vec<usize>,
    /// Crashes at which every earlier store was durable.
    #[serde(default, skip_serializing_if = "Tries::is_empty")]
    pub prefix: Tries,
    /// Moments at which lost and reordered lines were explored.
    #[serde(default, skip_serializing_if = "Tries::is_empty")]
    pub lost_lines: Tries,
}

/// Failure points in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tries {
    /// How many there are.
    pub points: u64,
    /// At how many recovery was tried, or needed no trial because it would do the same as at another one.
    pub tried: u64,
    /// At how many of these only a part of what is possible was tried.
    pub sampled: u64,
    /// At how many of these recovery fails.
    pub failed: u64,
}

impl Tries {
    const fn is_empty(&self) -> bool {
        self.points == 0
    }

    /// Adds others. They may come from a file that holds any numbers.
    pub const fn add(&mut self, more: Self) {
        self.points = self.points.saturating_add(more.points);
        self.tried = self.tried.saturating_add(more.tried);
        self.sampled = self.sampled.saturating_add(more.sampled);
        self.failed = self.failed.saturating_add(more.failed);
    }
}

/// Puts call stacks together into a [`Coverage`].
#[derive(Debug, Default)]
pub struct CoverageBuilder {
    frames: Vec<StackFrame>,
    numbers: HashMap<StackFrame, usize>,
    stacks: BTreeMap<Vec<usize>, (Tries, Tries)>,
}

impl CoverageBuilder {
    /// Adds what was tried at a call stack: frames are innermost first.
    pub fn add(&mut self, stack: Vec<StackFrame>, prefix: Tries, lost_lines: Tries) {
        let numbers = stack.into_iter().map(|frame| {
            *self.numbers.entry(frame).or_insert_with_key(|frame| {
                self.frames.push(frame.clone());
                self.frames.len() - 1
            })
        });
        let known = self.stacks.entry(numbers.collect()).or_default();
        known.0.add(prefix);
        known.1.add(lost_lines);
    }

    /// Adds all of another run.
    pub fn add_all(&mut self, other: &Coverage) {
        for stack in &other.stacks {
            let frames = stack.stack.iter();
            let frames = frames.filter_map(|number| other.frames.get(*number).cloned());
            self.add(frames.collect(), stack.prefix, stack.lost_lines);
        }
    }

    /// All of them.
    pub fn finish(self) -> Coverage {
        let stacks = self.stacks.into_iter();
        let stacks = stacks.map(|(stack, (prefix, lost_lines))| StackCoverage {
            stack,
            prefix,
            lost_lines,
        });
        Coverage {
            schema: 1,
            frames: self.frames,
            stacks: stacks.collect(),
        }
    }
}

/// Source files as they were when the program was checked: `sources.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptSources {
    /// Version of this format: 1.
    pub schema: u32,
    /// Their texts, by path.
    pub files: BTreeMap<String, String>,
    /// Files that are too large, or would have made all of them too large.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::{CoverageBuilder, Tries};
    use crate::place::StackFrame;

    fn frame(function: &str) -> StackFrame {
        StackFrame {
            function: Some(function.to_owned()),
            file: None,
            line: None,
            module: None,
            offset: 0,
            trusted: false,
        }
    }

    #[test]
    fn equal_stacks_are_one() {
        let tries = |points, failed| Tries {
            points,
            tried: points,
            sampled: 0,
            failed,
        };
        let mut first = CoverageBuilder::default();
        let stack = || vec![frame("persist"), frame("main")];
        first.add(stack(), tries(3, 0), Tries::default());
        first.add(vec![frame("main")], tries(1, 1), Tries::default());
        let first = first.finish();
        let mut both = CoverageBuilder::default();
        both.add_all(&first);
        both.add(stack(), tries(2, 1), tries(5, 0));
        let both = both.finish();
        assert_eq!(both.frames.len(), 2);
        assert_eq!(both.stacks.len(), 2);
        let persist = both.stacks.iter().find(|it| it.stack.len() == 2).unwrap();
        assert_eq!(persist.prefix, tries(5, 1));
        assert_eq!(persist.lost_lines, tries(5, 0));
    }
}
