//! What is kept of the executions of a walk: leaves of the tree of choices, and those in which the power can fail again.

use std::sync::Arc;

use powerfail_oracle::{Choice, LazyExecution, Logged, StageModules, Verdict};

use super::observations::{ObservedCrash, walk_tree};
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
    /// The modules that the addresses of its log are in, if they are not those of the last exploration.
    pub(crate) modules: Option<Arc<[StageModules]>>,
}

impl LoggedExecution {
    fn of(execution: &mut LazyExecution) -> Self {
        Self {
            classes: classes_of(execution),
            choices: execution.choices.clone(),
            log: std::mem::take(&mut execution.log),
            modules: execution.modules.clone(),
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
    /// The choices of those that made several, if they are kept.
    pub(crate) observed: Vec<Vec<Choice>>,
}

/// What is kept of executions, and how they are judged.
pub(crate) struct LeavesTask<'a> {
    pub(crate) walk: WalkTask<'a>,
    /// The crash, where one tree serves many of them.
    pub(crate) tree: Option<ObservedCrash<'a>>,
    pub(crate) judge: &'a dyn Fn(&Verdict) -> Option<Symptom>,
    /// Whether choices are kept.
    pub(crate) keeps_choices: bool,
}

/// Walks the executions of a task and judges them.
pub(crate) fn walk_leaves(
    by: &mut dyn Explorer,
    task: &LeavesTask<'_>,
) -> Result<Leaves, CheckError> {
    let mut kept = Kept::default();
    let mut summary = None;
    if let Some(crash) = &task.tree {
        summary = walk_tree(by, task.walk, crash, &mut |it| {
            kept.add(task, it);
            Ok(())
        })?;
    }
    let summary = match summary {
        Some(summary) => summary,
        None => {
            kept = Kept::default();
            walk_executions(by, task.walk, &mut |it| {
                kept.add(task, it);
                Ok(())
            })?
        }
    };
    let Kept {
        mut all,
        successes,
        observed,
    } = kept;
    all.sort_by(|one, other| one.classes.cmp(&other.classes));
    Ok(Leaves {
        summary,
        all,
        successes,
        observed,
    })
}

#[derive(Default)]
struct Kept {
    all: Vec<Leaf>,
    successes: Vec<LoggedExecution>,
    observed: Vec<Vec<Choice>>,
}

impl Kept {
    fn add(&mut self, task: &LeavesTask<'_>, mut execution: LazyExecution) {
        if task.keeps_choices && execution.choices.len() > 1 {
            self.observed.push(execution.choices.clone());
        }
        let symptom = (task.judge)(&execution.verdict);
        if symptom.is_none() && task.walk.log {
            self.successes.push(LoggedExecution::of(&mut execution));
        }
        self.all.push(Leaf {
            classes: classes_of(&execution),
            failed: symptom.map(|symptom| (symptom, execution)),
        });
    }
}
