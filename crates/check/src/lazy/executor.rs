//! Executes recovery at failure points: a pass over the trace, private files, and the process that starts recoveries
//! on them.
//!
//! Each worker has its own executor, so that no worker waits for another: a pass costs what the events between two
//! failure points cost, and an exploration that executes recovery many times needs its image many times.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use powerfail_explore::lazy::{CrashTable, PageLines, ReadLine, Seen};
use powerfail_image::{CursorOptions, ImageCursor, ImageSlot, Patch};
use powerfail_model::{CrashState, EventIndex, Place, PoolIndex, PoolOffset, Rules};
use powerfail_oracle::{
    Backtrace, ExploreRequest, LineTable, OracleError, PageMask, Slot, Stage, StageModules,
    TableLine, ThreadStack, Verdict,
};
use powerfail_trace::{Frame, Module, ModuleIndex, StackId, Trace};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use super::kept::{KeptExecutions, TreeName};
use super::robustness::HistoryCursor;
use super::walk::{Attempt, KeptWithModules};
use crate::error::CheckError;
use crate::outcomes::{ANY_LIMIT, Key, Outcomes, RequestKind};
use crate::runner::{KeptRun, Runner};

/// Frames, and the modules that they refer to.
pub(crate) type LocatedFrames = (Arc<[Module]>, Vec<Frame>);

/// Executes recovery at one failure point after the other. A trait, so that tests can replace processes by functions.
pub(crate) trait LazyExecutor {
    /// Moves forward to the moment just before an event.
    fn move_to(&mut self, at: EventIndex) -> Result<(), CheckError>;
    /// What a crash here can leave of the pools that recovery sees.
    fn crash_table(&self) -> CrashTable;
    /// The files that recovery sees, and the pool that each of them holds here.
    fn pools(&self) -> Pools;
    /// Explores on the newest content with `overlay` on top.
    fn explore(
        &mut self,
        overlay: &[Patch],
        request: &ExploreRequest<'_>,
    ) -> Result<Attempt, CheckError>;
    /// Runs recovery on a crash state with `overlay` on top, and nothing else.
    fn run(&mut self, state: &CrashState, overlay: &[Patch]) -> Result<Verdict, CheckError>;
    /// The modules of the last exploration.
    fn modules(&mut self) -> Option<Arc<[StageModules]>> {
        None
    }
    /// Addresses are in these modules, until the next exploration.
    fn use_modules(&mut self, _modules: &Arc<[StageModules]>) {}
    /// Executions of a tree of observations that were kept.
    fn kept(&mut self, _tree: &TreeName) -> Result<Vec<KeptWithModules>, CheckError> {
        Ok(Vec::new())
    }
    /// Keeps executions of a tree of observations.
    fn keep(
        &mut self,
        _tree: &TreeName,
        _executions: KeptExecutions,
        _modules: Option<Arc<[StageModules]>>,
    ) -> Result<(), CheckError> {
        Ok(())
    }
    /// The frames of addresses in a command of the last exploration, innermost first.
    fn frames(&mut self, stage: Stage, addresses: &[u64]) -> Option<LocatedFrames>;
    /// The same, as a call stack.
    fn stack(&mut self, stage: Stage, addresses: &[u64]) -> Option<Backtrace> {
        let (modules, frames) = self.frames(stage, addresses)?;
        Some(Backtrace {
            modules: modules.to_vec(),
            threads: vec![ThreadStack {
                name: String::new(),
                frames,
            }],
        })
    }
    /// The rules of what survives a crash.
    fn rules(&self) -> Rules;
    /// The newest bytes here.
    fn read(&self, at: Place, out: &mut [u8]);
    /// The lines that an execution chose from, and when they held what was read. `None` if robustness is not checked.
    fn read_lines(&self, seen: &Seen<'_>, crash: EventIndex) -> Option<Vec<ReadLine>>;
    /// The call stack of an event.
    fn stack_of(&mut self, event: EventIndex) -> Result<StackId, CheckError>;
}

/// The pools that recovery sees, in the order of their numbers in a [`LineTable`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pools {
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) indices: Vec<Option<PoolIndex>>,
}

impl Pools {
    /// The number of a pool, if recovery sees it.
    pub(crate) fn number(&self, pool: PoolIndex) -> Option<u32> {
        let place = self.indices.iter().position(|known| *known == Some(pool))?;
        u32::try_from(place).ok()
    }

    /// The pool with a number.
    pub(crate) fn index(&self, number: u32) -> Option<PoolIndex> {
        *self.indices.get(number as usize)?
    }

    /// Lines of a page as the oracle names them.
    pub(crate) fn mask(&self, page: &PageLines) -> Option<PageMask> {
        Some(PageMask {
            pool: self.number(page.pool)?,
            offset: page.offset.0,
            lines: page.lines,
        })
    }

    /// Lines of a page as the trace names them.
    pub(crate) fn page(&self, mask: &PageMask) -> Option<PageLines> {
        Some(PageLines {
            pool: self.index(mask.pool)?,
            offset: PoolOffset(mask.offset),
            lines: mask.lines,
        })
    }

    /// The table in the form the oracle takes. The lines of `table` must be of pools that recovery sees; they keep
    /// their order.
    pub(crate) fn line_table(&self, table: &CrashTable) -> LineTable {
        let lines = table.lines.iter().map(|line| TableLine {
            pool: self.number(line.id.pool).unwrap_or(0),
            offset: line.id.line.0 * table.line_bytes as u64,
            contents: line.flat(),
        });
        LineTable {
            line_bytes: u32::try_from(table.line_bytes).unwrap_or(64),
            pools: self.paths.clone(),
            lines: lines.collect(),
            watched: Vec::new(),
        }
    }
}

/// The executor of a real recovery.
pub(crate) struct OracleExecutor<'w, 't> {
    pub(crate) trace: &'t Trace,
    pub(crate) cursor: ImageCursor<'t>,
    pub(crate) image: &'w mut ImageSlot,
    pub(crate) slot: &'w mut Slot,
    pub(crate) stacks: HashMap<EventIndex, StackId>,
    pub(crate) rules: Rules,
    /// Present if robustness is checked.
    pub(crate) history: Option<HistoryCursor<'t>>,
    /// The modules of recovery, as far as they were asked for since the last exploration.
    pub(crate) modules: Vec<(Stage, Arc<[Module]>)>,
    /// The same, or those of an earlier exploration.
    pub(crate) stage_modules: Option<Arc<[StageModules]>>,
    /// Outcomes that are known, and where new ones are kept.
    pub(crate) outcomes: Outcomes,
    /// The moment at which the cursor is.
    pub(crate) at: EventIndex,
}

/// What became of a request to explore, as it is kept. An [`Attempt`], or executions of a tree of observations.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct KeptAttempt<T> {
    pub(crate) attempt: T,
    /// The digest of the modules that its addresses are in, which are kept once.
    modules: Option<u128>,
}

impl OracleExecutor<'_, '_> {
    /// The modules of the last exploration.
    fn load_modules(&mut self) -> Option<Arc<[StageModules]>> {
        let modules = self.slot.modules().ok()?.into_iter();
        let stages = modules.map(|(stage, modules)| StageModules { stage, modules });
        let mut stages: Arc<[StageModules]> = stages.collect();
        // Almost always they are the same as before.
        if let Some(known) = &self.stage_modules
            && *known == stages
        {
            stages = Arc::clone(known);
        }
        self.take_modules(Arc::clone(&stages));
        Some(stages)
    }

    fn take_modules(&mut self, stages: Arc<[StageModules]>) {
        let modules = stages.iter();
        self.modules = modules
            .map(|it| (it.stage, it.modules.as_slice().into()))
            .collect();
        self.stage_modules = Some(stages);
    }

    /// Keeps modules, unless they are there. Returns their digest.
    fn keep_modules(&mut self, stages: &Arc<[StageModules]>) -> Result<u128, CheckError> {
        let bytes = postcard::to_extend(&**stages, Vec::new()).unwrap_or_default();
        let digest = xxh3_128(&bytes);
        let key = self.modules_key(digest);
        self.outcomes.keep_once(key, &&**stages)?;
        Ok(digest)
    }

    /// The modules with a digest.
    fn kept_modules(&self, digest: u128) -> Result<Option<Arc<[StageModules]>>, CheckError> {
        let modules = self
            .outcomes
            .find::<Vec<StageModules>>(self.modules_key(digest))?;
        Ok(modules.map(Into::into))
    }

    fn tree_key(&self, tree: &TreeName) -> Option<Key> {
        self.outcomes
            .key(RequestKind::Observations, |key| tree.write(key))
    }

    /// Keeps what became of a request, with the modules of its processes: addresses in choices mean nothing without.
    fn keep_attempt(
        &mut self,
        key: Option<Key>,
        limit: u64,
        attempt: &Attempt,
    ) -> Result<(), CheckError> {
        if key.is_none() {
            return Ok(());
        }
        let (limits, has_addresses) = match attempt {
            // With another limit there would be more or fewer executions.
            Attempt::Explored(explored) if explored.stopped => (limit..=limit, true),
            Attempt::Explored(explored) => (explored.executions.len() as u64..=u64::MAX, true),
            Attempt::NotForkable | Attempt::Refused { .. } => (ANY_LIMIT, false),
        };
        let mut modules = None;
        if has_addresses && let Some(stages) = self.load_modules() {
            modules = Some(self.keep_modules(&stages)?);
        }
        let attempt = attempt.clone();
        self.outcomes
            .keep(key, limits, &KeptAttempt { attempt, modules })
    }

    fn modules_key(&self, digest: u128) -> Option<Key> {
        self.outcomes.key(RequestKind::Modules, |key| {
            key.bytes(&digest.to_le_bytes());
        })
    }

    /// What became of a request in an earlier run.
    fn known(&mut self, key: Option<Key>, limit: u64) -> Result<Option<Attempt>, CheckError> {
        let Some(known) = self.outcomes.take::<KeptAttempt<Attempt>>(key, limit)? else {
            return Ok(None);
        };
        self.modules.clear();
        if let Some(digest) = known.modules
            && let Some(modules) = self.kept_modules(digest)?
        {
            self.take_modules(modules);
        }
        Ok(Some(known.attempt))
    }
}

impl LazyExecutor for OracleExecutor<'_, '_> {
    fn move_to(&mut self, at: EventIndex) -> Result<(), CheckError> {
        if let Some(history) = &mut self.history {
            history.move_to(at)?;
        }
        self.cursor.move_to(at)?;
        self.at = at;
        Ok(())
    }

    fn rules(&self) -> Rules {
        self.rules
    }

    fn read(&self, at: Place, out: &mut [u8]) {
        self.cursor.read(at, out);
    }

    fn read_lines(&self, seen: &Seen<'_>, crash: EventIndex) -> Option<Vec<ReadLine>> {
        let history = self.history.as_ref()?;
        Some(history.read_lines(seen, crash))
    }

    fn crash_table(&self) -> CrashTable {
        let Some(frontier) = self.cursor.frontier() else {
            return CrashTable::default();
        };
        let mut table = CrashTable::of(frontier);
        let shown = self.image.pools(&self.cursor);
        table
            .lines
            .retain(|line| shown.contains(&Some(line.id.pool)));
        table
    }

    fn pools(&self) -> Pools {
        Pools {
            paths: self
                .image
                .files()
                .map(|(original, _)| original.to_owned())
                .collect(),
            indices: self.image.pools(&self.cursor),
        }
    }

    fn explore(
        &mut self,
        overlay: &[Patch],
        request: &ExploreRequest<'_>,
    ) -> Result<Attempt, CheckError> {
        let key = self.outcomes.key(RequestKind::Explore, |key| {
            key.image(self.at, &CrashState::default(), overlay)
                .exploration(request);
        });
        if let Some(known) = self.known(key, request.max_executions)? {
            return Ok(known);
        }
        let attempt = loop {
            self.image
                .prepare_with(&self.cursor, &CrashState::default(), overlay)?;
            break match self.slot.explore(request) {
                Ok(explored) => {
                    self.modules.clear();
                    Attempt::Explored(explored)
                }
                // Its command is executed from now on, so this happens once for each command.
                Err(OracleError::SnapshotLost { .. }) => continue,
                Err(OracleError::NotExplorable { reason }) => Attempt::Refused { reason },
                Err(OracleError::NotForkable { .. }) => Attempt::NotForkable,
                Err(error) => return Err(error.into()),
            };
        };
        // What is observed for a tree is kept under the name of the tree.
        if !(request.observations && matches!(attempt, Attempt::Explored(_))) {
            self.keep_attempt(key, request.max_executions, &attempt)?;
        }
        Ok(attempt)
    }

    fn modules(&mut self) -> Option<Arc<[StageModules]>> {
        if self.modules.is_empty() {
            return self.load_modules();
        }
        self.stage_modules.clone()
    }

    fn use_modules(&mut self, modules: &Arc<[StageModules]>) {
        let same = self.stage_modules.as_ref();
        if self.modules.is_empty() || !same.is_some_and(|same| Arc::ptr_eq(same, modules)) {
            self.take_modules(Arc::clone(modules));
        }
    }

    fn kept(&mut self, tree: &TreeName) -> Result<Vec<KeptWithModules>, CheckError> {
        let all: Vec<KeptAttempt<KeptExecutions>> = self.outcomes.all(self.tree_key(tree))?;
        let mut modules: BTreeMap<u128, Option<Arc<[StageModules]>>> = BTreeMap::new();
        let mut kept = Vec::new();
        for one in all {
            let of = match one.modules {
                Some(digest) if modules.contains_key(&digest) => modules[&digest].clone(),
                Some(digest) => {
                    let loaded = self.kept_modules(digest)?;
                    modules.insert(digest, loaded.clone());
                    loaded
                }
                None => None,
            };
            kept.push((one.attempt, of));
        }
        Ok(kept)
    }

    fn keep(
        &mut self,
        tree: &TreeName,
        executions: KeptExecutions,
        modules: Option<Arc<[StageModules]>>,
    ) -> Result<(), CheckError> {
        let key = self.tree_key(tree);
        if key.is_none() {
            return Ok(());
        }
        let modules = match modules {
            Some(modules) => Some(self.keep_modules(&modules)?),
            None => None,
        };
        let kept = KeptAttempt {
            attempt: executions,
            modules,
        };
        self.outcomes.keep(key, ANY_LIMIT, &kept)
    }

    fn run(&mut self, state: &CrashState, overlay: &[Patch]) -> Result<Verdict, CheckError> {
        let key = self.outcomes.key(RequestKind::Plain, |key| {
            key.number(u64::MAX).image(self.at, state, overlay);
        });
        if let Some(known) = self.outcomes.take::<KeptRun>(key, 0)? {
            self.slot.add_suspects(known.suspects);
            return Ok(known.verdict);
        }
        self.image.prepare_with(&self.cursor, state, overlay)?;
        let verdict = self.slot.run_plain()?;
        if key.is_some() {
            let run = KeptRun {
                verdict,
                suspects: self.slot.take_suspects(),
            };
            self.outcomes.keep(key, ANY_LIMIT, &run)?;
            self.slot.add_suspects(run.suspects);
            return Ok(run.verdict);
        }
        Ok(verdict)
    }

    fn frames(&mut self, stage: Stage, addresses: &[u64]) -> Option<LocatedFrames> {
        if self.modules.is_empty() {
            self.load_modules()?;
        }
        let (_, modules) = self.modules.iter().find(|(known, _)| *known == stage)?;
        let place = |address: u64| {
            let module = modules.iter().zip(0..).find(|(module, _)| {
                let end = module.load_address.saturating_add(module.len_bytes);
                (module.load_address..end).contains(&address)
            });
            match module {
                Some((module, number)) => Frame::Module {
                    module: ModuleIndex(number),
                    offset: address - module.load_address,
                },
                None => Frame::Absolute { address },
            }
        };
        let frames = addresses.iter().map(|address| place(*address));
        Some((Arc::clone(modules), frames.collect()))
    }

    fn stack_of(&mut self, event: EventIndex) -> Result<StackId, CheckError> {
        if let Some(stack) = self.stacks.get(&event) {
            return Ok(*stack);
        }
        let mut records = self.trace.records_from(event);
        let stack = records.next_record()?.map_or(StackId::NONE, |it| it.stack);
        self.stacks.insert(event, stack);
        Ok(stack)
    }
}

impl<'t> Runner<'t> {
    /// One executor for each worker, at the beginning of the trace.
    pub(crate) fn executors(
        &mut self,
        robustness: bool,
    ) -> Result<Vec<OracleExecutor<'_, 't>>, CheckError> {
        let rules = self.rules();
        let options = CursorOptions {
            rules: Some(rules),
            fill: self.fill(),
            memory_limit_bytes: None,
        };
        let fill = self.fill().map(|fill| fill.byte);
        let outcomes = self.outcomes().clone();
        let (trace, slots) = self.slots();
        slots
            .map(|(image, slot)| {
                Ok(OracleExecutor {
                    trace,
                    cursor: ImageCursor::new(trace, options)?,
                    image,
                    slot,
                    stacks: HashMap::new(),
                    modules: Vec::new(),
                    stage_modules: None,
                    outcomes: outcomes.clone(),
                    at: EventIndex(0),
                    rules,
                    history: robustness
                        .then(|| HistoryCursor::new(trace, rules, fill))
                        .transpose()?,
                })
            })
            .collect()
    }
}
