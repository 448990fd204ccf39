//! The exhaustive search.
//!
//! What memory holds after a crash is, for each line, its cache content at some moment: the moment
//! it was last written back. Instead of writing lines back at all possible moments, the search
//! *freezes* a line: just before a store changes it in the cache, it may decide that memory keeps
//! the present content until the crash. From then on no flush of that line can complete. A line
//! that was never frozen has its cache content. This has three pleasant effects:
//!
//! - a flush changes nothing but forbids a frozen line, so it completes as soon as it may;
//! - the history of a line is not part of the state, so states that differ only in it are one;
//! - a crash before a store and a store whose line was frozen leave the same memory, so a store to
//!   a line that no other thread will touch need not be interleaved with anything.
//!
//! Visited states are remembered. Operations enter the buffer as soon as they are reached, because
//! no thread can see that; fences complete as soon as they may; a load of a variable that no other thread
//! will write, and a store to a line that no other thread will touch, go first and alone.

use std::collections::BTreeSet;

use rustc_hash::FxHashSet;

use super::ops::{CrashMoment, NonTemporal, Op, Operand, Program, VariableId, keeps_order};
use super::state::{Layout, NONE, State, Values, Word};
use crate::event::{FenceKind, FlushKind};
use crate::rules::Domain;

/// The program has more states than the search was allowed to visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyStates {
    /// How many it was allowed.
    pub limit: usize,
}

/// What a program can do when the power does not fail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// The registers at the end, thread by thread.
    pub registers: BTreeSet<Vec<i64>>,
    /// The variables at the end, all buffers empty.
    pub memory: BTreeSet<Vec<i64>>,
}

/// The contents of the variables that a crash can leave, after a search of at most `state_limit`
/// states.
pub fn crash_states(
    program: &Program,
    domain: Domain,
    moment: CrashMoment,
    non_temporal: NonTemporal,
    state_limit: usize,
) -> Result<BTreeSet<Vec<i64>>, TooManyStates> {
    let mut search = Search::new(program, Question::Crash { domain, moment }, non_temporal);
    let mut found: FxHashSet<Vec<Word>> = FxHashSet::default();
    search.run(state_limit, |search, state| {
        if search.may_crash(state) {
            let memory = search.memory_after_crash(state);
            if !found.contains(&memory) {
                found.insert(memory);
            }
        }
    })?;
    Ok(found.iter().map(|words| search.numbers(words)).collect())
}

/// The registers and the memory with which the program can end, after a search of at most
/// `state_limit` states.
pub fn outcomes(
    program: &Program,
    non_temporal: NonTemporal,
    state_limit: usize,
) -> Result<Outcomes, TooManyStates> {
    let mut search = Search::new(program, Question::Outcomes, non_temporal);
    let mut outcomes = Outcomes::default();
    search.run(state_limit, |search, state| {
        if search.is_complete(state) {
            outcomes
                .registers
                .insert(search.numbers(state.registers(&search.layout)));
            outcomes
                .memory
                .insert(search.numbers(state.cache(&search.layout)));
        }
    })?;
    Ok(outcomes)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Question {
    Crash { domain: Domain, moment: CrashMoment },
    Outcomes,
}

/// What is known of a thread before the search, by operation or by position.
struct ThreadTable {
    /// For each operation, the older ones that must leave the buffer before it.
    before: Vec<u64>,
    /// For each variable, the operations that store to it through the buffer.
    buffered_writes: Vec<u64>,
    /// For each position, the variables that operations from there on read.
    reads_from: Vec<u64>,
    /// For each position, the variables that operations from there on may write.
    writes_from: Vec<u64>,
    /// For each position, the lines that operations from there on touch.
    touches_from: Vec<u64>,
    /// Operations that must leave the buffer before the end and find their line not frozen.
    needs_live_line: u64,
}

struct Search<'p> {
    program: &'p Program,
    question: Question,
    non_temporal: NonTemporal,
    layout: Layout,
    values: Values,
    tables: Vec<ThreadTable>,
    /// The variables of each line.
    members: Vec<Vec<VariableId>>,
}

fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (bit < 64).then_some(bit)
    })
}

fn bit_of(index: usize) -> u64 {
    1 << index
}

impl<'p> Search<'p> {
    fn new(program: &'p Program, question: Question, non_temporal: NonTemporal) -> Self {
        let line_count = program.lines.iter().max().map_or(0, |line| line + 1);
        let mut members = vec![Vec::new(); line_count];
        for (variable, &line) in program.lines.iter().enumerate() {
            members[line].push(VariableId(variable));
        }
        let tables = program
            .threads
            .iter()
            .map(|thread| ThreadTable::new(program, &thread.ops, non_temporal))
            .collect();
        let layout = Layout::new(program);
        Self {
            program,
            question,
            non_temporal,
            layout,
            values: Values::default(),
            tables,
            members,
        }
    }

    fn run(
        &mut self,
        state_limit: usize,
        mut visit: impl FnMut(&Self, &State),
    ) -> Result<(), TooManyStates> {
        let mut start = self.layout.initial(self.program, &mut self.values);
        self.settle(&mut start);
        let mut seen = FxHashSet::default();
        seen.insert(start.clone());
        let mut stack = vec![start];
        let mut next = Vec::new();
        while let Some(state) = stack.pop() {
            visit(self, &state);
            self.successors(&state, &mut next);
            for mut state in next.drain(..) {
                self.settle(&mut state);
                if !seen.contains(&state) {
                    if seen.len() >= state_limit {
                        return Err(TooManyStates { limit: state_limit });
                    }
                    seen.insert(state.clone());
                    stack.push(state);
                }
            }
        }
        Ok(())
    }

    fn numbers(&self, words: &[Word]) -> Vec<i64> {
        // A register that was never assigned, because its operation does not exist, reads as 0.
        words
            .iter()
            .map(|&word| {
                if word == NONE {
                    0
                } else {
                    self.values.number(word)
                }
            })
            .collect()
    }

    fn ops(&self, thread: usize) -> &'p [Op] {
        &self.program.threads[thread].ops
    }

    fn thread_count(&self) -> usize {
        self.program.threads.len()
    }

    fn domain(&self) -> Option<Domain> {
        match self.question {
            Question::Crash { domain, .. } => Some(domain),
            Question::Outcomes => None,
        }
    }

    fn is_frozen(&self, state: &State, variable: VariableId) -> bool {
        state.durable(&self.layout, variable) != NONE
    }

    /// The buffered operations of a thread that nothing older holds back.
    fn free_entries(&self, state: &State, thread: usize) -> u64 {
        let buffer = state.buffer(thread);
        let before = &self.tables[thread].before;
        bits(buffer)
            .filter(|&op| buffer & before[op] == 0)
            .map(bit_of)
            .sum()
    }

    // Moments.

    fn all_executed(&self, state: &State) -> bool {
        (0..self.thread_count()).all(|thread| state.position(thread) == self.ops(thread).len())
    }

    fn is_complete(&self, state: &State) -> bool {
        self.all_executed(state) && (0..self.thread_count()).all(|t| state.buffer(t) == 0)
    }

    fn may_crash(&self, state: &State) -> bool {
        match self.question {
            Question::Outcomes => false,
            Question::Crash {
                moment: CrashMoment::Any,
                ..
            } => true,
            Question::Crash {
                moment: CrashMoment::End,
                ..
            } => {
                self.all_executed(state)
                    && (0..self.thread_count()).all(|thread| {
                        bits(state.buffer(thread)).all(|op| {
                            matches!(
                                self.ops(thread)[op],
                                Op::NonTemporalStore(..)
                                    | Op::Flush(FlushKind::Clflushopt | FlushKind::Clwb, _)
                            )
                        })
                    })
            }
        }
    }

    fn memory_after_crash(&self, state: &State) -> Vec<Word> {
        (0..self.program.lines.len())
            .map(VariableId)
            .map(|variable| match state.durable(&self.layout, variable) {
                NONE => state.cached(&self.layout, variable),
                durable => durable,
            })
            .collect()
    }

    // What happens at once, because no other order makes a difference.

    fn settle(&mut self, state: &mut State) {
        let mut changed = true;
        while changed {
            changed = false;
            for thread in 0..self.thread_count() {
                changed |= self.settle_thread(state, thread);
            }
        }
        self.forget(state);
    }

    fn settle_thread(&self, state: &mut State, thread: usize) -> bool {
        let ops = self.ops(thread);
        let mut changed = false;
        while let Some(op) = ops.get(state.position(thread)) {
            let enters = op.is_buffered();
            let passes = matches!(op, Op::Fence(FenceKind::Mfence | FenceKind::Locked))
                && state.buffer(thread) == 0
                && !state.is_stuck(thread);
            if enters {
                let entry = bit_of(state.position(thread));
                state.set_buffer(thread, state.buffer(thread) | entry);
            } else if !passes {
                break;
            }
            state.step(thread);
            changed = true;
        }
        let mut left = 0;
        for op in bits(self.free_entries(state, thread)) {
            let leaves = match ops[op] {
                Op::Flush(_, variable) => {
                    self.domain() == Some(Domain::PageCache) || !self.is_frozen(state, variable)
                }
                Op::Fence(_) => !state.is_stuck(thread),
                Op::Store(variable, _) => self.is_invisible(state, variable),
                _ => false,
            };
            if leaves {
                left |= bit_of(op);
            }
        }
        state.set_buffer(thread, state.buffer(thread) & !left);
        changed || left != 0
    }

    /// Whether a store to the variable can neither be read nor become durable.
    fn is_invisible(&self, state: &State, variable: VariableId) -> bool {
        self.domain().is_some_and(|domain| domain != Domain::Eadr)
            && self.is_frozen(state, variable)
            && !self.is_read_later(state, variable)
    }

    fn is_read_later(&self, state: &State, variable: VariableId) -> bool {
        (0..self.thread_count()).any(|thread| {
            self.tables[thread].reads_from[state.position(thread)] & bit_of(variable.0) != 0
        })
    }

    /// Wipes what can no longer matter, so that states that differ only in it are one.
    fn forget(&mut self, state: &mut State) {
        if self.question == Question::Outcomes {
            return;
        }
        for thread in 0..self.thread_count() {
            let ops = self.ops(thread);
            let (position, buffer) = (state.position(thread), state.buffer(thread));
            let needed = (0..ops.len())
                .filter(|&op| op >= position || buffer & bit_of(op) != 0)
                .flat_map(|op| ops[op].uses())
                .fold(0, |mask, register| mask | bit_of(register.0));
            for register in 0..self.program.threads[thread].register_count {
                if needed & bit_of(register) == 0 {
                    let register = super::RegisterId(register);
                    state.set_register(&self.layout, thread, register, NONE);
                }
            }
        }
        for variable in (0..self.program.lines.len()).map(VariableId) {
            if self.is_frozen(state, variable) && !self.is_read_later(state, variable) {
                state.set_cached(&self.layout, variable, 0);
            }
        }
    }

    // What can happen next.

    fn successors(&mut self, state: &State, next: &mut Vec<State>) {
        let frozen = |variable| self.is_frozen(state, VariableId(variable));
        if self.question != Question::Outcomes
            && self.domain() != Some(Domain::Eadr)
            && matches!(
                self.question,
                Question::Crash {
                    moment: CrashMoment::Any,
                    ..
                }
            )
            && (0..self.program.lines.len()).all(frozen)
        {
            return;
        }
        for thread in 0..self.thread_count() {
            if self.next_op_is_private(state, thread) {
                return self.execute(state, thread, next);
            }
            let private = bits(self.free_entries(state, thread))
                .find(|&op| self.entry_is_private(state, thread, op));
            if let Some(op) = private {
                self.leave(state, thread, op, next);
                return self.never_leave(state, thread, op, next);
            }
        }
        for thread in 0..self.thread_count() {
            self.execute(state, thread, next);
            for op in bits(self.free_entries(state, thread)) {
                self.leave(state, thread, op, next);
            }
        }
    }

    /// Whether the operation at the thread's position commutes with all that others can still do.
    fn next_op_is_private(&self, state: &State, thread: usize) -> bool {
        match self.ops(thread).get(state.position(thread)) {
            Some(Op::Load(variable, _)) => !self.others(thread).any(|other| {
                let table = &self.tables[other];
                let later = table.writes_from[state.position(other)] & bit_of(variable.0);
                let buffered = table.buffered_writes[variable.0] & state.buffer(other);
                later | buffered != 0
            }),
            Some(Op::Add(variable, ..) | Op::CompareAndSwap(variable, ..)) => {
                state.buffer(thread) == 0
                    && !state.is_stuck(thread)
                    && self.line_is_private(state, thread, *variable)
            }
            _ => false,
        }
    }

    fn entry_is_private(&self, state: &State, thread: usize, op: usize) -> bool {
        match self.ops(thread)[op] {
            Op::Store(variable, _) => self.line_is_private(state, thread, variable),
            Op::NonTemporalStore(variable, _) => {
                self.line_is_private(state, thread, variable)
                    && (self.is_visible_first() || !self.is_frozen(state, variable))
            }
            _ => false,
        }
    }

    /// Whether no other thread touches the line any more. With durable caches the crash must be
    /// interleaved with every store, so no line is private.
    fn line_is_private(&self, state: &State, thread: usize, variable: VariableId) -> bool {
        let line = self.program.line_of(variable);
        self.domain() != Some(Domain::Eadr)
            && !self.others(thread).any(|other| {
                self.tables[other].touches_from[state.position(other)] & bit_of(line) != 0
                    || bits(state.buffer(other)).any(|op| {
                        self.ops(other)[op]
                            .touches()
                            .is_some_and(|variable| self.program.line_of(variable) == line)
                    })
            })
    }

    fn others(&self, thread: usize) -> impl Iterator<Item = usize> + use<> {
        (0..self.thread_count()).filter(move |&other| other != thread)
    }

    /// Executes the load or locked operation at the thread's position, if it can.
    fn execute(&mut self, state: &State, thread: usize, next: &mut Vec<State>) {
        let Some(&op) = self.ops(thread).get(state.position(thread)) else {
            return;
        };
        match op {
            Op::Load(variable, register) => {
                let buffered =
                    state.buffer(thread) & self.tables[thread].buffered_writes[variable.0];
                let value = match buffered.checked_ilog2() {
                    Some(newest) => self.stored_value(state, thread, newest as usize),
                    None => state.cached(&self.layout, variable),
                };
                let mut state = state.clone();
                state.set_register(&self.layout, thread, register, value);
                state.step(thread);
                next.push(state);
            }
            Op::Add(variable, _, register) | Op::CompareAndSwap(variable, _, _, register)
                if state.buffer(thread) == 0 && !state.is_stuck(thread) =>
            {
                let old = state.cached(&self.layout, variable);
                let mut after = state.clone();
                after.set_register(&self.layout, thread, register, old);
                after.step(thread);
                match self.locked_result(state, thread, op, old) {
                    None => next.push(after),
                    Some(_) if !self.may_store(state, variable) => {}
                    Some(new) => self.store(&after, variable, new, next),
                }
            }
            _ => {}
        }
    }

    /// What a locked operation writes, if it does: also the value that is there already.
    fn locked_result(&mut self, state: &State, thread: usize, op: Op, old: Word) -> Option<Word> {
        match op {
            Op::Add(_, addend, _) => {
                let addend = self.value(state, thread, addend);
                let sum = self
                    .values
                    .number(old)
                    .wrapping_add(self.values.number(addend));
                Some(self.values.word(sum))
            }
            Op::CompareAndSwap(_, expected, new, _) => {
                let equal = self.value(state, thread, expected) == old;
                equal.then(|| self.value(state, thread, new))
            }
            _ => None,
        }
    }

    /// Lets a store or non-temporal store leave the buffer.
    fn leave(&mut self, state: &State, thread: usize, op: usize, next: &mut Vec<State>) {
        let ops = self.ops(thread);
        let Some(variable) = ops[op].writes() else {
            return;
        };
        let value = self.stored_value(state, thread, op);
        let mut after = state.clone();
        after.set_buffer(thread, state.buffer(thread) & !bit_of(op));
        let has_domain = !matches!(self.domain(), None | Some(Domain::PageCache));
        let is_non_temporal = matches!(ops[op], Op::NonTemporalStore(..)) && has_domain;
        if !is_non_temporal {
            if self.may_store(state, variable) {
                self.store(&after, variable, value, next);
            }
        } else if self.is_visible_first() {
            let first = next.len();
            self.write(
                &after,
                variable,
                value,
                self.may_freeze(state, variable),
                next,
            );
            for state in &mut next[first..] {
                if self.is_frozen(state, variable) {
                    state.set_stuck(thread);
                }
            }
        } else if !self.is_frozen(state, variable) {
            after.set_cached(&self.layout, variable, value);
            next.push(after);
        }
    }

    /// Whether a non-temporal store can be visible before it is durable.
    fn is_visible_first(&self) -> bool {
        self.non_temporal == NonTemporal::DurableAtFence
            || matches!(self.domain(), None | Some(Domain::PageCache))
    }

    /// A non-temporal store that is durable when it leaves has no frozen line behind it: instead,
    /// its line is frozen before, and it stays in the buffer until the crash.
    fn never_leave(&self, state: &State, thread: usize, op: usize, next: &mut Vec<State>) {
        let Op::NonTemporalStore(variable, _) = self.ops(thread)[op] else {
            return;
        };
        if !self.is_visible_first() && self.may_freeze(state, variable) {
            next.push(self.freeze(state, state.clone(), variable));
        }
    }

    /// Memory keeps what the variable's line holds in the cache of `before`, until the crash.
    fn freeze(&self, before: &State, mut after: State, variable: VariableId) -> State {
        for &member in &self.members[self.program.line_of(variable)] {
            after.set_durable(&self.layout, member, before.cached(&self.layout, member));
        }
        after
    }

    /// Whether an ordinary store to the variable can enter the cache: where caches are durable it
    /// would bring its line up to date, so the line must not be frozen.
    fn may_store(&self, state: &State, variable: VariableId) -> bool {
        self.domain() != Some(Domain::Eadr) || !self.is_frozen(state, variable)
    }

    /// Writes to the cache as an ordinary store.
    fn store(&mut self, state: &State, variable: VariableId, value: Word, next: &mut Vec<State>) {
        let may_freeze = self.domain() != Some(Domain::Eadr) && self.may_freeze(state, variable);
        self.write(state, variable, value, may_freeze, next);
    }

    /// Writes to the cache; where the line's old content may stay in memory for good, also that.
    fn write(
        &self,
        state: &State,
        variable: VariableId,
        value: Word,
        may_freeze: bool,
        next: &mut Vec<State>,
    ) {
        let mut after = state.clone();
        after.set_cached(&self.layout, variable, value);
        let changes = state.cached(&self.layout, variable) != value;
        if changes && may_freeze && !self.is_frozen(state, variable) {
            next.push(self.freeze(state, after.clone(), variable));
        }
        next.push(after);
    }

    fn may_freeze(&self, state: &State, variable: VariableId) -> bool {
        let line = self.program.line_of(variable);
        match self.question {
            Question::Outcomes => false,
            // Only a non-temporal store can be in the cache and not in memory, and only if so read.
            Question::Crash {
                domain: Domain::Eadr,
                ..
            } => self.non_temporal == NonTemporal::DurableAtFence,
            Question::Crash {
                moment: CrashMoment::Any,
                ..
            } => true,
            Question::Crash {
                moment: CrashMoment::End,
                domain,
            } => {
                // A frozen line that something must still make durable leads nowhere.
                domain == Domain::PageCache
                    || !(0..self.thread_count()).any(|thread| {
                        let position = state.position(thread);
                        bits(self.tables[thread].needs_live_line).any(|op| {
                            (op >= position || state.buffer(thread) & bit_of(op) != 0)
                                && self.ops(thread)[op]
                                    .touches()
                                    .is_some_and(|variable| self.program.line_of(variable) == line)
                        })
                    })
            }
        }
    }

    fn stored_value(&mut self, state: &State, thread: usize, op: usize) -> Word {
        match self.ops(thread)[op] {
            Op::Store(_, operand) | Op::NonTemporalStore(_, operand) => {
                self.value(state, thread, operand)
            }
            _ => NONE,
        }
    }

    fn value(&mut self, state: &State, thread: usize, operand: Operand) -> Word {
        match operand {
            Operand::Number(number) => self.values.word(number),
            Operand::Register(register) => state.register(&self.layout, thread, register),
        }
    }
}

impl ThreadTable {
    fn new(program: &Program, ops: &[Op], non_temporal: NonTemporal) -> Self {
        let line_of = |op: Op| op.touches().map(|variable| program.line_of(variable));
        let before = (0..ops.len())
            .map(|newer| {
                (0..newer)
                    .filter(|&older| {
                        let same_line = line_of(ops[older]) == line_of(ops[newer]);
                        keeps_order(ops[older], ops[newer], same_line, non_temporal)
                    })
                    .fold(0, |mask, older| mask | bit_of(older))
            })
            .collect();
        let mut buffered_writes = vec![0; program.lines.len()];
        for (index, op) in ops.iter().enumerate() {
            if let (true, Some(variable)) = (op.is_buffered(), op.writes()) {
                buffered_writes[variable.0] |= bit_of(index);
            }
        }
        let from = |bit: &dyn Fn(Op) -> Option<usize>| {
            let mut masks = vec![0; ops.len() + 1];
            for index in (0..ops.len()).rev() {
                masks[index] = masks[index + 1] | bit(ops[index]).map_or(0, bit_of);
            }
            masks
        };
        let needs_live_line = (0..ops.len())
            .filter(|&index| match ops[index] {
                Op::Flush(FlushKind::Clflush, _) => true,
                Op::Flush(..) => ops[index..].iter().any(|op| op.is_fence()),
                Op::NonTemporalStore(..) => {
                    non_temporal != NonTemporal::DurableAtFence
                        && ops[index..].iter().any(|op| op.is_fence())
                }
                _ => false,
            })
            .fold(0, |mask, index| mask | bit_of(index));
        Self {
            before,
            buffered_writes,
            reads_from: from(&|op| op.reads().map(|variable| variable.0)),
            writes_from: from(&|op| op.writes().map(|variable| variable.0)),
            touches_from: from(&line_of),
            needs_live_line,
        }
    }
}
