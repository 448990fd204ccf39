//! What recovery has observed anywhere in the run, so that a failure point costs only what no other one has shown.
//!
//! Recovery is a function of what it reads. [`Trees`] keeps one tree of observations for each [segment](Segments) of the
//! run, which all workers share, and [`walk_tree`] walks it with what is possible at a failure point: it executes
//! recovery only where the tree does not go on. Known executions are translated to the table of the point, so what
//! follows (judging, confirming, nested failures) is the same for known and for new ones.
//!
//! Which executions a point has does not depend on the tree, so it does not matter which worker was first. What counts as
//! an execution of which point is decided when results are accepted, in the order of the trace: [`Trees::accept`].
//!
//! Where recovery reads something else after the same values, its segment is explored without the tree from then on.
//!
//! A tree is a cache: if all of them become too large they are forgotten, and what counts is still the same, because an
//! execution has a name that follows from what it observed. [`kept`](super::kept) keeps executions in a file.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use powerfail_explore::lazy::nested::CrashPoint;
use powerfail_explore::lazy::tree::{
    Conflict, ObservationTree, ReadStep, Reading, Stop, TakenChoice, TreeWalk, Watching, value_read,
};
use powerfail_explore::lazy::{CrashTable, Seen, Segments};
use powerfail_model::{EventIndex, LineId, LineIndex, PoolIndex};
use powerfail_oracle::{
    Branch, Choice, ExploreRequest, LazyExecution, LazyExecutions, Logged, Note, REST_OF_LINE,
    Stage, StageModules, StageStart, Verdict, Watch,
};
use powerfail_protocol::observe::ByteSet;
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::executor::Pools;
use super::kept::{KeptExecutions, TreeName};
use super::walk::{
    Attempt, Explorer, Extent, FEW, HANGS_MAX, WalkSummary, WalkTask, classes_of, hangs,
    new_choices,
};
use crate::error::CheckError;

const UNIT_BYTES: u64 = 64;
const PAGE_BYTES: u64 = 4096;
/// A tree with more reads than this is too large: its segment is explored without it.
const NODES_MAX: usize = 1 << 20;
/// All trees together take about as many bytes, or they are forgotten.
const BYTES_MAX: usize = 256 << 20;
/// What a read takes in memory, about.
const READ_BYTES: usize = 256;

/// What is kept of a read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReadPlace {
    pub(super) frames: Box<[u64]>,
    /// The bytes of the line that were loaded.
    from: u16,
    to: u16,
    skipped: u32,
}

/// A read of an execution.
pub(super) type Step = ReadStep<ReadPlace>;

/// An execution. Counts of choices are replaced by counts of reads, because at another failure point other reads are
/// choices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct KnownExecution {
    verdict: Verdict,
    stages: Vec<(Stage, usize)>,
    log: Vec<(Logged, usize)>,
    /// The digest of what it observed.
    #[serde(skip)]
    name: u128,
    /// The modules that its addresses are in.
    #[serde(skip)]
    modules: Option<Arc<[StageModules]>>,
}

impl KnownExecution {
    /// What it takes in memory besides its reads, about.
    fn len_bytes(&self) -> usize {
        let logged = self.log.iter().map(|(it, _)| it.bytes.len());
        READ_BYTES
            + logged
                .map(|len| size_of::<(Logged, usize)>() + len)
                .sum::<usize>()
    }
}

type Tree = ObservationTree<ReadPlace, KnownExecution>;

/// The trees of a run.
#[derive(Debug)]
pub(crate) struct Trees {
    segments: Segments,
    /// The fewest points of a segment that need a tree: with nested failures, crashes of one point learn from each other.
    points_min: usize,
    /// For each segment: executions that are not logged, and those that are.
    shared: Vec<[Mutex<SharedTree>; 2]>,
    /// The digest of the watched bytes of each segment.
    names: Vec<u128>,
    /// The watches of each segment for the pools that recovery sees, as they were last asked for.
    watches: Vec<Mutex<Option<SegmentWatches>>>,
    /// What all of them take in memory, about.
    len_bytes: AtomicUsize,
}

/// The pools that recovery sees, and the watches of all watched bytes of a segment in them.
type SegmentWatches = (Vec<Option<PoolIndex>>, Arc<[Watch]>);

/// A tree that workers share.
#[derive(Debug, Default)]
struct SharedTree {
    /// Replaced when it is forgotten; a walk that has begun ends in its own.
    current: Arc<Mutex<KnownTree>>,
    /// The executions that count for a result that was accepted.
    accepted: FxHashSet<u128>,
    /// The recovery is not a function of what it reads, or reads too much.
    is_given_up: bool,
    is_contradicted: bool,
    is_not_forkable: bool,
}

/// What was executed.
#[derive(Debug, Default)]
struct KnownTree {
    tree: Tree,
    /// The roots whose executions were read from files.
    loaded: FxHashSet<u128>,
}

/// An execution of some tree, by the digest of what it observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KnownLeaf {
    segment: usize,
    is_logged: bool,
    name: u128,
}

impl Trees {
    /// `depth` is how often the power fails.
    pub(crate) fn new(segments: Segments, depth: u32) -> Self {
        let shared = segments.all().iter().map(|_| Default::default());
        let names = segments.all().iter().map(|it| name_of_lines(&it.watched));
        Self {
            points_min: if depth > 1 { 1 } else { 2 },
            shared: shared.collect(),
            names: names.collect(),
            watches: segments.all().iter().map(|_| Mutex::default()).collect(),
            len_bytes: AtomicUsize::new(0),
            segments,
        }
    }

    /// Forgets all executions.
    fn forget(&self) {
        self.len_bytes.store(0, Ordering::Relaxed);
        for shared in self.shared.iter().flatten() {
            lock(shared).current = Arc::default();
        }
    }

    /// The tree for a failure point. `None` if nothing can be learned from another point, or the tree was given up.
    pub(crate) fn at(&self, at: EventIndex, is_logged: bool) -> Option<PointTree<'_>> {
        let segment = self.segments.number_of(at)?;
        let about = &self.segments.all()[segment];
        if about.points < self.points_min {
            return None;
        }
        let tree = PointTree {
            trees: self,
            watched: &about.watched,
            shared: &self.shared[segment][usize::from(is_logged)],
            segment,
            is_logged,
        };
        (!tree.lock().is_given_up).then_some(tree)
    }

    /// The result with these executions is accepted. Returns how many of them no earlier result had.
    pub(crate) fn accept(&self, leaves: &BTreeSet<KnownLeaf>) -> u64 {
        let mut new = 0;
        for known in leaves {
            let shared = &self.shared[known.segment][usize::from(known.is_logged)];
            new += u64::from(lock(shared).accepted.insert(known.name));
        }
        new
    }

    /// The note for the report, if recovery is not a function of what it reads.
    pub(crate) fn note(&self) -> Option<String> {
        let mut all = self.shared.iter().flatten();
        let is_contradicted = all.any(|tree| lock(tree).is_contradicted);
        is_contradicted.then(|| {
            "recovery does not always do the same after it has read the same values, so failure points are explored \
             separately"
                .to_owned()
        })
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn name_of_lines(lines: &BTreeMap<LineId, ByteSet>) -> u128 {
    let mut hasher = Xxh3::new();
    for (id, bytes) in lines {
        hasher.update(&id.pool.0.to_le_bytes());
        hasher.update(&id.line.0.to_le_bytes());
        for word in bytes.words() {
            hasher.update(&word.to_le_bytes());
        }
    }
    hasher.digest128()
}

/// The digest of what an execution observes.
fn name_of_steps(root: u128, steps: &[Step]) -> u128 {
    let mut hasher = Xxh3::new();
    hasher.update(&root.to_le_bytes());
    for ReadStep { reading, value, .. } in steps {
        hasher.update(&reading.id.pool.0.to_le_bytes());
        hasher.update(&reading.id.line.0.to_le_bytes());
        for word in reading.bytes.words() {
            hasher.update(&word.to_le_bytes());
        }
        hasher.update(&[u8::from(reading.is_rest), u8::from(value.is_some())]);
        hasher.update(value.as_deref().unwrap_or_default());
    }
    hasher.digest128()
}

/// The tree of the segment of a failure point.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PointTree<'t> {
    trees: &'t Trees,
    watched: &'t BTreeMap<LineId, ByteSet>,
    shared: &'t Mutex<SharedTree>,
    segment: usize,
    is_logged: bool,
}

impl PointTree<'_> {
    fn lock(&self) -> MutexGuard<'_, SharedTree> {
        lock(self.shared)
    }

    fn give_up(&self) {
        self.lock().is_given_up = true;
    }

    fn contradict(&self) {
        let mut shared = self.lock();
        shared.is_given_up = true;
        shared.is_contradicted = true;
    }

    /// The tree for a walk.
    fn begin(&self) -> Arc<Mutex<KnownTree>> {
        if self.trees.len_bytes.load(Ordering::Relaxed) > BYTES_MAX {
            self.trees.forget();
        }
        Arc::clone(&self.lock().current)
    }

    /// The watches of the bytes of the segment.
    fn watches(&self, pools: &Pools, line_bytes: u64) -> Arc<[Watch]> {
        let mut known = lock(&self.trees.watches[self.segment]);
        match &*known {
            Some((indices, watches)) if *indices == pools.indices => Arc::clone(watches),
            _ => {
                let watches = watches_of(self.watched, pools, line_bytes);
                *known = Some((pools.indices.clone(), Arc::clone(&watches)));
                watches
            }
        }
    }

    fn known(&self, name: u128) -> KnownLeaf {
        KnownLeaf {
            segment: self.segment,
            is_logged: self.is_logged,
            name,
        }
    }
}

/// The watches of bytes of lines, in the order of the lines.
fn watches_of(lines: &BTreeMap<LineId, ByteSet>, pools: &Pools, line_bytes: u64) -> Arc<[Watch]> {
    let watch = |(id, bytes): (&LineId, &ByteSet)| {
        let pool = pools.number(id.pool)?;
        let start = id.line.0 * line_bytes;
        let units = 0..line_bytes / UNIT_BYTES;
        let units = units.zip(bytes.words()).filter(|(_, bytes)| *bytes != 0);
        Some(units.map(move |(unit, bytes)| Watch {
            pool,
            offset: start + unit * UNIT_BYTES,
            bytes,
            ..Watch::default()
        }))
    };
    lines.iter().filter_map(watch).flatten().collect()
}

/// A crash, for a walk over a tree.
pub(crate) struct ObservedCrash<'a> {
    tree: PointTree<'a>,
    table: &'a CrashTable,
    pools: &'a Pools,
    watching: Watching<'a>,
    pub(super) watches: Arc<[Watch]>,
}

impl<'a> ObservedCrash<'a> {
    /// `newest` gives the newest content of a line at the failure point of the recorded run.
    pub(crate) fn of(
        tree: PointTree<'a>,
        crash: &'a CrashPoint,
        pools: &'a Pools,
        newest: &dyn Fn(LineId) -> Vec<u8>,
    ) -> Self {
        let table = &crash.table;
        let mut watching = Watching::after(tree.watched, crash, newest);
        let line_bytes = table.line_bytes as u64;
        let watches = match &watching.bytes {
            // Most crashes of a segment: what is to be watched is the same at each of its failure points.
            Cow::Borrowed(_) => tree.watches(pools, line_bytes),
            Cow::Owned(bytes) => watches_of(bytes, pools, line_bytes),
        };
        // Which pools there are is something that recovery can see, too.
        let indices = pools.indices.iter().fold(0_u128, |sum, index| {
            sum.wrapping_mul(0x1_0000_01b3)
                .wrapping_add(index.map_or(0, |index| u128::from(index.0) + 1))
        });
        watching.root = watching.root.wrapping_add(indices);
        Self {
            tree,
            table,
            pools,
            watching,
            watches,
        }
    }

    /// What names the executions that can be possible here.
    fn name(&self) -> TreeName {
        TreeName {
            watched: self.tree.trees.names[self.tree.segment],
            is_logged: self.tree.is_logged,
            root: self.watching.root,
        }
    }

    /// Whether a read is one that can be noted here.
    fn is_watched(&self, step: &Step) -> bool {
        self.watching.bytes.contains_key(&step.reading.id)
    }

    /// Adds the executions that were kept in files.
    fn load(
        &self,
        by: &mut dyn Explorer,
        to: &Mutex<KnownTree>,
        summary: &mut WalkSummary,
    ) -> Result<(), CheckError> {
        // Others wait, so that they need not execute what is about to be known.
        let mut to = lock(to);
        if !to.loaded.insert(self.watching.root) {
            return Ok(());
        }
        for (kept, modules) in by.kept(&self.name())? {
            summary.warn(&kept.warnings);
            for (steps, mut known) in kept.into_executions() {
                known.modules.clone_from(&modules);
                let is_possible = steps.iter().all(|step| self.is_watched(step));
                if !is_possible || self.add(&mut to, steps, known).is_err() {
                    self.tree.contradict();
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The reads of an execution.
    fn steps(
        &self,
        execution: &LazyExecution,
        read: &dyn Fn(LineId) -> Vec<u8>,
    ) -> Result<NotedSteps, Conflict> {
        let seen = Seen::of_choices(self.table, &execution.choices).map_err(|_| Conflict)?;
        let line_bytes = self.table.line_bytes as u64;
        let mut noted = NotedSteps::default();
        let mut last: Option<(u32, usize)> = None;
        for (number, note) in execution.notes.iter().enumerate() {
            let stages = execution.stages.iter();
            let begun = stages.filter(|stage| stage.notes as usize == number);
            noted
                .stages
                .extend(begun.map(|it| (it.stage, noted.steps.len())));
            let is_rest = note.code == REST_OF_LINE;
            if note.code != 0 && !is_rest {
                continue;
            }
            let load = note.load();
            let (id, bytes) = self.bytes_of(note).ok_or(Conflict)?;
            let stage = noted.stages.len();
            // Loads of several parts of a line are one: they are one choice.
            if let Some(step) = noted.steps.last_mut()
                && last == Some((load.number, stage))
                && step.reading.id == id
                && !is_rest
                && !step.reading.is_rest
            {
                step.reading.bytes = step.reading.bytes.union(&bytes);
                continue;
            }
            last = Some((load.number, stage));
            let start = note.offset % PAGE_BYTES / line_bytes * line_bytes;
            let in_line = |at: u16| u64::from(at).saturating_sub(start).min(line_bytes) as u16;
            let frames = note.frames.iter().take_while(|it| **it != 0);
            noted.log_lens.push(load.log_len.into());
            noted.steps.push(ReadStep {
                reading: Reading { id, bytes, is_rest },
                value: (!load.is_open).then(Box::default),
                about: ReadPlace {
                    frames: frames.copied().collect(),
                    from: in_line(load.from),
                    to: in_line(load.to),
                    skipped: note.skipped,
                },
            });
        }
        let behind = execution.notes.len();
        let later = execution.stages.iter();
        let later = later.filter(|stage| stage.notes as usize >= behind);
        noted
            .stages
            .extend(later.map(|it| (it.stage, noted.steps.len())));
        for step in &mut noted.steps {
            if let Some(value) = &mut step.value {
                *value = value_read(&seen, &step.reading, read);
            }
        }
        Ok(noted)
    }

    /// The line of a note, and the bytes of it.
    fn bytes_of(&self, note: &Note) -> Option<(LineId, ByteSet)> {
        let line_bytes = self.table.line_bytes as u64;
        let id = LineId {
            pool: self.pools.index(note.pool)?,
            line: LineIndex(note.offset / line_bytes),
        };
        let mut words = ByteSet::EMPTY.words();
        let unit = note.offset % line_bytes / UNIT_BYTES;
        *words.get_mut(usize::try_from(unit).ok()?)? = note.bytes;
        Some((id, ByteSet::from_words(words)))
    }

    /// What is kept of an execution.
    fn known_of(
        &self,
        mut execution: LazyExecution,
        modules: Option<Arc<[StageModules]>>,
        read: &dyn Fn(LineId) -> Vec<u8>,
    ) -> Result<(Vec<Step>, KnownExecution), Conflict> {
        let NotedSteps {
            steps,
            log_lens,
            stages,
        } = self.steps(&execution, read)?;
        let mut at = 0;
        let log = std::mem::take(&mut execution.log);
        let log = log.into_iter().map(|logged| {
            let before = log_lens.partition_point(|len| *len <= at);
            at += logged.record_len();
            (logged, before)
        });
        let known = KnownExecution {
            log: log.collect(),
            verdict: execution.verdict,
            stages,
            name: 0,
            modules,
        };
        Ok((steps, known))
    }

    /// Keeps executions, and adds them to the tree. False if they contradict it.
    fn take_in(
        &self,
        by: &mut dyn Explorer,
        to: &Mutex<KnownTree>,
        explored: LazyExecutions,
    ) -> Result<bool, CheckError> {
        let line_bytes = self.table.line_bytes;
        let modules = by.modules();
        let executions = explored.executions.into_iter().map(|execution| {
            self.known_of(execution, modules.clone(), &|id| by.read(id, line_bytes))
        });
        let Ok(executions) = executions.collect::<Result<Vec<_>, Conflict>>() else {
            return Ok(false);
        };
        let kept = KeptExecutions::of(&executions, explored.warnings);
        by.keep(&self.name(), kept, modules)?;
        let mut to = lock(to);
        let mut executions = executions.into_iter();
        Ok(executions.all(|(steps, known)| self.add(&mut to, steps, known).is_ok()))
    }

    /// Adds an execution to the tree.
    fn add(
        &self,
        to: &mut KnownTree,
        steps: Vec<Step>,
        mut known: KnownExecution,
    ) -> Result<(), Conflict> {
        let succeeds = is_success(&known.verdict);
        known.name = name_of_steps(self.watching.root, &steps);
        let len_bytes = known.len_bytes();
        let before = to.tree.node_count();
        let (leaf, is_new) = to.tree.insert(self.watching.root, steps, known)?;
        if is_new {
            let len_bytes = len_bytes + (to.tree.node_count() - before) * READ_BYTES;
            let all = &self.tree.trees.len_bytes;
            all.fetch_add(len_bytes, Ordering::Relaxed);
        }
        let is_same = is_new || is_success(&to.tree.leaf(leaf).verdict) == succeeds;
        if is_same { Ok(()) } else { Err(Conflict) }
    }
}

const fn is_success(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Success { .. })
}

/// What the notes of an execution say.
#[derive(Default)]
struct NotedSteps {
    steps: Vec<ReadStep<ReadPlace>>,
    /// How long the log was before each.
    log_lens: Vec<u64>,
    /// How many steps were made before each command.
    stages: Vec<(Stage, usize)>,
}

/// An execution of the tree, as it would be here.
fn translate(walk: &TreeWalk<'_>, tree: &Tree, known: &KnownExecution) -> LazyExecution {
    let mut choices: Vec<Choice> = Vec::new();
    // How many choices were made before each step.
    let mut before: Vec<u32> = Vec::new();
    for (place, taken) in walk.steps(tree) {
        before.push(choices.len() as u32);
        choices.extend(taken.map(|taken| choice(place, &taken)));
    }
    let choices_before = |steps: usize| before.get(steps).copied().unwrap_or(choices.len() as u32);
    let stages = known.stages.iter().map(|(stage, steps)| StageStart {
        stage: *stage,
        choices: choices_before(*steps),
        notes: 0,
    });
    let log = known.log.iter().map(|(logged, steps)| Logged {
        choices: choices_before(*steps),
        ..logged.clone()
    });
    LazyExecution {
        verdict: known.verdict.clone(),
        stages: stages.collect(),
        log: log.collect(),
        notes: Vec::new(),
        modules: known.modules.clone(),
        choices,
    }
}

fn choice(place: &ReadPlace, taken: &TakenChoice) -> Choice {
    let number = |it: usize| it as u16;
    let mut choice = Choice {
        line: taken.observed.line as u32,
        from: place.from,
        to: place.to,
        class_count: number(taken.class_count),
        class: number(taken.class),
        content: taken.observed.content as u32,
        observed: taken.observed.bytes.words(),
        skipped: place.skipped,
        ..Choice::default()
    };
    for (to, frame) in choice.frames.iter_mut().zip(&place.frames) {
        *to = *frame;
    }
    choice
}

/// Shows each execution that is possible after a crash once, and executes those that the tree does not know. `None` if
/// that is not possible with this recovery: `visit` may have seen some of them.
pub(crate) fn walk_tree(
    by: &mut dyn Explorer,
    task: WalkTask<'_>,
    crash: &ObservedCrash<'_>,
    visit: &mut dyn FnMut(LazyExecution) -> Result<(), CheckError>,
) -> Result<Option<WalkSummary>, CheckError> {
    let line_bytes = crash.table.line_bytes;
    let mut walk = TreeWalk::new(crash.table, crash.watching.root);
    let mut summary = WalkSummary::new();
    let mut before: Option<Vec<u32>> = None;
    let mut asked: Option<Vec<u32>> = None;
    let mut few = FEW.into_iter();
    let mut hanging = 0;
    let known = crash.tree.begin();
    crash.load(by, &known, &mut summary)?;
    loop {
        let (is_given_up, is_not_forkable) = {
            let shared = crash.tree.lock();
            (shared.is_given_up, shared.is_not_forkable)
        };
        let to = lock(&known);
        if is_given_up || to.tree.node_count() > NODES_MAX {
            crash.tree.give_up();
            return Ok(None);
        }
        let stop = walk.next(&to.tree, &|id| by.read(id, line_bytes));
        let is_urgent = task.deadline.is_some();
        let is_late = task.deadline.is_some_and(|it| Instant::now() >= it);
        let is_cut = summary.executions >= task.limit
            || is_late && summary.executions > 0
            || is_urgent && hanging >= HANGS_MAX;
        let prefix = match stop {
            Stop::End => return Ok(Some(summary)),
            _ if is_cut => {
                summary.extent = Extent::Cut;
                return Ok(Some(summary));
            }
            Stop::Known(leaf) => {
                let leaf = to.tree.leaf(leaf);
                let execution = translate(&walk, &to.tree, leaf);
                let name = leaf.name;
                drop(to);
                let classes = classes_of(&execution);
                summary.executions += 1;
                summary.choices += new_choices(&classes, before.as_deref(), 0);
                summary.known.push(crash.tree.known(name));
                before = Some(classes);
                asked = None;
                visit(execution)?;
                continue;
            }
            Stop::Missing(prefix) => prefix,
        };
        let fork = task.fork && !is_not_forkable;
        let is_empty = to.tree.leaf_count() == 0;
        drop(to);
        if asked.as_ref() == Some(&prefix) {
            // It was executed, and did not come this way.
            crash.tree.contradict();
            return Ok(None);
        }
        let left = task.limit - summary.executions;
        let most = if is_urgent { few.next() } else { None };
        let request = ExploreRequest {
            table: task.table,
            prefix: &prefix,
            branch: if fork { Branch::Fork } else { Branch::Repeat },
            watches: &crash.watches,
            observations: true,
            log: task.log,
            max_executions: most.map_or(left, |most| most.min(left)),
        };
        let explored = match by.explore(&request)? {
            Attempt::Explored(explored) => explored,
            Attempt::NotForkable if fork => {
                crash.tree.lock().is_not_forkable = true;
                continue;
            }
            Attempt::NotForkable | Attempt::Refused { .. } => {
                if is_empty {
                    crash.tree.give_up();
                }
                return Ok(None);
            }
        };
        if explored.executions.is_empty() {
            summary.extent = Extent::Cut;
            return Ok(Some(summary));
        }
        asked = Some(prefix);
        hanging += explored.executions.iter().filter(|it| hangs(it)).count();
        summary.warn(&explored.warnings);
        if !crash.take_in(by, &known, explored)? {
            crash.tree.contradict();
            return Ok(None);
        }
    }
}
