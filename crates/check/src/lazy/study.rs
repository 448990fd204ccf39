//! One failure point: all of its executions, judged, and those that fail confirmed on a crash state.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use powerfail_explore::lazy::nested::CrashPoint;
use powerfail_explore::lazy::{CrashTable, Observed, PageLines, Seen};
use powerfail_finding::Code;
use powerfail_image::Patch;
use powerfail_model::{CrashState, EventIndex, LineId};
use powerfail_oracle::{Backtrace, Verdict};
use powerfail_trace::StackId;

use super::lab::{Lab, Pools};
use super::nested::{LoggedExecution, Nest};
use super::reuse::{Known, Reads};
use super::robustness::{Contradiction, contradiction};
use super::sample::sample;
use super::walk::{Attempt, Explorer, Extent, Task, classes_of, common_len, walk};
use crate::content::Contents;
use crate::error::CheckError;
use crate::symptom::Symptom;
use powerfail_oracle::{Choice, Execution, ExploreRequest};

/// Of executions that fail in the same way, how many are tried to be confirmed.
const CONFIRM_MAX: usize = 3;

/// What is the same for all failure points.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    pub(crate) contents: &'a Contents,
    pub(crate) fork: bool,
    /// How often the power fails, at most.
    pub(crate) depth: u32,
    /// Executions at one failure point.
    pub(crate) limit: Option<u64>,
    /// Crash states that are tried where not all can be explored.
    pub(crate) sample: usize,
    /// Look for executions that no moment of the run explains.
    pub(crate) robustness: bool,
    pub(crate) seed: u64,
    /// When to stop, and how long one execution takes, about.
    pub(crate) deadline: Option<(Instant, Duration)>,
}

/// How thoroughly a failure point was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Thoroughness {
    Exhaustive,
    Sampled { reason: Reason },
}

/// Why a failure point was only sampled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// Recovery can observe more than was allowed to be tried.
    TooMany,
    /// Time was up.
    Time,
    /// Recovery does what cannot be explored.
    Refused(String),
    /// Executions failed that do not fail without exploration: what they would have shown is not known.
    Unconfirmed,
}

/// What was learned at a failure point.
#[derive(Clone, Debug)]
pub(crate) struct Studied {
    pub(crate) at: EventIndex,
    pub(crate) stack: StackId,
    pub(crate) thoroughness: Thoroughness,
    pub(crate) executions: u64,
    pub(crate) choices: u64,
    pub(crate) log10_states: f64,
    pub(crate) failures: Vec<Failure>,
    /// Executions that fail, and whose crash states do not.
    pub(crate) unconfirmed: u64,
    pub(crate) second_failures: u64,
    /// Stores that contradict each other, and in how many executions.
    pub(crate) contradictions: BTreeMap<Contradiction, u64>,
    /// What was read; nothing if that is not known of all executions.
    pub(crate) reads: Option<Reads>,
    pub(crate) warnings: Vec<String>,
}

impl Known for Studied {
    fn at(&self) -> EventIndex {
        self.at
    }

    fn executions(&self) -> u64 {
        self.executions
    }

    fn reads(&self) -> Option<&Reads> {
        self.reads.as_ref()
    }
}

/// A kind of failure at a failure point, confirmed on a crash state.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) at: EventIndex,
    /// Lines that do not have their newest content; none if the newest content fails.
    pub(crate) state: CrashState,
    /// What a recovery had written when the power failed again.
    pub(crate) again: Option<Again>,
    /// The stores to each of these lines that are not surely durable.
    pub(crate) stores: Vec<(LineId, Vec<EventIndex>)>,
    pub(crate) symptom: Symptom,
    pub(crate) loads: Vec<Load>,
    pub(crate) key: Key,
    /// How many executions fail in this way.
    pub(crate) count: u64,
}

/// A power failure during recovery.
#[derive(Clone, Debug)]
pub(crate) struct Again {
    pub(crate) failures: u32,
    pub(crate) events: u64,
    pub(crate) overlay: Vec<Patch>,
    /// Stores of the recovery that was interrupted, and that were lost.
    pub(crate) lost: Vec<RecoveryStore>,
}

/// A store of recovery.
#[derive(Clone, Debug)]
pub(crate) struct RecoveryStore {
    pub(crate) stack: Backtrace,
    pub(crate) offset: u64,
    pub(crate) len_bytes: u64,
}

/// What makes failures the same before anything is known about their reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) code: Code,
    /// The load that decides.
    pub(crate) load: u64,
    /// The store that it misses, or reads although it should not have survived.
    pub(crate) store: Option<StackId>,
    pub(crate) failures: u32,
}

/// A load that could observe several values.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) stack: Option<Backtrace>,
    /// Place of the line, and of the bytes in it.
    pub(crate) line: LineId,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) sources: Vec<LoadSource>,
    pub(crate) taken: usize,
    pub(crate) decisive: bool,
}

/// One of the values.
#[derive(Clone, Debug)]
pub(crate) struct LoadSource {
    /// The stores to the line that have reached memory then, beyond what was sure; oldest first.
    pub(crate) stores: Vec<EventIndex>,
    /// After a failure during recovery: its newest store to the line that has reached memory then.
    pub(crate) by_recovery: Option<RecoveryStore>,
    pub(crate) bytes: Vec<u8>,
}

/// Puts the image of a failure point under the executions.
pub(crate) struct At<'l, 'o> {
    pub(crate) lab: &'l mut dyn Lab,
    pub(crate) overlay: &'o [Patch],
}

impl Explorer for At<'_, '_> {
    fn explore(&mut self, request: &ExploreRequest<'_>) -> Result<Attempt, CheckError> {
        self.lab.explore(self.overlay, request)
    }
}

/// An execution, as far as it matters afterwards.
pub(crate) struct Leaf {
    pub(crate) classes: Vec<u32>,
    pub(crate) failed: Option<(Symptom, Execution)>,
}

/// Studies a failure point. `watched` are lines of which the read set must be known.
pub(crate) fn study(
    lab: &mut dyn Lab,
    at: EventIndex,
    stack: StackId,
    watched: Vec<PageLines>,
    setting: &Setting<'_>,
) -> Result<Studied, CheckError> {
    lab.move_to(at)?;
    let table = lab.crash_table();
    let pools = lab.pools();
    let mut lines = pools.line_table(&table);
    lines.watched = watched.iter().filter_map(|page| pools.mask(page)).collect();
    let (limit, is_short) = limit(setting);
    let task = Task {
        table: &lines,
        fork: setting.fork,
        log: setting.depth > 1,
        limit,
        deadline: setting.deadline.map(|(deadline, _)| deadline),
    };
    let mut leaves: Vec<Leaf> = Vec::new();
    let mut successes: Vec<LoggedExecution> = Vec::new();
    let mut observed: Vec<Vec<Choice>> = Vec::new();
    let mut explorer = At {
        lab: &mut *lab,
        overlay: &[],
    };
    let walked = walk(&mut explorer, task, &mut |mut execution| {
        let symptom = setting.contents.judge(at, &execution.verdict);
        if setting.robustness && execution.choices.len() > 1 {
            observed.push(execution.choices.clone());
        }
        if symptom.is_none() && setting.depth > 1 {
            successes.push(LoggedExecution::of(&mut execution));
        }
        leaves.push(Leaf {
            classes: classes_of(&execution),
            failed: symptom.map(|symptom| (symptom, execution)),
        });
        Ok(())
    })?;
    leaves.sort_by(|one, other| one.classes.cmp(&other.classes));
    let mut studied = Studied {
        at,
        stack,
        thoroughness: Thoroughness::Exhaustive,
        executions: walked.executions,
        choices: walked.choices,
        log10_states: table.log10_states,
        failures: Vec::new(),
        unconfirmed: 0,
        second_failures: 0,
        contradictions: contradictions(lab, &table, at, &observed),
        reads: Some(Reads {
            watched,
            read: walked
                .read
                .iter()
                .filter_map(|mask| pools.page(mask))
                .collect(),
        }),
        warnings: walked.warnings,
    };
    confirm(lab, &table, leaves, setting, &mut studied)?;
    let reason = match walked.extent {
        Extent::Exhaustive if table.truncated.is_empty() => None,
        Extent::Cut if is_short => Some(Reason::Time),
        Extent::Exhaustive | Extent::Cut => Some(Reason::TooMany),
        Extent::Refused { reason } => Some(Reason::Refused(reason)),
    };
    let is_cut = nested(lab, &table, pools, successes, setting, &mut studied)?;
    if let Some(reason) = reason {
        let is_all = sampled(lab, &table, setting, &mut studied)?;
        studied.reads = None;
        if !is_all {
            studied.thoroughness = Thoroughness::Sampled { reason };
        }
    } else if is_cut {
        studied.reads = None;
        studied.thoroughness = Thoroughness::Sampled {
            reason: Reason::TooMany,
        };
    }
    if studied.unconfirmed > 0 {
        studied.reads = None;
        if studied.thoroughness == Thoroughness::Exhaustive {
            let reason = Reason::Unconfirmed;
            studied.thoroughness = Thoroughness::Sampled { reason };
        }
    }
    Ok(studied)
}

/// Lets the power fail again in executions that succeeded. Whether something was left out.
fn nested(
    lab: &mut dyn Lab,
    table: &CrashTable,
    pools: Pools,
    successes: Vec<LoggedExecution>,
    setting: &Setting<'_>,
    studied: &mut Studied,
) -> Result<bool, CheckError> {
    if successes.is_empty() {
        return Ok(false);
    }
    let mut nest = Nest {
        setting,
        studied,
        pools,
        known: HashSet::new(),
        executions: 0,
        is_cut: false,
    };
    let first = CrashPoint::first(table.clone());
    nest.explore(lab, &first, successes, 2)?;
    Ok(nest.is_cut)
}

/// The stores that contradict each other in executions that no moment of the run explains.
fn contradictions(
    lab: &dyn Lab,
    table: &CrashTable,
    at: EventIndex,
    executions: &[Vec<Choice>],
) -> BTreeMap<Contradiction, u64> {
    let mut found = BTreeMap::new();
    for choices in executions {
        let Ok(seen) = Seen::of_choices(table, choices) else {
            continue;
        };
        let Some(lines) = lab.read_lines(&seen, at) else {
            break;
        };
        if let Some(contradiction) = contradiction(&lines) {
            *found.entry(contradiction).or_default() += 1;
        }
    }
    found
}

/// How many executions there may be, and whether time is why there are not more.
pub(crate) fn limit(setting: &Setting<'_>) -> (u64, bool) {
    let limit = setting.limit.unwrap_or(u64::MAX);
    let Some((deadline, each)) = setting.deadline else {
        return (limit, false);
    };
    let left = deadline.saturating_duration_since(Instant::now());
    let within = left.as_nanos() / each.as_nanos().max(1);
    let within = u64::try_from(within).unwrap_or(u64::MAX).max(1);
    (limit.min(within), within < limit)
}

/// Groups executions that fail, and confirms each group.
fn confirm(
    lab: &mut dyn Lab,
    table: &CrashTable,
    leaves: Vec<Leaf>,
    setting: &Setting<'_>,
    studied: &mut Studied,
) -> Result<(), CheckError> {
    let decisive = decisive_choices(&leaves);
    let mut newest: Option<Code> = None;
    let mut groups: BTreeMap<Key, Vec<Failing>> = BTreeMap::new();
    // That with the newest content is the first of all.
    for (leaf, decisive) in leaves.into_iter().zip(decisive) {
        let Some((symptom, execution)) = leaf.failed else {
            continue;
        };
        if newest == Some(symptom.code) {
            // Nothing needs to be lost for it.
            continue;
        }
        let key = key(lab, table, &symptom, &execution, decisive)?;
        let code = symptom.code;
        let failing = (symptom, execution, decisive);
        if leaf.classes.iter().all(|class| *class == 0) {
            // Only if that is so without exploration, too, it says anything about the others.
            if confirm_group(lab, table, key, vec![failing], setting, studied)? {
                newest = Some(code);
            }
        } else {
            groups.entry(key).or_default().push(failing);
        }
    }
    for (key, members) in groups {
        confirm_group(lab, table, key, members, setting, studied)?;
    }
    studied
        .failures
        .sort_by(|one, other| one.key.cmp(&other.key));
    Ok(())
}

/// An execution that fails, and the choice that decides.
type Failing = (Symptom, Execution, Option<usize>);

/// Tries to see executions that fail in the same way fail without exploration. Whether one did.
fn confirm_group(
    lab: &mut dyn Lab,
    table: &CrashTable,
    key: Key,
    members: Vec<Failing>,
    setting: &Setting<'_>,
    studied: &mut Studied,
) -> Result<bool, CheckError> {
    let count = members.len() as u64;
    for (symptom, execution, decisive) in members.into_iter().take(CONFIRM_MAX) {
        let Ok(seen) = Seen::of_choices(table, &execution.choices) else {
            continue;
        };
        let state = seen.newest_state();
        let verdict = lab.run(&state, &[])?;
        let again = setting.contents.judge(studied.at, &verdict);
        let Some(again) = again.filter(|again| again.code == symptom.code) else {
            continue;
        };
        studied.failures.push(Failure {
            at: studied.at,
            stores: stores(table, &state),
            state,
            again: None,
            symptom: again,
            loads: loads(lab, table, &execution, decisive),
            key,
            count,
        });
        return Ok(true);
    }
    studied.unconfirmed += count;
    Ok(false)
}

/// For each execution that fails, the last choice at which another value leads to success; nothing where
/// there is none. The executions are in the order of their choices.
pub(crate) fn decisive_choices(leaves: &[Leaf]) -> Vec<Option<usize>> {
    let mut common = vec![None; leaves.len()];
    // The success that shares most with an execution is one of its neighbours in the order.
    let mut pass = |order: &mut dyn Iterator<Item = usize>| {
        let mut success: Option<usize> = None;
        for number in order {
            let leaf = &leaves[number];
            if leaf.failed.is_none() {
                success = Some(number);
            } else if let Some(success) = success {
                let shared = common_len(&leaf.classes, &leaves[success].classes);
                common[number] = common[number].max(Some(shared));
            }
        }
    };
    pass(&mut (0..leaves.len()));
    pass(&mut (0..leaves.len()).rev());
    let within = |(leaf, common): (&Leaf, Option<usize>)| {
        common.filter(|common| *common < leaf.classes.len())
    };
    leaves.iter().zip(common).map(within).collect()
}

fn key(
    lab: &mut dyn Lab,
    table: &CrashTable,
    symptom: &Symptom,
    execution: &Execution,
    decisive: Option<usize>,
) -> Result<Key, CheckError> {
    let choice = decisive.map(|decisive| &execution.choices[decisive]);
    let store = match choice.and_then(|choice| store_of(table, choice)) {
        Some(event) => Some(lab.stack_of(event)?),
        None => None,
    };
    Ok(Key {
        code: symptom.code,
        load: choice.map_or(0, |choice| choice.frames[0]),
        store,
        failures: 1,
    })
}

/// The store that a choice is about: the first that is lost, or the newest if nothing is.
fn store_of(table: &CrashTable, choice: &Choice) -> Option<EventIndex> {
    let line = table.lines.get(choice.line as usize)?;
    let content = line.contents.get(choice.content as usize)?;
    let stores = &line.stores;
    stores
        .get(content.newest_version())
        .or(stores.last())
        .copied()
}

/// The stores to the lines of a state that are not surely durable.
fn stores(table: &CrashTable, state: &CrashState) -> Vec<(LineId, Vec<EventIndex>)> {
    let lines = state.versions.iter().filter_map(|(id, _)| {
        let place = table.lines.binary_search_by_key(id, |line| line.id).ok()?;
        Some((*id, table.lines[place].stores.clone()))
    });
    lines.collect()
}

/// The choices of an execution, in words of the trace.
pub(crate) fn loads(
    lab: &mut dyn Lab,
    table: &CrashTable,
    execution: &Execution,
    decisive: Option<usize>,
) -> Vec<Load> {
    let mut seen = Seen::nothing(table);
    let mut loads = Vec::new();
    for (number, choice) in execution.choices.iter().enumerate() {
        let Some(line) = table.lines.get(choice.line as usize) else {
            break;
        };
        let observed = Observed::from(choice);
        let (from, to) = (usize::from(choice.from), usize::from(choice.to));
        let mut sources: Vec<(Vec<u8>, LoadSource)> = Vec::new();
        let mut taken = 0;
        for possible in seen.possible(choice.line as usize) {
            let content = &line.contents[possible];
            let told: Vec<u8> = observed.bytes.iter().map(|at| content.bytes[at]).collect();
            let known = sources.iter().position(|(known, _)| *known == told);
            let place = known.unwrap_or_else(|| {
                let newest = content.newest_version().min(line.stores.len());
                let source = LoadSource {
                    stores: line.stores[..newest].to_vec(),
                    by_recovery: None,
                    bytes: content.bytes.get(from..to).unwrap_or_default().to_vec(),
                };
                sources.push((told, source));
                sources.len() - 1
            });
            if possible == choice.content as usize {
                taken = place;
            }
        }
        let stage = execution.stage_of(number);
        let frames: Vec<u64> = choice
            .frames
            .iter()
            .copied()
            .take_while(|it| *it != 0)
            .collect();
        loads.push(Load {
            stack: lab.stack(stage, &frames),
            line: line.id,
            from,
            to,
            sources: sources.into_iter().map(|(_, source)| source).collect(),
            taken,
            decisive: decisive == Some(number),
        });
        if seen.observe(&observed).is_err() {
            break;
        }
    }
    loads
}

/// Tries crash states one by one. Whether these were all.
fn sampled(
    lab: &mut dyn Lab,
    table: &CrashTable,
    setting: &Setting<'_>,
    studied: &mut Studied,
) -> Result<bool, CheckError> {
    let (states, is_all) = sample(table, studied.at, setting.sample, setting.seed);
    let mut newest: Option<Code> = None;
    for state in states {
        if setting
            .deadline
            .is_some_and(|(deadline, _)| Instant::now() > deadline)
        {
            return Ok(false);
        }
        let verdict: Verdict = lab.run(&state, &[])?;
        studied.executions += 1;
        let Some(symptom) = setting.contents.judge(studied.at, &verdict) else {
            continue;
        };
        if state.versions.is_empty() {
            newest = Some(symptom.code);
        } else if newest == Some(symptom.code) {
            continue;
        }
        let key = Key {
            code: symptom.code,
            load: 0,
            store: None,
            failures: 1,
        };
        let known = studied.failures.iter_mut().find(|known| {
            known.key.code == key.code
                && known.state.versions.is_empty() == state.versions.is_empty()
        });
        match known {
            Some(known) => {
                known.count += 1;
                // The fewer lines are lost, the better it explains.
                if known.loads.is_empty() && state.versions.len() < known.state.versions.len() {
                    known.stores = stores(table, &state);
                    known.state = state;
                    known.symptom = symptom;
                }
            }
            None => studied.failures.push(Failure {
                at: studied.at,
                stores: stores(table, &state),
                state,
                again: None,
                symptom,
                loads: Vec::new(),
                key,
                count: 1,
            }),
        }
    }
    Ok(is_all)
}
