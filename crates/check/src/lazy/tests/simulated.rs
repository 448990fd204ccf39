//! A simulated recovery: a function of the values that it loads.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use powerfail_explore::lazy::{CrashTable, ReadLine, Seen};
use powerfail_finding::RecoveryOutcome;
use powerfail_image::{CursorOptions, ImageCursor, Patch};
use powerfail_model::{
    CrashState, Event, EventIndex, FenceKind, FlushKind, LineId, Place, PoolIndex, PoolOffset,
    Rules, StoreKind,
};
use powerfail_oracle::{Failure, Stage, Verdict};
use powerfail_protocol::observe::{ByteSet, Knowledge, Line, words_for};
use powerfail_trace::{
    Body, Meta, Pool, PoolKind, StackId, Thread, Trace, TraceWriter, WriterOptions,
};

use crate::error::CheckError;
use crate::lazy::executor::{LazyExecutor, LocatedFrames, Pools};
use crate::lazy::kept::{KeptExecutions, TreeName};
use crate::lazy::walk::{Attempt, Explorer, KeptWithModules};
use powerfail_oracle::{
    Branch, Choice, ExploreRequest, LazyExecution, LazyExecutions, LineTable, Note, NotedLoad,
    PageMask, StageModules, StageStart,
};

const POOL: PoolIndex = PoolIndex(0);
const LINE: usize = 64;
const WORD: usize = 8;

/// The effects of a traced program on words of its pool.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Store(u64, u64),
    Flush(u64),
    Fence,
}

pub(crate) fn trace_of(ops: &[Op]) -> Trace {
    let mut bytes = Vec::new();
    let meta = Meta::default();
    let mut writer =
        TraceWriter::new(&mut bytes, &meta, WriterOptions::default()).expect("a writer");
    let pool = writer
        .define_pool(&Pool {
            path: "/mnt/pmem/pool".into(),
            kind: PoolKind::File,
            len_bytes: 3 * 4096,
            address: 0,
        })
        .expect("a pool");
    let thread = writer
        .define_thread(&Thread {
            os_id: 1,
            name: None,
        })
        .expect("a thread");
    for op in ops {
        let value;
        let event = match *op {
            Op::Store(offset, word) => {
                value = word.to_le_bytes();
                Event::Store {
                    kind: StoreKind::Plain,
                    at: Place::new(pool, PoolOffset(offset)),
                    bytes: &value,
                }
            }
            Op::Flush(offset) => Event::Flush {
                kind: FlushKind::Clwb,
                at: Place::new(pool, PoolOffset(offset)),
            },
            Op::Fence => Event::Fence(FenceKind::Sfence),
        };
        writer
            .append(thread, StackId::NONE, Body::Pm(event))
            .expect("an event");
    }
    writer.finish(&[]).expect("an end");
    Trace::from_bytes(bytes).expect("a trace")
}

/// How executions branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    /// All executions in one request.
    Fork,
    /// One execution per request.
    RecoveryCrash,
    /// Branches at the first choices only; the others remain unexplored.
    ForkHalf,
    /// Does not branch at all.
    Refuse(&'static str),
}

type Recovery = fn(&mut Memory<'_>) -> bool;

pub(crate) struct Simulated<'t> {
    cursor: ImageCursor<'t>,
    end: EventIndex,
    recovery: Recovery,
    pub(crate) engine: Engine,
    pub(crate) succeeds_without_exploration: bool,
    /// During exploration, the execution with the newest content always fails.
    pub(crate) newest_fails_in_exploration: bool,
    /// How often recovery was executed to be explored.
    pub(crate) executed: Cell<u64>,
    /// How often it has begun. A recovery that uses this is not a function of what it reads.
    begun: Cell<u64>,
    /// Where executions of trees are kept.
    pub(crate) file: Option<Arc<KeptFile>>,
}

/// The executions that were kept, in the form in which a file has them.
pub(crate) type KeptFile = Mutex<Vec<(TreeName, Vec<u8>)>>;

impl<'t> Simulated<'t> {
    pub(crate) fn new(trace: &'t Trace, recovery: Recovery) -> Self {
        let options = CursorOptions {
            rules: Some(Rules::default()),
            ..CursorOptions::default()
        };
        Self {
            cursor: ImageCursor::new(trace, options).expect("a sound trace"),
            end: EventIndex(trace.event_count()),
            recovery,
            engine: Engine::Fork,
            succeeds_without_exploration: false,
            newest_fails_in_exploration: false,
            executed: Cell::new(0),
            begun: Cell::new(0),
            file: None,
        }
    }

    pub(crate) fn go_to_end(&mut self) {
        self.cursor.move_to(self.end).expect("a sound trace");
    }

    pub(crate) fn line_table(&self) -> LineTable {
        self.pools().line_table(&self.crash_table())
    }

    fn execute(
        &self,
        request: &ExploreRequest<'_>,
        prefix: &[u32],
        read: &mut BTreeMap<u64, u64>,
    ) -> (LazyExecution, bool) {
        let table = request.table;
        let watches = request.watches.iter();
        let mut memory = Memory {
            executor: self,
            table,
            unread: watches.map(|watch| (watch.offset, watch.bytes)).collect(),
            notes: Vec::new(),
            known: BTreeMap::new(),
            stored: BTreeMap::new(),
            versions: &[],
            prefix,
            choices: Vec::new(),
            read,
        };
        self.begun.set(self.begun.get() + 1);
        let mut success = (self.recovery)(&mut memory);
        let is_newest = memory.choices.iter().all(|choice| choice.class == 0);
        success &= !(is_newest && self.newest_fails_in_exploration);
        let execution = LazyExecution {
            verdict: verdict(success),
            choices: memory.choices,
            stages: vec![StageStart {
                stage: Stage::Recovery,
                choices: 0,
                notes: 0,
            }],
            log: Vec::new(),
            notes: memory.notes,
            modules: None,
        };
        (execution, success)
    }
}

fn verdict(success: bool) -> Verdict {
    if success {
        return Verdict::Success { dump: None };
    }
    Verdict::Failure(Box::new(Failure {
        stage: Stage::Recovery,
        outcome: RecoveryOutcome::Exit {
            status: 1,
            command: "recovery".to_owned(),
            output: String::new(),
        },
        backtrace: None,
    }))
}

impl Explorer for Simulated<'_> {
    fn explore(&mut self, request: &ExploreRequest<'_>) -> Result<Attempt, CheckError> {
        let wants_forks = request.branch == Branch::Fork;
        let forks = |choice: usize| match self.engine {
            Engine::Fork => wants_forks,
            Engine::ForkHalf => wants_forks && choice < 3,
            Engine::RecoveryCrash | Engine::Refuse(_) => false,
        };
        if let Engine::Refuse(reason) = self.engine {
            return Ok(Attempt::Refused {
                reason: reason.to_owned(),
            });
        }
        if self.engine == Engine::RecoveryCrash && wants_forks {
            return Ok(Attempt::NotForkable);
        }
        let mut read = BTreeMap::new();
        let mut explored = LazyExecutions::default();
        let mut pending = vec![request.prefix.to_vec()];
        while let Some(prefix) = pending.pop() {
            if explored.executions.len() as u64 >= request.max_executions {
                explored.stopped = true;
                break;
            }
            let (mut execution, _) = self.execute(request, &prefix, &mut read);
            let classes: Vec<u32> = execution
                .choices
                .iter()
                .map(|choice| choice.class.into())
                .collect();
            // Deepest first, as with forking.
            for (number, choice) in execution.choices.iter_mut().enumerate() {
                let is_new = number >= prefix.len();
                if number >= request.prefix.len() && !forks(number) {
                    choice.left = 1;
                } else if is_new {
                    for class in (1..u32::from(choice.class_count)).rev() {
                        let mut next = classes[..number].to_vec();
                        next.push(class);
                        pending.push(next);
                    }
                }
            }
            self.executed.set(self.executed.get() + 1);
            explored.executions.push(execution);
        }
        let masks = read.into_iter();
        explored.read = masks
            .map(|(offset, lines)| PageMask {
                pool: 0,
                offset,
                lines,
            })
            .collect();
        Ok(Attempt::Explored(explored))
    }

    fn read(&self, id: LineId, line_bytes: usize) -> Vec<u8> {
        let mut bytes = vec![0; line_bytes];
        let offset = PoolOffset(id.line.0 * line_bytes as u64);
        self.cursor.read(Place::new(id.pool, offset), &mut bytes);
        bytes
    }
}

impl LazyExecutor for Simulated<'_> {
    fn move_to(&mut self, at: EventIndex) -> Result<(), CheckError> {
        Ok(self.cursor.move_to(at)?)
    }

    fn crash_table(&self) -> CrashTable {
        CrashTable::of(self.cursor.frontier().expect("it is kept"))
    }

    fn pools(&self) -> Pools {
        Pools {
            paths: vec!["/mnt/pmem/pool".into()],
            indices: vec![Some(POOL)],
        }
    }

    fn explore(
        &mut self,
        _overlay: &[Patch],
        request: &ExploreRequest<'_>,
    ) -> Result<Attempt, CheckError> {
        Explorer::explore(self, request)
    }

    fn run(&mut self, state: &CrashState, _overlay: &[Patch]) -> Result<Verdict, CheckError> {
        let table = LineTable {
            line_bytes: 64,
            ..LineTable::default()
        };
        let mut read = BTreeMap::new();
        let mut memory = Memory {
            executor: self,
            table: &table,
            known: BTreeMap::new(),
            stored: BTreeMap::new(),
            unread: BTreeMap::new(),
            notes: Vec::new(),
            versions: &state.versions,
            prefix: &[],
            choices: Vec::new(),
            read: &mut read,
        };
        let success = (self.recovery)(&mut memory);
        Ok(verdict(success || self.succeeds_without_exploration))
    }

    fn rules(&self) -> Rules {
        Rules::default()
    }

    fn read(&self, at: Place, out: &mut [u8]) {
        self.cursor.read(at, out);
    }

    fn read_lines(&self, _seen: &Seen<'_>, _crash: EventIndex) -> Option<Vec<ReadLine>> {
        None
    }

    fn kept(&mut self, tree: &TreeName) -> Result<Vec<KeptWithModules>, CheckError> {
        let Some(file) = &self.file else {
            return Ok(Vec::new());
        };
        let file = file.lock().expect("no worker panics");
        let of_tree = file.iter().filter(|(name, _)| name == tree);
        let kept = of_tree.map(|(_, bytes)| postcard::from_bytes(bytes).expect("what was kept"));
        Ok(kept.map(|kept: KeptExecutions| (kept, None)).collect())
    }

    fn keep(
        &mut self,
        tree: &TreeName,
        executions: KeptExecutions,
        _modules: Option<Arc<[StageModules]>>,
    ) -> Result<(), CheckError> {
        if let Some(file) = &self.file {
            let bytes = postcard::to_extend(&executions, Vec::new()).expect("it has a form");
            file.lock().expect("no worker panics").push((*tree, bytes));
        }
        Ok(())
    }

    fn frames(&mut self, _stage: Stage, _addresses: &[u64]) -> Option<LocatedFrames> {
        None
    }

    fn stack_of(&mut self, _event: EventIndex) -> Result<StackId, CheckError> {
        Ok(StackId::NONE)
    }
}

/// The memory that a recovery sees.
pub(crate) struct Memory<'a> {
    executor: &'a Simulated<'a>,
    table: &'a LineTable,
    known: BTreeMap<usize, (Vec<u64>, ByteSet)>,
    stored: BTreeMap<u64, u64>,
    versions: &'a [(powerfail_model::LineId, usize)],
    prefix: &'a [u32],
    choices: Vec<Choice>,
    /// Of each watched line the bytes that were neither read nor stored.
    unread: BTreeMap<u64, u64>,
    notes: Vec<Note>,
    read: &'a mut BTreeMap<u64, u64>,
}

impl Memory<'_> {
    /// Loads a word of 8 bytes within one line.
    pub(crate) fn load(&mut self, offset: u64) -> u64 {
        if let Some(word) = self.stored.get(&offset) {
            return *word;
        }
        *self.read.entry(offset - offset % 4096).or_default() |= 1 << (offset % 4096 / 64);
        let from = (offset % LINE as u64) as usize;
        let mut content = self.content(offset - from as u64);
        let table = self.table;
        let place = table
            .lines
            .iter()
            .position(|line| line.offset == offset - from as u64);
        if let Some(place) = place {
            let contents = &table.lines[place].contents;
            let (possible, overwritten) = self.known.entry(place).or_insert_with(|| {
                let words = words_for(contents.len() / LINE);
                let mut possible = vec![0; words];
                let mut overwritten = ByteSet::EMPTY;
                let knowledge = Knowledge {
                    possible: &mut possible,
                    overwritten: &mut overwritten,
                };
                Line::new(contents, LINE, knowledge).forget();
                (possible, overwritten)
            });
            let knowledge = Knowledge {
                possible,
                overwritten,
            };
            let mut line = Line::new(contents, LINE, knowledge);
            let classes = line
                .classes::<64>(from, from + WORD)
                .expect("few values are possible");
            let firsts = classes.firsts();
            let mut class = 0;
            if firsts.len() > 1 {
                let next = self.choices.len();
                class = self.prefix.get(next).map_or(0, |class| *class as usize);
                class = class.min(firsts.len() - 1);
                let mut choice = Choice {
                    line: u32::try_from(place).expect("few lines"),
                    from: u16::try_from(from).expect("in a line"),
                    to: u16::try_from(from + WORD).expect("in a line"),
                    class_count: u16::try_from(firsts.len()).expect("few"),
                    class: u16::try_from(class).expect("few"),
                    content: firsts[class],
                    observed: line.open_bytes(from, from + WORD).words(),
                    ..Choice::default()
                };
                choice.frames[0] = 0x1000 + offset;
                self.choices.push(choice);
            }
            let content_number = firsts[class] as usize;
            line.observe(from, from + WORD, content_number);
            content = line.content(content_number).to_vec();
        }
        self.note(offset);
        let mut word = [0; WORD];
        word.copy_from_slice(&content[from..from + WORD]);
        u64::from_le_bytes(word)
    }

    /// Notes the first read of a word, as the runtime does.
    fn note(&mut self, offset: u64) {
        let line = offset - offset % LINE as u64;
        let Some(unread) = self.unread.get_mut(&line) else {
            return;
        };
        let bytes = *unread & 0xff << (offset - line);
        *unread &= !bytes;
        if bytes != 0 {
            let load = NotedLoad {
                number: u32::try_from(self.notes.len()).expect("few loads"),
                from: u16::try_from(offset % 4096).expect("in a page"),
                to: u16::try_from(offset % 4096).expect("in a page") + 8,
                ..NotedLoad::default()
            };
            let mut note = Note {
                offset: line,
                bytes,
                ..Note::default()
            };
            note.frames[0] = 0x1000 + offset;
            self.notes.push(note.with_load(load));
        }
    }

    /// How many executions have begun before, which no recovery should depend on.
    pub(crate) fn executions_before(&self) -> u64 {
        self.executor.begun.get()
    }

    /// Stores a word of 8 bytes.
    pub(crate) fn store(&mut self, offset: u64, word: u64) {
        let line = offset - offset % LINE as u64;
        if let Some(unread) = self.unread.get_mut(&line) {
            *unread &= !(0xff << (offset - line));
        }
        self.stored.insert(offset, word);
    }

    /// The content that a line is known to hold, or the one that the crash state gives it.
    fn content(&self, start: u64) -> Vec<u8> {
        let cursor = &self.executor.cursor;
        let version = self
            .versions
            .iter()
            .find(|(line, _)| line.line.0 * LINE as u64 == start);
        if let Some((line, version)) = version {
            let line = cursor.frontier().and_then(|it| it.open_line(*line));
            return line.expect("an open line").version(*version);
        }
        let mut content = vec![0; LINE];
        cursor.read(Place::new(POOL, PoolOffset(start)), &mut content);
        content
    }
}
