//! From executions that fail to confirmed failures.
//!
//! Executions that fail in the same way are one group. A group becomes a [`LazyFailure`] only if recovery also fails on
//! a crash state that shows it the same values, in a plain run without exploration.

use std::collections::BTreeMap;

use powerfail_explore::lazy::{CrashTable, Observed, Seen};
use powerfail_finding::Code;
use powerfail_model::{CrashState, EventIndex, LineId};
use powerfail_oracle::{Choice, LazyExecution};

use super::executor::LazyExecutor;
use super::failure::{FailureKey, LazyFailure, Load, LoadSource};
use super::leaves::Leaf;
use super::point::{PointResult, PointSettings};
use super::turns::{KnownFailures, KnownKind};
use super::walk::common_len;
use crate::error::CheckError;
use crate::symptom::Symptom;

/// Of executions that fail in the same way, how many are tried to be confirmed.
const CONFIRM_MAX: usize = 3;

/// Groups executions that fail, and confirms each group.
pub(crate) fn confirm(
    executor: &mut dyn LazyExecutor,
    table: &CrashTable,
    leaves: Vec<Leaf>,
    settings: &PointSettings<'_>,
    result: &mut PointResult,
) -> Result<(), CheckError> {
    let decisive = decisive_choices(&leaves);
    let mut newest: Option<Code> = None;
    let mut groups: BTreeMap<FailureKey, Vec<Failing>> = BTreeMap::new();
    // The execution that reads the newest content everywhere comes first.
    for (leaf, decisive) in leaves.into_iter().zip(decisive) {
        let Some((symptom, execution)) = leaf.failed else {
            continue;
        };
        if newest == Some(symptom.code) {
            // Nothing needs to be lost for it.
            continue;
        }
        let key = key(executor, table, &symptom, &execution, decisive)?;
        let code = symptom.code;
        let failing = (symptom, execution, decisive);
        if leaf.classes.iter().all(|class| *class == 0) {
            // It says something about the others only if it also fails without exploration.
            if confirm_group(executor, table, key, vec![failing], settings, result)? {
                newest = Some(code);
            }
        } else {
            groups.entry(key).or_default().push(failing);
        }
    }
    for (key, members) in groups {
        let kind = key.store.map(|store| (key.code, key.number, store));
        match (kind, settings.known) {
            (Some(kind), Some(known)) if known.contains(kind) => {
                *result.repeats.entry(kind).or_default() += members.len() as u64;
            }
            _ => {
                confirm_group(executor, table, key, members, settings, result)?;
            }
        }
    }
    result
        .failures
        .sort_by(|one, other| one.key.cmp(&other.key));
    Ok(())
}

/// The kinds of the executions that fail, with their numbers, if there are such and all of them are known.
pub(crate) fn are_known(
    executor: &mut dyn LazyExecutor,
    table: &CrashTable,
    leaves: &[Leaf],
    known: &KnownFailures,
) -> Result<Option<BTreeMap<KnownKind, u64>>, CheckError> {
    let decisive = decisive_choices(leaves);
    let mut kinds = BTreeMap::new();
    for (leaf, decisive) in leaves.iter().zip(decisive) {
        let Some((symptom, execution)) = &leaf.failed else {
            continue;
        };
        let key = key(executor, table, symptom, execution, decisive)?;
        match key.store.map(|store| (key.code, key.number, store)) {
            Some(kind) if known.contains(kind) => *kinds.entry(kind).or_default() += 1,
            _ => return Ok(None),
        }
    }
    Ok(Some(kinds).filter(|kinds| !kinds.is_empty()))
}

/// An execution that fails, and the choice that decides.
type Failing = (Symptom, LazyExecution, Option<usize>);

/// Runs recovery without exploration on crash states of executions that failed in the same way. Returns whether it
/// failed again.
fn confirm_group(
    executor: &mut dyn LazyExecutor,
    table: &CrashTable,
    key: FailureKey,
    members: Vec<Failing>,
    settings: &PointSettings<'_>,
    result: &mut PointResult,
) -> Result<bool, CheckError> {
    let count = members.len() as u64;
    for (symptom, execution, decisive) in members.into_iter().take(CONFIRM_MAX) {
        let Ok(seen) = Seen::of_choices(table, &execution.choices) else {
            continue;
        };
        let state = seen.newest_state();
        let verdict = executor.run(&state, &[])?;
        let confirmed = settings.contents.judge(result.at, &verdict);
        let Some(confirmed) = confirmed.filter(|it| it.code == symptom.code) else {
            continue;
        };
        result.failures.push(LazyFailure {
            at: result.at,
            stores: stores(table, &state),
            state,
            recovery_crash: None,
            symptom: confirmed,
            loads: loads(executor, table, &execution, decisive),
            key,
            count,
        });
        return Ok(true);
    }
    result.unconfirmed += count;
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
    executor: &mut dyn LazyExecutor,
    table: &CrashTable,
    symptom: &Symptom,
    execution: &LazyExecution,
    decisive: Option<usize>,
) -> Result<FailureKey, CheckError> {
    let choice = decisive.map(|decisive| &execution.choices[decisive]);
    let store = match choice.and_then(|choice| store_of(table, choice)) {
        Some(event) => Some(executor.stack_of(event)?),
        None => None,
    };
    Ok(FailureKey {
        code: symptom.code,
        number: symptom.number(),
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
pub(crate) fn stores(table: &CrashTable, state: &CrashState) -> Vec<(LineId, Vec<EventIndex>)> {
    let lines = state.versions.iter().filter_map(|(id, _)| {
        let place = table.lines.binary_search_by_key(id, |line| line.id).ok()?;
        Some((*id, table.lines[place].stores.clone()))
    });
    lines.collect()
}

/// The choices of an execution, in terms of the trace.
pub(crate) fn loads(
    executor: &mut dyn LazyExecutor,
    table: &CrashTable,
    execution: &LazyExecution,
    decisive: Option<usize>,
) -> Vec<Load> {
    if let Some(modules) = &execution.modules {
        executor.use_modules(modules);
    }
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
            stack: executor.stack(stage, &frames),
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
