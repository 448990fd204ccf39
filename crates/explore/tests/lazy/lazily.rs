//! Runs a recovery lazily, like the runtime: at a load from an open line it asks which values can be observed, and
//! chooses if there are several. Branches by running again with a longer list of choices.

use std::collections::BTreeSet;

use powerfail_explore::lazy::nested::CrashPoint;
use powerfail_explore::lazy::{CrashTable, Observed, Seen};
use powerfail_model::LineId;
use powerfail_protocol::observe::{ByteSet, Knowledge, Line, words_for};

use crate::machine::{Behaviour, Logged, Memory, Program, run};

struct OpenLine {
    contents: Vec<u8>,
    possible: Vec<u64>,
    overwritten: ByteSet,
}

impl OpenLine {
    fn line(&mut self, line_bytes: usize) -> Line<'_> {
        let knowledge = Knowledge {
            possible: &mut self.possible,
            overwritten: &mut self.overwritten,
        };
        Line::new(&self.contents, line_bytes, knowledge)
    }
}

/// Memory whose open lines are decided on when they are loaded.
pub(crate) struct LazyMemory<'t> {
    table: &'t CrashTable,
    pool: Vec<u8>,
    lines: Vec<OpenLine>,
    prefix: &'t [u32],
    /// The value taken at each choice, and the number of possible values.
    taken: Vec<(u32, u32)>,
    pub(crate) observed: Vec<Observed>,
}

impl<'t> LazyMemory<'t> {
    pub(crate) fn new(table: &'t CrashTable, pool: Vec<u8>, prefix: &'t [u32]) -> Self {
        let lines = table.lines.iter().map(|line| {
            let mut open = OpenLine {
                contents: line.flat(),
                possible: vec![0; words_for(line.contents.len())],
                overwritten: ByteSet::EMPTY,
            };
            open.line(table.line_bytes).forget();
            open
        });
        Self {
            table,
            pool,
            lines: lines.collect(),
            prefix,
            taken: Vec::new(),
            observed: Vec::new(),
        }
    }

    /// The lines that a range touches: index in the table, first byte of the line, range in it.
    fn open_parts(&self, at: u64, len: usize) -> Vec<(usize, usize, usize, usize)> {
        let line_bytes = self.table.line_bytes;
        let (at, end) = (at as usize, at as usize + len);
        let mut parts = Vec::new();
        for number in at / line_bytes..=(end - 1) / line_bytes {
            let start = number * line_bytes;
            let id = LineId {
                line: powerfail_model::LineIndex(number as u64),
                ..LineId::default()
            };
            if let Some(place) = self.table.index_of(id) {
                let (from, to) = (at.max(start) - start, end.min(start + line_bytes) - start);
                parts.push((place, start, from, to));
            }
        }
        parts
    }
}

impl Memory for LazyMemory<'_> {
    fn load(&mut self, at: u64, out: &mut [u8]) {
        let line_bytes = self.table.line_bytes;
        for (place, start, from, to) in self.open_parts(at, out.len()) {
            let mut line = self.lines[place].line(line_bytes);
            let classes = line.classes::<64>(from, to).expect("few values");
            let count = classes.firsts().len();
            if count < 2 {
                continue;
            }
            let class = self.prefix.get(self.taken.len()).copied().unwrap_or(0);
            let content = classes.firsts()[class as usize] as usize;
            self.taken.push((class, u32::try_from(count).unwrap()));
            self.observed.push(Observed {
                line: place,
                bytes: line.open_bytes(from, to),
                content,
            });
            line.observe(from, to, content);
            let newest = line.newest_possible().expect("what was chosen is possible");
            line.fill(newest, &mut self.pool[start..start + line_bytes]);
        }
        out.copy_from_slice(&self.pool[at as usize..at as usize + out.len()]);
    }

    fn store(&mut self, at: u64, bytes: &[u8]) {
        let line_bytes = self.table.line_bytes;
        if !bytes.is_empty() {
            for (place, _, from, to) in self.open_parts(at, bytes.len()) {
                self.lines[place].line(line_bytes).overwrite(from, to);
            }
        }
        self.pool[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
    }

    fn choices(&self) -> usize {
        self.taken.len()
    }
}

/// One execution.
#[derive(Clone, Debug)]
pub(crate) struct Execution {
    pub(crate) behaviour: Behaviour,
    pub(crate) observed: Vec<Observed>,
    pub(crate) log: Vec<Logged>,
    /// Lines of the table that were loaded from at all.
    pub(crate) touched: BTreeSet<LineId>,
}

/// All executions after a crash. `pool` is that of the first failure point, everything newest.
pub(crate) fn explore(program: &Program, crash: &CrashPoint, pool: &[u8]) -> Vec<Execution> {
    let table = &crash.table;
    let mut pool = pool.to_vec();
    for (id, bytes) in crash.overlay.lines() {
        let start = id.line.0 as usize * table.line_bytes;
        pool[start..start + table.line_bytes].copy_from_slice(bytes);
    }
    for line in &table.lines {
        let start = line.id.line.0 as usize * table.line_bytes;
        assert_eq!(
            line.contents[0].bytes,
            pool[start..start + table.line_bytes],
            "the image holds the newest content"
        );
    }
    let mut executions = Vec::new();
    let mut work = vec![Vec::new()];
    while let Some(prefix) = work.pop() {
        let mut memory = Tracking {
            memory: LazyMemory::new(table, pool.clone(), &prefix),
            touched: BTreeSet::new(),
        };
        let (behaviour, log) = run(program, &mut memory);
        let Tracking { memory, touched } = memory;
        for at in prefix.len()..memory.taken.len() {
            for class in 1..memory.taken[at].1 {
                let taken = memory.taken[..at].iter().map(|taken| taken.0);
                work.push(taken.chain([class]).collect());
            }
        }
        // Following the choices from outside gives the same knowledge as the recovery itself has.
        let seen = Seen::of(table, memory.observed.iter().copied()).expect("choices fit");
        let mut lines = memory.lines;
        for (number, line) in lines.iter_mut().enumerate() {
            let possible: Vec<usize> = line.line(table.line_bytes).possible().collect();
            assert_eq!(seen.possible(number), possible);
        }
        executions.push(Execution {
            behaviour,
            observed: memory.observed,
            log,
            touched,
        });
    }
    executions
}

/// Notes the lines that are loaded from.
struct Tracking<'t> {
    memory: LazyMemory<'t>,
    touched: BTreeSet<LineId>,
}

impl Memory for Tracking<'_> {
    fn load(&mut self, at: u64, out: &mut [u8]) {
        let line_bytes = self.memory.table.line_bytes as u64;
        for line in at / line_bytes..=(at + out.len() as u64 - 1) / line_bytes {
            self.touched.insert(LineId {
                line: powerfail_model::LineIndex(line),
                ..LineId::default()
            });
        }
        self.memory.load(at, out);
    }

    fn store(&mut self, at: u64, bytes: &[u8]) {
        self.memory.store(at, bytes);
    }

    fn choices(&self) -> usize {
        self.memory.choices()
    }
}
