//! Executes recovery at failure points: a pass over the trace, private files, and the process that starts recoveries
//! on them.
//!
//! Each worker has its own executor, so that no worker waits for another: a pass costs what the events between two
//! failure points cost, and an exploration that executes recovery many times needs its image many times.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use powerfail_explore::lazy::{CrashTable, PageLines, ReadLine, Seen};
use powerfail_image::{CursorOptions, ImageCursor, ImageSlot, Patch};
use powerfail_model::{CrashState, EventIndex, Place, PoolIndex, PoolOffset, Rules};
use powerfail_oracle::{
    Backtrace, ExploreRequest, LineTable, OracleError, PageMask, Slot, Stage, TableLine,
    ThreadStack, Verdict,
};
use powerfail_trace::{Frame, Module, ModuleIndex, StackId, Trace};

use super::robustness::HistoryCursor;
use super::walk::Attempt;
use crate::error::CheckError;
use crate::runner::Runner;

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
}

impl LazyExecutor for OracleExecutor<'_, '_> {
    fn move_to(&mut self, at: EventIndex) -> Result<(), CheckError> {
        if let Some(history) = &mut self.history {
            history.move_to(at)?;
        }
        Ok(self.cursor.move_to(at)?)
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
        loop {
            self.image
                .prepare_with(&self.cursor, &CrashState::default(), overlay)?;
            return match self.slot.explore(request) {
                Ok(explored) => {
                    self.modules.clear();
                    Ok(Attempt::Explored(explored))
                }
                // Its command is executed from now on, so this happens once for each command.
                Err(OracleError::SnapshotLost { .. }) => continue,
                Err(OracleError::NotExplorable { reason }) => Ok(Attempt::Refused { reason }),
                Err(OracleError::NotForkable { .. }) => Ok(Attempt::NotForkable),
                Err(error) => Err(error.into()),
            };
        }
    }

    fn run(&mut self, state: &CrashState, overlay: &[Patch]) -> Result<Verdict, CheckError> {
        self.image.prepare_with(&self.cursor, state, overlay)?;
        Ok(self.slot.run_plain()?)
    }

    fn frames(&mut self, stage: Stage, addresses: &[u64]) -> Option<LocatedFrames> {
        if self.modules.is_empty() {
            let modules = self.slot.modules().ok()?.into_iter();
            self.modules = modules
                .map(|(stage, modules)| (stage, modules.into()))
                .collect();
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
                    rules,
                    history: robustness
                        .then(|| HistoryCursor::new(trace, rules, fill))
                        .transpose()?,
                })
            })
            .collect()
    }
}
