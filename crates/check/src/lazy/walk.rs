//! All executions at one failure point: one for each sequence of values that recovery can observe.
//!
//! Where the recovering process can branch by itself, one request gives the whole tree. Where it
//! cannot, an execution says which values it left, and each of them is asked for with the choices that
//! lead to it. Both give the same executions.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use super::kept::{KeptExecutions, TreeName};
use super::observations::KnownLeaf;
use crate::error::CheckError;
use powerfail_finding::RecoveryOutcome;
use powerfail_model::LineId;
use powerfail_oracle::{
    Branch, ExploreRequest, LazyExecution, LazyExecutions, LineTable, PageMask, StageModules,
    Verdict,
};
use serde::{Deserialize, Serialize};

/// How many executions a tree is tried with first.
pub(super) const FEW: [u64; 2] = [8, 64];
/// How many executions may hang, each for as long as a recovery may take, if time is short.
pub(super) const HANGS_MAX: usize = 2;

/// Runs recovery where loads from open lines are choices. The image is made new for each request.
pub(crate) trait Explorer {
    /// Explores, or says why that is not possible.
    fn explore(&mut self, request: &ExploreRequest<'_>) -> Result<Attempt, CheckError>;
    /// The newest content of a line.
    fn read(&self, id: LineId, line_bytes: usize) -> Vec<u8>;
    /// The modules of the last exploration.
    fn modules(&mut self) -> Option<Arc<[StageModules]>> {
        None
    }
    /// Executions of a tree that were kept, with the modules of each request.
    fn kept(&mut self, _tree: &TreeName) -> Result<Vec<KeptWithModules>, CheckError> {
        Ok(Vec::new())
    }
    /// Keeps executions of a tree.
    fn keep(
        &mut self,
        _tree: &TreeName,
        _executions: KeptExecutions,
        _modules: Option<Arc<[StageModules]>>,
    ) -> Result<(), CheckError> {
        Ok(())
    }
}

/// The executions of a request, and the modules that their addresses are in.
pub(crate) type KeptWithModules = (KeptExecutions, Option<Arc<[StageModules]>>);

/// What became of a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Attempt {
    Explored(LazyExecutions),
    /// The process cannot branch, and can be executed again.
    NotForkable,
    Refused {
        reason: String,
    },
}

/// What to explore, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WalkTask<'a> {
    pub(crate) table: &'a LineTable,
    /// Branch by forking where that is possible.
    pub(crate) fork: bool,
    /// Log what recovery does to the pools.
    pub(crate) log: bool,
    /// At most this many executions.
    pub(crate) limit: u64,
    /// When to stop, about.
    pub(crate) deadline: Option<Instant>,
}

/// How far it got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Everything that recovery can observe was tried.
    Exhaustive,
    /// The limit of executions was reached.
    Cut,
    /// Recovery does what cannot be explored.
    Refused { reason: String },
}

/// What walking the executions has shown.
#[derive(Clone, Debug)]
pub(crate) struct WalkSummary {
    pub(crate) extent: Extent,
    pub(crate) executions: u64,
    /// Loads that could observe several values; one that several executions share counts once.
    pub(crate) choices: u64,
    /// Lines that were read, of the pages with open or watched lines.
    pub(crate) read: Vec<PageMask>,
    pub(crate) warnings: Vec<String>,
    /// The executions in the tree of the segment, if there is one: whether recovery ran for them at this point is known
    /// when the result is accepted.
    pub(crate) known: Vec<KnownLeaf>,
}

impl WalkSummary {
    pub(super) const fn new() -> Self {
        Self {
            extent: Extent::Exhaustive,
            executions: 0,
            choices: 0,
            read: Vec::new(),
            warnings: Vec::new(),
            known: Vec::new(),
        }
    }

    /// Adds warnings of the runtime.
    pub(super) fn warn(&mut self, warnings: &[String]) {
        for warning in warnings {
            if !self.warnings.contains(warning) {
                self.warnings.push(warning.clone());
            }
        }
    }

    /// How many executions there were outside of the tree.
    pub(crate) const fn executions_alone(&self) -> u64 {
        self.executions - self.known.len() as u64
    }
}

/// Executes recovery once for each sequence of values that it can observe. `visit` sees each execution once.
pub(crate) fn walk_executions(
    by: &mut dyn Explorer,
    task: WalkTask<'_>,
    visit: &mut dyn FnMut(LazyExecution) -> Result<(), CheckError>,
) -> Result<WalkSummary, CheckError> {
    let mut walk = WalkSummary::new();
    let mut fork = task.fork;
    let mut hanging = 0;
    let mut read: BTreeMap<(u32, u64), u64> = BTreeMap::new();
    let mut pending: Vec<Vec<u32>> = vec![Vec::new()];
    let mut asked: HashSet<Vec<u32>> = HashSet::new();
    while let Some(prefix) = pending.pop() {
        let is_late = task.deadline.is_some_and(|it| Instant::now() >= it);
        if walk.executions >= task.limit || is_late && walk.executions > 0 {
            walk.extent = Extent::Cut;
            break;
        }
        let request = ExploreRequest {
            table: task.table,
            prefix: &prefix,
            branch: if fork { Branch::Fork } else { Branch::Repeat },
            watches: &[],
            observations: false,
            log: task.log,
            max_executions: task.limit - walk.executions,
        };
        let explored = match ask(by, &request, task.deadline.is_some())? {
            Attempt::Explored(explored) => explored,
            Attempt::NotForkable if fork => {
                fork = false;
                pending.push(prefix);
                continue;
            }
            Attempt::NotForkable => {
                let reason = "it can neither be forked nor executed again".to_owned();
                walk.extent = Extent::Refused { reason };
                break;
            }
            Attempt::Refused { reason } => {
                walk.extent = Extent::Refused { reason };
                break;
            }
        };
        for mask in &explored.read {
            *read.entry((mask.pool, mask.offset)).or_default() |= mask.lines;
        }
        walk.warn(&explored.warnings);
        hanging += explored.executions.iter().filter(|it| hangs(it)).count();
        let mut before: Option<Vec<u32>> = None;
        for execution in explored.executions {
            let classes = classes_of(&execution);
            walk.executions += 1;
            walk.choices += new_choices(&classes, before.as_deref(), prefix.len());
            for (number, choice) in execution.choices.iter().enumerate().skip(prefix.len()) {
                if choice.left == 0 {
                    continue;
                }
                for class in u32::from(choice.class) + 1..u32::from(choice.class_count) {
                    let mut next = classes[..number].to_vec();
                    next.push(class);
                    if asked.insert(next.clone()) {
                        pending.push(next);
                    }
                }
            }
            before = Some(classes);
            visit(execution)?;
        }
        let is_slow = task.deadline.is_some() && hanging >= HANGS_MAX && !pending.is_empty();
        if explored.stopped || is_slow {
            walk.extent = Extent::Cut;
            break;
        }
    }
    let masks = read.into_iter();
    walk.read = masks
        .map(|((pool, offset), lines)| PageMask {
            pool,
            offset,
            lines,
        })
        .collect();
    Ok(walk)
}

/// Explores. Where time is short, a tree of branches is tried with few executions first: one that hangs takes as
/// long as a recovery may take, and a tree cannot be stopped in the middle.
fn ask(
    by: &mut dyn Explorer,
    request: &ExploreRequest<'_>,
    is_urgent: bool,
) -> Result<Attempt, CheckError> {
    if is_urgent && request.branch == Branch::Fork {
        for few in FEW.into_iter().filter(|few| *few < request.max_executions) {
            let few = ExploreRequest {
                max_executions: few,
                ..*request
            };
            let attempt = by.explore(&few)?;
            let is_enough = match &attempt {
                Attempt::Explored(explored) => {
                    !explored.stopped || explored.executions.iter().any(hangs)
                }
                _ => true,
            };
            if is_enough {
                return Ok(attempt);
            }
        }
    }
    by.explore(request)
}

pub(super) fn hangs(execution: &LazyExecution) -> bool {
    let Verdict::Failure(failure) = &execution.verdict else {
        return false;
    };
    matches!(failure.outcome, RecoveryOutcome::Timeout { .. })
}

/// Which class was taken at each choice: the name of an execution.
pub(crate) fn classes_of(execution: &LazyExecution) -> Vec<u32> {
    let choices = execution.choices.iter();
    choices.map(|choice| choice.class.into()).collect()
}

/// How many of the choices of an execution were not seen before. Executions of one request come depth
/// first, so what an execution shares with the one before it is all that it shares.
pub(super) fn new_choices(classes: &[u32], before: Option<&[u32]>, prefix_len: usize) -> u64 {
    let known = match before {
        None => prefix_len,
        Some(before) => common_len(classes, before) + 1,
    };
    classes.len().saturating_sub(known) as u64
}

/// The length of the common beginning of two executions.
pub(crate) fn common_len(one: &[u32], other: &[u32]) -> usize {
    let pairs = one.iter().zip(other);
    pairs.take_while(|(one, other)| one == other).count()
}
