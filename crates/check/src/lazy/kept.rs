//! Executions of a tree of observations, as they are kept in the file of outcomes.
//!
//! What a walk asks recovery for depends on what the tree knows by then, so an answer would not be found again by a run
//! that comes to the failure points in another order, or in which another share came first. What an execution observed,
//! and what it did then, depends on nothing else. So executions are kept under the name of their tree, and a run that
//! finds them there adds all of them before its first walk.
//!
//! Executions of one request have most reads in common: only those are written that the one before does not have.

use powerfail_explore::lazy::tree::{ReadStep, Reading};
use powerfail_model::{LineId, LineIndex, PoolIndex};
use powerfail_protocol::observe::ByteSet;
use serde::{Deserialize, Serialize};

use super::observations::{KnownExecution, ReadPlace, Step};
use crate::outcomes::KeyWriter;

/// What names the executions that are possible after a crash: the watched lines, and what is different in others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreeName {
    pub(super) watched: u128,
    pub(super) is_logged: bool,
    pub(super) root: u128,
}

impl TreeName {
    pub(super) fn write(&self, key: &mut KeyWriter) {
        key.bytes(&self.watched.to_le_bytes())
            .number(self.is_logged.into())
            .bytes(&self.root.to_le_bytes());
    }
}

/// The executions of a request.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct KeptExecutions {
    /// What the runtime warned about.
    pub(super) warnings: Vec<String>,
    executions: Vec<KeptExecution>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptExecution {
    /// How many of its reads are those of the execution before.
    common: usize,
    reads: Vec<KeptRead>,
    execution: KnownExecution,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct KeptRead {
    pool: u32,
    line: u64,
    bytes: Vec<u64>,
    is_rest: bool,
    value: Option<Box<[u8]>>,
    place: ReadPlace,
}

impl KeptRead {
    fn of(step: &Step) -> Self {
        let Reading { id, bytes, is_rest } = step.reading;
        let mut words = bytes.words().to_vec();
        while words.last() == Some(&0) {
            words.pop();
        }
        Self {
            pool: id.pool.0,
            line: id.line.0,
            bytes: words,
            is_rest,
            value: step.value.clone(),
            place: step.about.clone(),
        }
    }

    fn into_step(self) -> Step {
        let mut words = ByteSet::EMPTY.words();
        for (to, word) in words.iter_mut().zip(&self.bytes) {
            *to = *word;
        }
        let id = LineId {
            pool: PoolIndex(self.pool),
            line: LineIndex(self.line),
        };
        ReadStep {
            reading: Reading {
                id,
                bytes: ByteSet::from_words(words),
                is_rest: self.is_rest,
            },
            value: self.value,
            about: self.place,
        }
    }
}

impl KeptExecutions {
    pub(super) fn of(executions: &[(Vec<Step>, KnownExecution)], warnings: Vec<String>) -> Self {
        let mut before: &[Step] = &[];
        let kept = executions.iter().map(|(steps, known)| {
            let pairs = steps.iter().zip(before);
            let common = pairs.take_while(|(one, other)| one == other).count();
            before = steps;
            KeptExecution {
                common,
                reads: steps[common..].iter().map(KeptRead::of).collect(),
                execution: known.clone(),
            }
        });
        Self {
            warnings,
            executions: kept.collect(),
        }
    }

    /// How many executions they are.
    pub(crate) fn execution_count(self) -> usize {
        self.into_executions().len()
    }

    pub(super) fn into_executions(self) -> Vec<(Vec<Step>, KnownExecution)> {
        let mut before: Vec<Step> = Vec::new();
        let executions = self.executions.into_iter().map(|kept| {
            before.truncate(kept.common);
            before.extend(kept.reads.into_iter().map(KeptRead::into_step));
            (before.clone(), kept.execution)
        });
        executions.collect()
    }
}
