//! Every execution of a litmus program, step by step, with lists for buffers and whole histories
//! for lines.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use powerfail_model::program::{CrashMoment, NonTemporal, Op, Operand, Program};
use powerfail_model::{FenceKind, FlushKind};

#[derive(Clone, PartialEq, Eq, Hash)]
struct Thread {
    next: usize,
    /// Operations in the buffer with the value they store.
    buffer: Vec<(usize, i64)>,
    registers: Vec<i64>,
    /// Non-temporal stores that are visible and become durable at the next fence: line, and length of its history.
    promises: Vec<(usize, usize)>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Machine {
    threads: Vec<Thread>,
    cache: Vec<i64>,
    lines: Vec<Line>,
}

/// A line: all of its contents in the cache so far, and how many of them are guaranteed to be durable.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Line {
    history: Vec<Vec<i64>>,
    sure: usize,
    sure_eadr: usize,
}

impl Line {
    fn raise(&mut self, to: usize) {
        self.sure = self.sure.max(to);
        self.sure_eadr = self.sure_eadr.max(to);
    }

    fn raise_to_newest(&mut self) {
        self.raise(self.history.len() - 1);
    }
}

#[derive(Default)]
pub(crate) struct Results {
    pub(crate) allowed: BTreeSet<Vec<i64>>,
    pub(crate) allowed_eadr: BTreeSet<Vec<i64>>,
    pub(crate) registers: BTreeSet<Vec<i64>>,
    pub(crate) memory: BTreeSet<Vec<i64>>,
}

/// The table of the README, for entries of a buffer: the row is the earlier one, the column the later one.
fn ordered(earlier: Op, later: Op, same_line: bool, reading: NonTemporal) -> bool {
    #[derive(Clone, Copy)]
    enum Kind {
        Store,
        Sfence,
        Weak,
        Clflush,
        Nt,
    }
    let kind = |op| match op {
        Op::Store(..) => Kind::Store,
        Op::NonTemporalStore(..) => Kind::Nt,
        Op::Flush(FlushKind::Clflush, _) => Kind::Clflush,
        Op::Flush(..) => Kind::Weak,
        Op::Fence(FenceKind::Sfence) => Kind::Sfence,
        _ => unreachable!("not buffered"),
    };
    // Columns: store, sfence, weak flush, clflush, ntstore.
    let row = match kind(earlier) {
        Kind::Store | Kind::Clflush if reading == NonTemporal::InOrder => "++L++",
        Kind::Store | Kind::Clflush => "++L+L",
        Kind::Sfence => "+++++",
        Kind::Weak => "-+-L-",
        Kind::Nt => "L+LLL",
    };
    match row.as_bytes()[kind(later) as usize] {
        b'+' => true,
        b'L' => same_line,
        _ => false,
    }
}

pub(crate) fn explore(program: &Program, moment: CrashMoment, reading: NonTemporal) -> Results {
    let line_count = program.lines.iter().max().map_or(0, |line| line + 1);
    let cache = program.initial.clone();
    let lines = (0..line_count)
        .map(|line| Line {
            history: vec![content(program, &cache, line)],
            sure: 0,
            sure_eadr: 0,
        })
        .collect();
    let threads = program
        .threads
        .iter()
        .map(|code| Thread {
            next: 0,
            buffer: vec![],
            registers: vec![0; code.register_count],
            promises: vec![],
        })
        .collect();
    let start = Machine {
        threads,
        cache,
        lines,
    };
    let mut results = Results::default();
    let mut seen = HashSet::from([start.clone()]);
    let mut todo = vec![start];
    while let Some(machine) = todo.pop() {
        record(program, moment, &machine, &mut results);
        for next in steps(program, &machine, reading) {
            if seen.insert(next.clone()) {
                todo.push(next);
            }
        }
    }
    results
}

fn content(program: &Program, cache: &[i64], line: usize) -> Vec<i64> {
    (0..cache.len())
        .filter(|&v| program.lines[v] == line)
        .map(|v| cache[v])
        .collect()
}

fn record(program: &Program, moment: CrashMoment, machine: &Machine, results: &mut Results) {
    let executed =
        (0..machine.threads.len()).all(|t| machine.threads[t].next == program.threads[t].ops.len());
    let pending_only_weak = machine.threads.iter().enumerate().all(|(t, thread)| {
        thread
            .buffer
            .iter()
            .all(|&(op, _)| match program.threads[t].ops[op] {
                Op::NonTemporalStore(..) => true,
                Op::Flush(kind, _) => kind != FlushKind::Clflush,
                _ => false,
            })
    });
    if moment == CrashMoment::Any || executed && pending_only_weak {
        results
            .allowed
            .extend(memories(program, machine, |line| line.sure));
        results
            .allowed_eadr
            .extend(memories(program, machine, |line| line.sure_eadr));
    }
    if executed
        && machine
            .threads
            .iter()
            .all(|thread| thread.buffer.is_empty())
    {
        let registers = machine
            .threads
            .iter()
            .flat_map(|thread| thread.registers.clone());
        results.registers.insert(registers.collect());
        results.memory.insert(machine.cache.clone());
    }
}

/// Every combination of contents of the lines, from the durable to the newest.
fn memories(
    program: &Program,
    machine: &Machine,
    sure: impl Fn(&Line) -> usize,
) -> BTreeSet<Vec<i64>> {
    let mut states = vec![BTreeMap::new()];
    for (number, line) in machine.lines.iter().enumerate() {
        let members: Vec<_> = (0..machine.cache.len())
            .filter(|&v| program.lines[v] == number)
            .collect();
        states = states
            .iter()
            .flat_map(|state| {
                line.history[sure(line)..].iter().map(|content| {
                    let mut state = state.clone();
                    state.extend(members.iter().copied().zip(content.iter().copied()));
                    state
                })
            })
            .collect();
    }
    states
        .into_iter()
        .map(|state| state.into_values().collect())
        .collect()
}

fn steps(program: &Program, machine: &Machine, reading: NonTemporal) -> Vec<Machine> {
    let mut next = Vec::new();
    for t in 0..machine.threads.len() {
        next.extend(execute(program, machine, t));
        for entry in 0..machine.threads[t].buffer.len() {
            next.extend(leave(program, machine, t, entry, reading));
        }
    }
    next
}

fn value(machine: &Machine, thread: usize, operand: Operand) -> i64 {
    match operand {
        Operand::Number(number) => number,
        Operand::Register(register) => machine.threads[thread].registers[register.0],
    }
}

fn execute(program: &Program, machine: &Machine, t: usize) -> Option<Machine> {
    let thread = &machine.threads[t];
    let op = *program.threads[t].ops.get(thread.next)?;
    let mut after = machine.clone();
    after.threads[t].next += 1;
    match op {
        Op::Store(_, operand) | Op::NonTemporalStore(_, operand) => {
            let stored = value(machine, t, operand);
            after.threads[t].buffer.push((thread.next, stored));
        }
        Op::Flush(..) | Op::Fence(FenceKind::Sfence) => {
            after.threads[t].buffer.push((thread.next, 0));
        }
        Op::Load(variable, register) => {
            let own = thread.buffer.iter().rev().find(|&&(entry, _)| {
                matches!(program.threads[t].ops[entry],
                    Op::Store(v, _) | Op::NonTemporalStore(v, _) if v == variable)
            });
            after.threads[t].registers[register.0] =
                own.map_or(machine.cache[variable.0], |&(_, stored)| stored);
        }
        Op::Fence(_) => {
            if !thread.buffer.is_empty() {
                return None;
            }
            fence(&mut after, t);
        }
        Op::Add(variable, addend, register) => {
            if !thread.buffer.is_empty() {
                return None;
            }
            fence(&mut after, t);
            let old = machine.cache[variable.0];
            after.threads[t].registers[register.0] = old;
            store(
                program,
                &mut after,
                variable.0,
                old + value(machine, t, addend),
            );
        }
        Op::CompareAndSwap(variable, expected, new, register) => {
            if !thread.buffer.is_empty() {
                return None;
            }
            fence(&mut after, t);
            let old = machine.cache[variable.0];
            after.threads[t].registers[register.0] = old;
            if old == value(machine, t, expected) {
                store(program, &mut after, variable.0, value(machine, t, new));
            }
        }
    }
    Some(after)
}

fn fence(machine: &mut Machine, t: usize) {
    for (line, to) in std::mem::take(&mut machine.threads[t].promises) {
        machine.lines[line].raise(to);
    }
}

/// A store reaches the cache; if caches are durable, it is durable with everything before it.
fn store(program: &Program, machine: &mut Machine, variable: usize, stored: i64) {
    let line = appear(program, machine, variable, stored);
    let newest = machine.lines[line].history.len() - 1;
    machine.lines[line].sure_eadr = newest;
}

/// A value becomes visible to all threads.
fn appear(program: &Program, machine: &mut Machine, variable: usize, stored: i64) -> usize {
    machine.cache[variable] = stored;
    let line = program.lines[variable];
    let content = content(program, &machine.cache, line);
    machine.lines[line].history.push(content);
    line
}

fn leave(
    program: &Program,
    machine: &Machine,
    t: usize,
    entry: usize,
    reading: NonTemporal,
) -> Option<Machine> {
    let ops = &program.threads[t].ops;
    let line = |op: Op| match op {
        Op::Store(v, _) | Op::NonTemporalStore(v, _) | Op::Flush(_, v) => Some(program.lines[v.0]),
        _ => None,
    };
    let (index, stored) = machine.threads[t].buffer[entry];
    let op = ops[index];
    let held_back = machine.threads[t].buffer[..entry]
        .iter()
        .any(|&(earlier, _)| {
            let same_line = line(ops[earlier]).is_some() && line(ops[earlier]) == line(op);
            ordered(ops[earlier], op, same_line, reading)
        });
    if held_back {
        return None;
    }
    let mut after = machine.clone();
    after.threads[t].buffer.remove(entry);
    match op {
        Op::Store(variable, _) => store(program, &mut after, variable.0, stored),
        Op::NonTemporalStore(variable, _) => {
            let line = appear(program, &mut after, variable.0, stored);
            if reading == NonTemporal::DurableAtFence {
                let newest = after.lines[line].history.len() - 1;
                after.threads[t].promises.push((line, newest));
            } else {
                after.lines[line].raise_to_newest();
            }
        }
        Op::Flush(_, variable) => after.lines[program.lines[variable.0]].raise_to_newest(),
        Op::Fence(_) => fence(&mut after, t),
        _ => {}
    }
    Some(after)
}
