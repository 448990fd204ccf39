//! One state of a program under exploration, packed into words so that millions of them fit.
//!
//! Values are interned, so a word holds any of them. The layout is fixed for a program:
//!
//! ```text
//! per thread: position | stuck flag, buffer bits (two words)
//! registers of all threads | cache, a word per variable | durable, a word per variable
//! ```

use super::ops::{Program, RegisterId, VariableId};

/// A value, interned by [`Values`].
pub(super) type Word = u32;

/// In a register: not assigned (or no longer needed). In `durable`: the line is still live.
pub(super) const NONE: Word = Word::MAX;

/// The values that occur, numbered.
#[derive(Debug, Default)]
pub(super) struct Values {
    numbers: Vec<i64>,
    words: rustc_hash::FxHashMap<i64, Word>,
}

impl Values {
    pub(super) fn word(&mut self, number: i64) -> Word {
        *self.words.entry(number).or_insert_with(|| {
            self.numbers.push(number);
            Word::try_from(self.numbers.len() - 1).expect("fewer values than states")
        })
    }

    pub(super) fn number(&self, word: Word) -> i64 {
        self.numbers[word as usize]
    }
}

/// Where the parts of a state are.
#[derive(Debug)]
pub(super) struct Layout {
    threads: usize,
    /// First register of each thread.
    registers: Vec<usize>,
    cache: usize,
    durable: usize,
    len: usize,
}

const WORDS_PER_THREAD: usize = 3;
const STUCK: Word = 1 << 31;

impl Layout {
    pub(super) fn new(program: &Program) -> Self {
        let mut next = program.threads.len() * WORDS_PER_THREAD;
        let mut registers = Vec::new();
        for thread in &program.threads {
            registers.push(next);
            next += thread.register_count;
        }
        let cache = next;
        let durable = cache + program.lines.len();
        let len = durable + program.lines.len();
        Self {
            threads: program.threads.len(),
            registers,
            cache,
            durable,
            len,
        }
    }

    pub(super) fn initial(&self, program: &Program, values: &mut Values) -> State {
        let mut words = vec![0; self.len].into_boxed_slice();
        words[self.threads * WORDS_PER_THREAD..self.cache].fill(NONE);
        for (variable, &number) in program.initial.iter().enumerate() {
            words[self.cache + variable] = values.word(number);
        }
        words[self.durable..].fill(NONE);
        State { words }
    }
}

/// A state of a program, packed into words. Equality and hash are those of the words.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    words: Box<[Word]>,
}

impl State {
    /// The next operation of the thread that has not executed.
    pub(super) fn position(&self, thread: usize) -> usize {
        (self.words[thread * WORDS_PER_THREAD] & !STUCK) as usize
    }

    pub(super) fn step(&mut self, thread: usize) {
        self.words[thread * WORDS_PER_THREAD] += 1;
    }

    /// Whether no fence of the thread can complete any more, because a non-temporal store that it
    /// would make durable is known to be lost.
    pub(super) fn is_stuck(&self, thread: usize) -> bool {
        self.words[thread * WORDS_PER_THREAD] & STUCK != 0
    }

    pub(super) fn set_stuck(&mut self, thread: usize) {
        self.words[thread * WORDS_PER_THREAD] |= STUCK;
    }

    /// The operations in the thread's buffer, one bit each.
    pub(super) fn buffer(&self, thread: usize) -> u64 {
        let at = thread * WORDS_PER_THREAD;
        u64::from(self.words[at + 1]) | u64::from(self.words[at + 2]) << 32
    }

    pub(super) fn set_buffer(&mut self, thread: usize, bits: u64) {
        let at = thread * WORDS_PER_THREAD;
        self.words[at + 1] = bits as u32;
        self.words[at + 2] = (bits >> 32) as u32;
    }

    pub(super) fn register(&self, layout: &Layout, thread: usize, register: RegisterId) -> Word {
        self.words[layout.registers[thread] + register.0]
    }

    pub(super) fn set_register(
        &mut self,
        layout: &Layout,
        thread: usize,
        register: RegisterId,
        value: Word,
    ) {
        self.words[layout.registers[thread] + register.0] = value;
    }

    /// All registers, thread by thread.
    pub(super) fn registers(&self, layout: &Layout) -> &[Word] {
        &self.words[layout.threads * WORDS_PER_THREAD..layout.cache]
    }

    pub(super) fn cache(&self, layout: &Layout) -> &[Word] {
        &self.words[layout.cache..layout.durable]
    }

    pub(super) fn cached(&self, layout: &Layout, variable: VariableId) -> Word {
        self.words[layout.cache + variable.0]
    }

    pub(super) fn set_cached(&mut self, layout: &Layout, variable: VariableId, value: Word) {
        self.words[layout.cache + variable.0] = value;
    }

    /// What memory holds for good, or [`NONE`] while the variable's line is live.
    pub(super) fn durable(&self, layout: &Layout, variable: VariableId) -> Word {
        self.words[layout.durable + variable.0]
    }

    pub(super) fn set_durable(&mut self, layout: &Layout, variable: VariableId, value: Word) {
        self.words[layout.durable + variable.0] = value;
    }
}
