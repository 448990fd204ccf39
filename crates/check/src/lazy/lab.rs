//! A place in which failure points are explored: a pass over the trace, private files, and the process that
//! starts recoveries on them.
//!
//! Each worker has one of its own. Passes cost what the events between two failure points cost, and an
//! exploration that executes recovery again and again needs its image again and again, so nothing here
//! waits for another worker.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use powerfail_explore::lazy::{CrashTable, PageLines, ReadLine, Seen};
use powerfail_image::{ImageCursor, Patch, Slot as ImageSlot};
use powerfail_model::{CrashState, EventIndex, Place, PoolIndex, PoolOffset, Rules};
use powerfail_oracle::{
    Backtrace, ExploreRequest, LineTable, OracleError, PageMask, Slot, Stage, TableLine,
    ThreadStack, Verdict,
};
use powerfail_trace::{Frame, Module, ModuleIndex, StackId, Trace};

use super::robustness::Moments;
use super::walk::Attempt;
use crate::error::CheckError;

/// Frames, and the files in which they lie.
pub(crate) type Located = (Arc<[Module]>, Vec<Frame>);

/// See the module header. A trait, because what is done with executions does not depend on processes.
pub(crate) trait Lab {
    /// Goes to the moment just before an event, which is not before the present one.
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
    /// What addresses in a command of the last exploration mean, innermost first.
    fn frames(&mut self, stage: Stage, addresses: &[u64]) -> Option<Located>;
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
    /// What survives.
    fn rules(&self) -> Rules;
    /// The newest bytes here.
    fn read(&self, at: Place, out: &mut [u8]);
    /// The lines that an execution chose from, and when they had what was read; nothing if nobody asked for
    /// that.
    fn read_lines(&self, seen: &Seen<'_>, crash: EventIndex) -> Option<Vec<ReadLine>>;
    /// The call stack of an event.
    fn stack_of(&mut self, event: EventIndex) -> Result<StackId, CheckError>;
}

/// Pools by their place in a table of lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pools {
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) indices: Vec<Option<PoolIndex>>,
}

impl Pools {
    /// The place of a pool, if recovery sees it.
    pub(crate) fn number(&self, pool: PoolIndex) -> Option<u32> {
        let place = self.indices.iter().position(|known| *known == Some(pool))?;
        u32::try_from(place).ok()
    }

    /// The pool at a place.
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

    /// The table as the oracle takes it. The lines of `table` must be of pools that recovery sees; they
    /// keep their places.
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

/// The lab of a real recovery.
pub(crate) struct SlotLab<'w, 't> {
    pub(crate) trace: &'t Trace,
    pub(crate) cursor: ImageCursor<'t>,
    pub(crate) image: &'w mut ImageSlot,
    pub(crate) slot: &'w mut Slot,
    pub(crate) stacks: HashMap<EventIndex, StackId>,
    pub(crate) rules: Rules,
    /// If robustness is asked for.
    pub(crate) moments: Option<Moments<'t>>,
    /// Where files lie in recovery, as far as they were asked for since the last exploration.
    pub(crate) modules: Vec<(Stage, Arc<[Module]>)>,
}

impl Lab for SlotLab<'_, '_> {
    fn move_to(&mut self, at: EventIndex) -> Result<(), CheckError> {
        if let Some(moments) = &mut self.moments {
            moments.move_to(at)?;
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
        let moments = self.moments.as_ref()?;
        Some(moments.read_lines(seen, crash))
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
        self.image
            .prepare_with(&self.cursor, &CrashState::default(), overlay)?;
        match self.slot.explore(request) {
            Ok(explored) => {
                self.modules.clear();
                Ok(Attempt::Explored(explored))
            }
            Err(OracleError::NotExplorable { reason }) => Ok(Attempt::Refused { reason }),
            Err(OracleError::NotForkable { .. }) => Ok(Attempt::NotForkable),
            Err(error) => Err(error.into()),
        }
    }

    fn run(&mut self, state: &CrashState, overlay: &[Patch]) -> Result<Verdict, CheckError> {
        self.image.prepare_with(&self.cursor, state, overlay)?;
        Ok(self.slot.run_plain()?)
    }

    fn frames(&mut self, stage: Stage, addresses: &[u64]) -> Option<Located> {
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
