//! Lazy executions: the requests to a slot, and their results.
//!
//! A lazy execution runs on an image with the newest content of everything. The table says which lines can
//! hold something older; the runtime in the recovering process decides what they hold when recovery
//! loads from them, and notes its choices. `zygote/` starts and controls these processes.

mod file;
mod records;
mod table;

use std::path::PathBuf;
use std::sync::Arc;

use powerfail_protocol::explore::LogHeader;
pub use powerfail_protocol::explore::{Choice, LogKind, Note, NotedLoad, REST_OF_LINE, Watch};
use serde::{Deserialize, Serialize};

use crate::message::StageModules;
use crate::stored;
use crate::verdict::{Stage, Verdict};

pub(crate) use file::SharedFile;
pub(crate) use records::{choices_of, log_of, notes_of};
pub(crate) use table::{Orders, Unfit, WrittenWatches, read_masks, write_pools, write_table};

/// Lines that may hold one of several contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineTable {
    /// Length of a line: 64, or 512 for a page cache.
    pub line_bytes: u32,
    /// The pools, by the paths that they had in the recorded run.
    pub pools: Vec<PathBuf>,
    /// The lines, in any order, each once. Those of one content need not be here. Choices number them as
    /// they are here.
    pub lines: Vec<TableLine>,
    /// Lines whose reads are reported, as masks of pages, each page once.
    pub watched: Vec<PageMask>,
}

/// A line of a [`LineTable`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableLine {
    /// The pool, by its place in the table.
    pub pool: u32,
    /// Where it begins.
    pub offset: u64,
    /// Its contents, one after the other, the newest first; all are different.
    pub contents: Vec<u8>,
}

/// Some lines of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PageMask {
    /// The pool, by its place in the table.
    pub pool: u32,
    /// Where the page begins.
    pub offset: u64,
    /// A bit for each 64 bytes of its 4096.
    pub lines: u64,
}

/// What is done about the values that are not taken at a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Branch {
    /// They are explored too, by forking at the choice. Only for plans that consist of a recovery alone; with
    /// others it is the same as [`Branch::Repeat`].
    Fork,
    /// They are left to later requests: one execution, which changes the private files.
    Repeat,
    /// They are left to later requests: one execution, which changes the private files only if it must.
    Never,
}

/// A request to explore.
#[derive(Clone, Copy, Debug)]
pub struct ExploreRequest<'a> {
    /// The open lines.
    pub table: &'a LineTable,
    /// Classes to take at the first choices; after them the first class each time.
    pub prefix: &'a [u32],
    /// What is done about the other classes.
    pub branch: Branch,
    /// Bytes whose first reads are noted, in any order; pools are numbered as in the table.
    pub watches: &'a [Watch],
    /// Whether all that loads read of watched lines is noted, so that all choices among them follow from the notes.
    pub observations: bool,
    /// Whether to log stores, flushes and fences.
    pub log: bool,
    /// No more executions than this.
    pub max_executions: u64,
}

/// One execution of the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LazyExecution {
    /// How it ended.
    pub verdict: Verdict,
    /// Its loads that could have observed other values.
    #[serde(with = "stored::choices")]
    pub choices: Vec<Choice>,
    /// The first reads of watched bytes and the annotations of recovery, in the order of time. Those before the
    /// first region of interest are marked as skipped. Only with [`Branch::Never`] or watches.
    #[serde(with = "stored::notes")]
    pub notes: Vec<Note>,
    /// The commands that ran: addresses in choices and notes are those of the process that made them.
    pub stages: Vec<StageStart>,
    /// Its stores, flushes and fences, if requested.
    pub log: Vec<Logged>,
    /// The modules that its addresses are in, if they are not those of the last exploration. A caller that keeps
    /// executions sets them.
    #[serde(skip)]
    pub modules: Option<Arc<[StageModules]>>,
}

impl LazyExecution {
    /// The command that made a choice.
    pub fn stage_of(&self, choice: usize) -> Stage {
        self.last_begun(|it| it.choices as usize <= choice)
    }

    /// The command that made a note.
    pub fn stage_of_note(&self, note: usize) -> Stage {
        self.last_begun(|it| it.notes as usize <= note)
    }

    fn last_begun(&self, is_before: impl Fn(&StageStart) -> bool) -> Stage {
        let last = self.stages.iter().take_while(|it| is_before(it)).last();
        last.map_or(Stage::Recovery, |it| it.stage)
    }
}

/// The start of a command in an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageStart {
    /// The command.
    pub stage: Stage,
    /// The number of choices before it.
    pub choices: u32,
    /// The number of notes before it.
    pub notes: u32,
}

/// An event of recovery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logged {
    /// What happened.
    #[serde(with = "stored::log_kind")]
    pub kind: LogKind,
    /// The pool, by its place in the table.
    pub pool: u32,
    /// Where in it.
    pub offset: u64,
    /// What was stored.
    pub bytes: Vec<u8>,
    /// How many bytes it is about.
    pub len: u64,
    /// The instruction.
    pub site: u64,
    /// The thread.
    pub thread: u32,
    /// How many choices were made before.
    pub choices: u32,
}

impl Logged {
    /// How long its record in the log is.
    pub fn record_len(&self) -> u64 {
        size_of::<LogHeader>() as u64 + (self.bytes.len() as u64).next_multiple_of(8)
    }
}

/// The result of a request to explore.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LazyExecutions {
    /// In the order in which they ended: with forks, those of the first class of the first choice first.
    pub executions: Vec<LazyExecution>,
    /// Lines that any of them read, of pages with open or watched lines.
    pub read: Vec<PageMask>,
    /// Whether the limit of executions was reached: the rest is not explored.
    pub stopped: bool,
    /// Whether branches were forked.
    pub forked: bool,
    /// Whether the private files are as they were before.
    pub kept: bool,
    /// Warnings of the runtime.
    pub warnings: Vec<String>,
    /// Faults and breakpoints that were handled.
    pub traps: u64,
    /// Instructions that were single-stepped.
    pub steps: u64,
}
