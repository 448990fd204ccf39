//! Power failures during recovery, and during the recovery after that.
//!
//! Each logged execution has failure points of its own. What a crash leaves there is explored like that of the
//! recorded run, on an image with what recovery had written on top. Failure points that several executions share, and
//! crashes that leave the same content, are explored once.

use std::collections::{BTreeMap, HashSet};

use powerfail_explore::lazy::nested::{
    CrashPoint, InterruptedRecovery, NestedPoint, NestedPointKey, Overlay, RecoveryEvent,
    failure_points,
};
use powerfail_explore::lazy::{Observed, Seen, TableLimits};
use powerfail_finding::Code;
use powerfail_image::Patch;
use powerfail_model::{CrashState, LineId, LineIndex, Place, PoolOffset, Rules, ThreadIndex};
use powerfail_oracle::{LazyExecution, Logged, Stage, Verdict};

use super::confirm::{decisive_choices, loads, stores};
use super::executor::{LazyExecutor, Pools};
use super::failure::{FailureKey, LazyFailure, Load, RecoveryCrash, RecoveryStore};
use super::interruptions::InterruptedExecution;
use super::leaves::{Leaf, LeavesTask, LoggedExecution, walk_leaves};
use super::observations::ObservedCrash;
use super::point::{OverlaidExecutor, PointResult, PointSettings, limit};
use super::turns::SECOND_FACTOR;
use super::walk::{Extent, WalkTask};
use crate::error::CheckError;
use crate::symptom::Symptom;

/// How many stores of recovery a failure names.
const STORES_NAMED: usize = 3;

/// Explores the failures during recovery at one failure point.
pub(crate) struct NestedExploration<'s, 'c> {
    pub(crate) settings: &'s PointSettings<'c>,
    pub(crate) result: &'s mut PointResult,
    pub(crate) pools: Pools,
    /// Digests of the crashes that were explored.
    pub(crate) explored: HashSet<u128>,
    /// Executions, of all depths.
    pub(crate) executions: u64,
    /// A limit was reached: something was left out.
    pub(crate) is_cut: bool,
}

impl NestedExploration<'_, '_> {
    /// Lets the power fail in executions after a crash, for the `failures`th time.
    pub(crate) fn explore(
        &mut self,
        executor: &mut dyn LazyExecutor,
        crash: &CrashPoint,
        mut executions: Vec<LoggedExecution>,
        failures: u32,
    ) -> Result<(), CheckError> {
        executions.sort_by(|one, other| one.classes.cmp(&other.classes));
        let mut keys = HashSet::new();
        for execution in &executions {
            let image = |at: Place, out: &mut [u8]| executor.read(at, out);
            let rules = executor.rules();
            let points = points_in(rules, &image, crash, &self.pools, execution, &mut keys);
            for point in points {
                self.explore_point(executor, crash, execution, &point, failures)?;
                if self.is_cut {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Lets the power fail a second time where that was chosen.
    pub(crate) fn explore_chosen(
        &mut self,
        executor: &mut dyn LazyExecutor,
        crash: &CrashPoint,
        executions: &[InterruptedExecution],
    ) -> Result<(), CheckError> {
        for InterruptedExecution { execution, points } in executions {
            for point in points {
                self.explore_point(executor, crash, execution, point, 2)?;
                if self.is_cut {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn explore_point(
        &mut self,
        executor: &mut dyn LazyExecutor,
        crash: &CrashPoint,
        execution: &LoggedExecution,
        point: &NestedPoint,
        failures: u32,
    ) -> Result<(), CheckError> {
        if self.is_cut || self.is_settled() {
            self.is_cut = true;
            return Ok(());
        }
        if self.explored.insert(point.crash.digest()) {
            let interrupted = Interrupted {
                crash,
                execution,
                point,
            };
            self.explore_crash(executor, &interrupted, failures)?;
        }
        Ok(())
    }

    /// Whether a failure is known that takes a second power failure: more of them would say the same.
    fn is_settled(&self) -> bool {
        let mut failures = self.result.failures.iter();
        self.settings.limit.is_some() && failures.any(|failure| failure.recovery_crash.is_some())
    }

    /// Explores one crash.
    fn explore_crash(
        &mut self,
        executor: &mut dyn LazyExecutor,
        interrupted: &Interrupted<'_>,
        failures: u32,
    ) -> Result<(), CheckError> {
        let crash = &interrupted.point.crash;
        let mut lines = self.pools.line_table(&crash.table);
        if let Some(reads) = &self.result.reads {
            let watched = reads.watched.iter();
            lines.watched = watched.filter_map(|page| self.pools.mask(page)).collect();
        }
        let (mut most, _) = limit(self.settings);
        if self.settings.judged.is_some() {
            most = most.saturating_mul(SECOND_FACTOR);
        }
        let is_deeper = failures < self.settings.depth;
        let walk = WalkTask {
            table: &lines,
            fork: self.settings.fork,
            log: is_deeper,
            limit: most.saturating_sub(self.executions),
            deadline: self.settings.deadline.map(|(deadline, _)| deadline),
        };
        if walk.limit == 0 {
            self.is_cut = true;
            return Ok(());
        }
        let (at, contents) = (self.result.at, self.settings.contents);
        let overlay = patches(&crash.overlay, crash.table.line_bytes);
        let judge = |verdict: &Verdict| contents.judge(at, verdict);
        let tree = self.settings.tree(at, walk.log);
        let newest = |id: LineId| {
            let line_bytes = crash.table.line_bytes;
            let mut bytes = vec![0; line_bytes];
            let offset = PoolOffset(id.line.0 * line_bytes as u64);
            executor.read(Place::new(id.pool, offset), &mut bytes);
            bytes
        };
        let task = LeavesTask {
            walk,
            tree: tree.map(|tree| ObservedCrash::of(tree, crash, &self.pools, &newest)),
            judge: &judge,
            keeps_choices: false,
        };
        let mut explorer = OverlaidExecutor {
            executor: &mut *executor,
            overlay: &overlay,
        };
        let leaves = walk_leaves(&mut explorer, &task)?;
        let walk = leaves.summary;
        self.result.second_failures += 1;
        self.result.count(&walk);
        self.result.choices += walk.choices;
        self.executions += walk.executions;
        if let Some(reads) = &mut self.result.reads {
            let read = walk.read.iter();
            reads
                .read
                .extend(read.filter_map(|mask| self.pools.page(mask)));
        }
        // Sampling a crash of a crash would say little: what cannot be explored is left.
        self.is_cut |= walk.extent == Extent::Cut;
        if let Extent::Refused { .. } = walk.extent {
            return Ok(());
        }
        self.confirm(executor, interrupted, leaves.all, failures)?;
        if is_deeper {
            self.explore(executor, crash, leaves.successes, failures + 1)?;
        }
        Ok(())
    }

    /// Keeps one execution of each kind that fails, if it does without exploration.
    fn confirm(
        &mut self,
        executor: &mut dyn LazyExecutor,
        interrupted: &Interrupted<'_>,
        leaves: Vec<Leaf>,
        failures: u32,
    ) -> Result<(), CheckError> {
        let point = interrupted.point;
        let decisive = decisive_choices(&leaves);
        let mut groups: BTreeMap<FailureKey, Vec<(Symptom, LazyExecution, Option<usize>)>> =
            BTreeMap::new();
        for (leaf, decisive) in leaves.into_iter().zip(decisive) {
            if let Some((symptom, execution)) = leaf.failed {
                let key = FailureKey {
                    code: symptom.code,
                    number: symptom.number(),
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
            let what = |key: &FailureKey| (key.code, key.number, key.load);
            let same = |known: &&mut LazyFailure| what(&known.key) == what(&key);
            let judged = self.settings.judged;
            let judged = judged.and_then(|judged| judged.get(&self.result.at));
            if judged.is_some_and(|keys| {
                keys.iter()
                    .any(|known| known.code == key.code && known.load == key.load)
            }) {
                // It takes no second failure.
                continue;
            }
            if let Some(known) = self.result.failures.iter_mut().find(same) {
                // It takes no second failure, or it was seen after another one.
                known.count += count;
                continue;
            }
            let Some((symptom, execution, decisive)) = members.into_iter().next() else {
                continue;
            };
            let Ok(seen) = Seen::of_choices(&point.crash.table, &execution.choices) else {
                self.result.unconfirmed += count;
                continue;
            };
            let left = interrupted.left(&seen);
            if let Some(confirmed) = self.fails_alone(executor, &left, symptom.code)? {
                // It takes no second failure.
                self.result.failures.push(LazyFailure {
                    at: self.result.at,
                    stores: stores(&interrupted.crash.table, &left.state),
                    state: left.state,
                    recovery_crash: None,
                    symptom: confirmed,
                    loads: Vec::new(),
                    key: FailureKey { failures: 1, ..key },
                    count,
                });
                continue;
            }
            let mut loads = loads(executor, &point.crash.table, &execution, decisive);
            if let Some(modules) = &interrupted.execution.modules {
                executor.use_modules(modules);
            }
            let log = &interrupted.execution.log;
            name_sources(executor, log, point, &mut loads);
            let verdict = executor.run(&left.state, &left.overlay)?;
            let confirmed = self.settings.contents.judge(self.result.at, &verdict);
            let Some(confirmed) = confirmed.filter(|it| it.code == symptom.code) else {
                self.result.unconfirmed += count;
                continue;
            };
            let mut lost = lost(executor, log, point, &seen);
            if lost.is_empty() && left.state.versions.is_empty() {
                // Nothing is lost: what recovery has not stored yet is missing.
                lost = next_store(executor, log, point).into_iter().collect();
            }
            self.result.failures.push(LazyFailure {
                at: self.result.at,
                stores: stores(&interrupted.crash.table, &left.state),
                state: left.state,
                recovery_crash: Some(RecoveryCrash {
                    failures,
                    events: point.position as u64,
                    overlay: left.overlay,
                    lost,
                }),
                symptom: confirmed,
                loads,
                key,
                count,
            });
        }
        Ok(())
    }

    /// What recovery does if the first failure loses the same lines and no second one follows, if that fails in the same
    /// way. The interrupted recovery succeeds on another crash state, from which this one differs in what is read only later.
    fn fails_alone(
        &self,
        executor: &mut dyn LazyExecutor,
        left: &Left,
        code: Code,
    ) -> Result<Option<Symptom>, CheckError> {
        let verdict = executor.run(&left.state, &[])?;
        let symptom = self.settings.contents.judge(self.result.at, &verdict);
        Ok(symptom.filter(|it| it.code == code))
    }
}

/// The moments of an execution at which a crash leaves something that `keys` does not know yet.
pub(super) fn points_in(
    rules: Rules,
    image: &dyn Fn(Place, &mut [u8]),
    crash: &CrashPoint,
    pools: &Pools,
    execution: &LoggedExecution,
    keys: &mut HashSet<NestedPointKey>,
) -> Vec<NestedPoint> {
    let choices: Vec<Observed> = execution.choices.iter().map(Observed::from).collect();
    let log = events(pools, &execution.log);
    let interrupted = InterruptedRecovery {
        crash,
        choices: &choices,
        log: &log,
    };
    let limits = TableLimits::default();
    let is_known = &mut |key| !keys.insert(key);
    // Choices that contradict the table: the runtime has said so already.
    failure_points(rules, &interrupted, image, limits, is_known).unwrap_or_default()
}

/// Where the power can fail a second time in executions after one crash.
pub(crate) fn interruptions(
    executor: &dyn LazyExecutor,
    crash: &CrashPoint,
    pools: &Pools,
    mut executions: Vec<LoggedExecution>,
) -> Vec<InterruptedExecution> {
    executions.sort_by(|one, other| one.classes.cmp(&other.classes));
    let mut keys = HashSet::new();
    let mut explored = HashSet::new();
    let image = |at: Place, out: &mut [u8]| executor.read(at, out);
    let rules = executor.rules();
    let interrupted = executions.into_iter().map(|execution| {
        let mut points = points_in(rules, &image, crash, pools, &execution, &mut keys);
        points.retain(|point| explored.insert(point.crash.digest()));
        InterruptedExecution { execution, points }
    });
    interrupted.filter(|it| !it.points.is_empty()).collect()
}

fn events<'l>(pools: &Pools, log: &'l [Logged]) -> Vec<RecoveryEvent<'l>> {
    let events = log.iter().filter_map(|logged| {
        let at = Place::new(pools.index(logged.pool)?, PoolOffset(logged.offset));
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

/// A recovery in which the power fails again.
struct Interrupted<'a> {
    /// The crash before it.
    crash: &'a CrashPoint,
    execution: &'a LoggedExecution,
    point: &'a NestedPoint,
}

/// What both failures leave.
struct Left {
    /// The lines of which the first failure has lost something.
    state: CrashState,
    /// What recovery had written over that.
    overlay: Vec<Patch>,
}

impl Interrupted<'_> {
    /// A crash state that shows the next recovery what it saw. After more than two failures, the lines that the first one
    /// has lost are not told apart from those that recoveries have written.
    fn left(&self, seen: &Seen<'_>) -> Left {
        let table = &self.crash.table;
        let concrete = self.point.crash.concrete(seen);
        let mut left = Left {
            state: CrashState::default(),
            overlay: patches(&concrete, self.point.crash.table.line_bytes),
        };
        let choices = self.execution.choices.iter().map(Observed::from);
        let Ok(before) = Seen::of(table, choices.take(self.point.choices)) else {
            return left;
        };
        if !self.crash.origins.is_empty() {
            return left;
        }
        let (known, _) = self.point.crash.explain(seen);
        let content = |place: usize| {
            let known = known.iter().find(|(line, _)| *line == place);
            known.map_or_else(|| before.newest(place), |(_, content)| *content)
        };
        let line_bytes = table.line_bytes as u64;
        left.overlay.retain(|patch| {
            let line = LineId {
                pool: patch.pool,
                line: LineIndex(patch.offset / line_bytes),
            };
            let place = table.index_of(line);
            let found = place.map(|place| &table.lines[place].contents[content(place)].bytes);
            found != Some(&patch.bytes)
        });
        left.state = before.state_with(&known);
        left
    }
}

/// Fills in which stores of recovery a load could have read from; the table numbers them by their place in the log.
fn name_sources(
    executor: &mut dyn LazyExecutor,
    log: &[Logged],
    point: &NestedPoint,
    loads: &mut [Load],
) {
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
            source.by_recovery = event.and_then(|event| store_of(executor, log, event.0));
        }
    }
}

/// A store of recovery, by its place in the log.
fn store_of(executor: &mut dyn LazyExecutor, log: &[Logged], event: u64) -> Option<RecoveryStore> {
    let logged = log.get(usize::try_from(event).ok()?)?;
    Some(RecoveryStore {
        stack: executor.stack(Stage::Recovery, &[logged.site])?,
        offset: logged.offset,
        len_bytes: logged.len,
    })
}

/// The stores of recovery that a crash state lacks.
fn lost(
    executor: &mut dyn LazyExecutor,
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
    let named = events.into_iter().take(STORES_NAMED);
    named
        .filter_map(|event| store_of(executor, log, event as u64))
        .collect()
}

/// The first store of recovery that did not happen.
fn next_store(
    executor: &mut dyn LazyExecutor,
    log: &[Logged],
    point: &NestedPoint,
) -> Option<RecoveryStore> {
    let mut later = log.iter().enumerate().skip(point.position);
    let (next, _) = later.find(|(_, logged)| !logged.bytes.is_empty())?;
    store_of(executor, log, next as u64)
}

fn patches(overlay: &Overlay, line_bytes: usize) -> Vec<Patch> {
    let lines = overlay.lines().map(|(id, bytes)| Patch {
        pool: id.pool,
        offset: id.line.0 * line_bytes as u64,
        bytes: bytes.to_vec(),
    });
    lines.collect()
}
