//! The power fails again while recovery runs, and again while the next one does.
//!
//! Each execution that was logged has failure points of its own. What a crash leaves there is explored as
//! that of the recorded run, on an image with what recovery had written on top. Failure points that
//! several executions have in common, and crashes that leave the same, are explored once.

use std::collections::{BTreeMap, HashSet};

use powerfail_explore::lazy::nested::{
    CrashPoint, Execution as Interrupted, NestedPoint, Overlay, RecoveryEvent, failure_points,
};
use powerfail_explore::lazy::{Observed, Seen, TableLimits};
use powerfail_image::Patch;
use powerfail_model::{CrashState, Place, PoolOffset, ThreadIndex};
use powerfail_oracle::{Choice, Execution, Logged, Stage};

use super::lab::{Lab, Pools};
use super::study::{
    Again, At, Failure, Key, Leaf, Load, RecoveryStore, Setting, Studied, decisive_choices, limit,
    loads,
};
use super::walk::{Extent, Task, classes_of, walk};
use crate::error::CheckError;
use crate::symptom::Symptom;

/// How many stores of recovery a failure names.
const STORES_NAMED: usize = 3;

/// An execution that succeeded, with what it did.
pub(crate) struct LoggedExecution {
    pub(crate) classes: Vec<u32>,
    pub(crate) choices: Vec<Choice>,
    pub(crate) log: Vec<Logged>,
}

impl LoggedExecution {
    pub(crate) fn of(execution: &mut Execution) -> Self {
        Self {
            classes: classes_of(execution),
            choices: execution.choices.clone(),
            log: std::mem::take(&mut execution.log),
        }
    }
}

/// What all failures during recovery at one failure point share.
pub(crate) struct Nest<'s, 'c> {
    pub(crate) setting: &'s Setting<'c>,
    pub(crate) studied: &'s mut Studied,
    pub(crate) pools: Pools,
    /// Crashes that were explored.
    pub(crate) known: HashSet<u128>,
    /// Executions, of all depths.
    pub(crate) executions: u64,
    /// Whether all was tried.
    pub(crate) is_cut: bool,
}

impl Nest<'_, '_> {
    /// Lets the power fail in executions after a crash, for the `failures`th time.
    pub(crate) fn explore(
        &mut self,
        lab: &mut dyn Lab,
        crash: &CrashPoint,
        mut executions: Vec<LoggedExecution>,
        failures: u32,
    ) -> Result<(), CheckError> {
        executions.sort_by(|one, other| one.classes.cmp(&other.classes));
        let mut keys = HashSet::new();
        for execution in &executions {
            let choices: Vec<Observed> = execution.choices.iter().map(Observed::from).collect();
            let log = self.events(&execution.log);
            let interrupted = Interrupted {
                crash,
                choices: &choices,
                log: &log,
            };
            let rules = lab.rules();
            let image = |at: Place, out: &mut [u8]| lab.read(at, out);
            let points = failure_points(
                rules,
                &interrupted,
                &image,
                TableLimits::default(),
                &mut |key| !keys.insert(key),
            );
            // Choices that contradict the table: the runtime has said so already.
            let Ok(points) = points else { continue };
            for point in points {
                if self.is_cut {
                    return Ok(());
                }
                if self.known.insert(point.crash.digest()) {
                    self.study(lab, &execution.log, &point, failures)?;
                }
            }
        }
        Ok(())
    }

    fn events<'l>(&self, log: &'l [Logged]) -> Vec<RecoveryEvent<'l>> {
        let events = log.iter().filter_map(|logged| {
            let at = Place::new(self.pools.index(logged.pool)?, PoolOffset(logged.offset));
            Some(RecoveryEvent::logged(
                logged.kind,
                at,
                &logged.bytes,
                logged.len,
                ThreadIndex(logged.thread),
                logged.choices as usize,
            ))
        });
        events.collect()
    }

    /// Explores one crash.
    fn study(
        &mut self,
        lab: &mut dyn Lab,
        log: &[Logged],
        point: &NestedPoint,
        failures: u32,
    ) -> Result<(), CheckError> {
        let crash = &point.crash;
        let mut lines = self.pools.line_table(&crash.table);
        if let Some(reads) = &self.studied.reads {
            let watched = reads.watched.iter();
            lines.watched = watched.filter_map(|page| self.pools.mask(page)).collect();
        }
        let (most, _) = limit(self.setting);
        let goes_on = failures < self.setting.depth;
        let task = Task {
            table: &lines,
            fork: self.setting.fork,
            log: goes_on,
            limit: most.saturating_sub(self.executions),
            deadline: self.setting.deadline.map(|(deadline, _)| deadline),
        };
        if task.limit == 0 {
            self.is_cut = true;
            return Ok(());
        }
        let (at, contents) = (self.studied.at, self.setting.contents);
        let mut leaves: Vec<Leaf> = Vec::new();
        let mut successes = Vec::new();
        let overlay = patches(&crash.overlay, crash.table.line_bytes);
        let mut explorer = At {
            lab: &mut *lab,
            overlay: &overlay,
        };
        let walked = walk(&mut explorer, task, &mut |mut execution| {
            let symptom = contents.judge(at, &execution.verdict);
            if symptom.is_none() && goes_on {
                successes.push(LoggedExecution::of(&mut execution));
            }
            leaves.push(Leaf {
                classes: classes_of(&execution),
                failed: symptom.map(|symptom| (symptom, execution)),
            });
            Ok(())
        })?;
        self.studied.second_failures += 1;
        self.studied.executions += walked.executions;
        self.studied.choices += walked.choices;
        self.executions += walked.executions;
        if let Some(reads) = &mut self.studied.reads {
            let read = walked.read.iter();
            reads
                .read
                .extend(read.filter_map(|mask| self.pools.page(mask)));
        }
        // Sampling a crash of a crash would say little: what cannot be explored is left.
        self.is_cut |= walked.extent == Extent::Cut;
        if let Extent::Refused { .. } = walked.extent {
            return Ok(());
        }
        self.confirm(lab, log, point, leaves, failures)?;
        if goes_on {
            self.explore(lab, crash, successes, failures + 1)?;
        }
        Ok(())
    }

    /// Keeps one execution of each kind that fails, if it does without exploration.
    fn confirm(
        &mut self,
        lab: &mut dyn Lab,
        log: &[Logged],
        point: &NestedPoint,
        mut leaves: Vec<Leaf>,
        failures: u32,
    ) -> Result<(), CheckError> {
        leaves.sort_by(|one, other| one.classes.cmp(&other.classes));
        let decisive = decisive_choices(&leaves);
        let mut groups: BTreeMap<Key, Vec<(Symptom, Execution, Option<usize>)>> = BTreeMap::new();
        for (leaf, decisive) in leaves.into_iter().zip(decisive) {
            if let Some((symptom, execution)) = leaf.failed {
                let key = Key {
                    code: symptom.code,
                    load: decisive.map_or(0, |it| execution.choices[it].frames[0]),
                    store: None,
                    failures,
                };
                let group = groups.entry(key).or_default();
                group.push((symptom, execution, decisive));
            }
        }
        for (key, members) in groups {
            let count = members.len() as u64;
            let same =
                |known: &&mut Failure| known.key.code == key.code && known.key.load == key.load;
            if let Some(known) = self.studied.failures.iter_mut().find(same) {
                // It takes no second failure, or it was seen after another one.
                known.count += count;
                continue;
            }
            let Some((symptom, execution, decisive)) = members.into_iter().next() else {
                continue;
            };
            let Ok(seen) = Seen::of_choices(&point.crash.table, &execution.choices) else {
                self.studied.unconfirmed += count;
                continue;
            };
            let concrete = point.crash.concrete(&seen);
            let overlay = patches(&concrete, point.crash.table.line_bytes);
            let nothing_lost = CrashState::default();
            let mut loads = loads(lab, &point.crash.table, &execution, decisive);
            name_sources(lab, log, point, &mut loads);
            let verdict = lab.run(&nothing_lost, &overlay)?;
            let again = self.setting.contents.judge(self.studied.at, &verdict);
            let Some(again) = again.filter(|again| again.code == symptom.code) else {
                self.studied.unconfirmed += count;
                continue;
            };
            self.studied.failures.push(Failure {
                at: self.studied.at,
                state: nothing_lost,
                again: Some(Again {
                    failures,
                    events: point.position as u64,
                    overlay,
                    lost: lost(lab, log, point, &seen),
                }),
                stores: Vec::new(),
                symptom: again,
                loads,
                key,
                count,
            });
        }
        Ok(())
    }
}

/// What the trace calls stores are those of recovery here: says which of them a load could have read from.
fn name_sources(lab: &mut dyn Lab, log: &[Logged], point: &NestedPoint, loads: &mut [Load]) {
    let table = &point.crash.table;
    for load in loads {
        let place = table.lines.iter().position(|line| line.id == load.line);
        let Some(place) = place else { continue };
        let (line, origins) = (&table.lines[place], &point.crash.origins[place]);
        for source in &mut load.sources {
            source.stores.clear();
            let content = line
                .contents
                .iter()
                .find(|content| content.bytes[load.from..load.to] == source.bytes[..]);
            let survived = content.map_or(0, |content| origins.of(content.newest_version()).stores);
            let event = survived
                .checked_sub(1)
                .and_then(|last| line.stores.get(last));
            source.by_recovery = event.and_then(|event| store_of(lab, log, event.0));
        }
    }
}

/// A store of recovery, by its place in the log.
fn store_of(lab: &mut dyn Lab, log: &[Logged], event: u64) -> Option<RecoveryStore> {
    let logged = log.get(usize::try_from(event).ok()?)?;
    Some(RecoveryStore {
        stack: lab.stack(Stage::Recovery, &[logged.site])?,
        offset: logged.offset,
        len_bytes: logged.len,
    })
}

/// The stores of recovery that a crash state lacks; if it has all of them, the one that did not happen any
/// more.
fn lost(
    lab: &mut dyn Lab,
    log: &[Logged],
    point: &NestedPoint,
    seen: &Seen<'_>,
) -> Vec<RecoveryStore> {
    let (_, survived) = point.crash.explain(seen);
    let mut events: Vec<usize> = Vec::new();
    for (id, stores) in &survived.versions {
        let lines = &point.crash.table.lines;
        let line = lines.iter().find(|line| line.id == *id);
        let event = line.and_then(|line| line.stores.get(*stores));
        events.extend(event.and_then(|event| usize::try_from(event.0).ok()));
    }
    events.sort_unstable();
    events.dedup();
    if events.is_empty() {
        let later = log.iter().enumerate().skip(point.position);
        let next = later
            .map(|(number, _)| number)
            .find(|number| !log[*number].bytes.is_empty());
        events.extend(next);
    }
    let named = events.into_iter().take(STORES_NAMED);
    named
        .filter_map(|event| store_of(lab, log, event as u64))
        .collect()
}

fn patches(overlay: &Overlay, line_bytes: usize) -> Vec<Patch> {
    let lines = overlay.lines().map(|(id, bytes)| Patch {
        pool: id.pool,
        offset: id.line.0 * line_bytes as u64,
        bytes: bytes.to_vec(),
    });
    lines.collect()
}
