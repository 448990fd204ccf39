//! What is kept of the executions of a walk: leaves of the tree of choices, and those in which the power can fail again.

use powerfail_oracle::{Choice, LazyExecution, Logged, Verdict};

use super::walk::{Explorer, WalkSummary, WalkTask, classes_of, walk_executions};
use crate::error::CheckError;
use crate::symptom::Symptom;

/// An execution, reduced to what is needed after the walk: a leaf of the tree of choices.
pub(crate) struct Leaf {
    pub(crate) classes: Vec<u32>,
    pub(crate) failed: Option<(Symptom, LazyExecution)>,
}

/// An execution that succeeded, with what it did.
pub(crate) struct LoggedExecution {
    pub(crate) classes: Vec<u32>,
    pub(crate) choices: Vec<Choice>,
    pub(crate) log: Vec<Logged>,
}

impl LoggedExecution {
    fn of(execution: &mut LazyExecution) -> Self {
        Self {
            classes: classes_of(execution),
            choices: execution.choices.clone(),
            log: std::mem::take(&mut execution.log),
        }
    }
}

/// The executions of a walk.
pub(crate) struct Leaves {
    pub(crate) summary: WalkSummary,
    /// In the order of their choices.
    pub(crate) all: Vec<Leaf>,
    /// Those that succeeded, if the walk logs what they do.
    pub(crate) successes: Vec<LoggedExecution>,
}

/// Walks the executions of a task and judges them. `look` sees each of them once.
pub(crate) fn walk_leaves(
    by: &mut dyn Explorer,
    task: WalkTask<'_>,
    judge: &dyn Fn(&Verdict) -> Option<Symptom>,
    look: &mut dyn FnMut(&LazyExecution),
) -> Result<Leaves, CheckError> {
    let mut all = Vec::new();
    let mut successes = Vec::new();
    let summary = walk_executions(by, task, &mut |mut execution| {
        look(&execution);
        let symptom = judge(&execution.verdict);
        if symptom.is_none() && task.log {
            successes.push(LoggedExecution::of(&mut execution));
        }
        all.push(Leaf {
            classes: classes_of(&execution),
            failed: symptom.map(|symptom| (symptom, execution)),
        });
        Ok(())
    })?;
    all.sort_by(|one, other| one.classes.cmp(&other.classes));
    Ok(Leaves {
        summary,
        all,
        successes,
    })
}
