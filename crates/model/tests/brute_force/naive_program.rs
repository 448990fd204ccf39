//! Every execution of a litmus program, step by step, with lists for buffers and whole histories
//! for lines.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use powerfail_model::program::{CrashMoment, Op, Operand, Program};
use powerfail_model::{FenceKind, FlushKind};

#[derive(Clone, PartialEq, Eq, Hash)]
struct Thread {
    next: usize,
    /// Operations in the buffer with the value they store.
    buffer: Vec<(usize, i64)>,
    registers: Vec<i64>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Machine {
    threads: Vec<Thread>,
    cache: Vec<i64>,
    /// For each line, every content since (and with) the newest that is sure.
    possible: Vec<Vec<Vec<i64>>>,
}

#[derive(Default)]
pub(crate) struct Results {
    pub(crate) allowed: BTreeSet<Vec<i64>>,
    pub(crate) allowed_eadr: BTreeSet<Vec<i64>>,
    pub(crate) registers: BTreeSet<Vec<i64>>,
    pub(crate) memory: BTreeSet<Vec<i64>>,
}

/// The table of the README, for entries of a buffer: row earlier, column later.
fn ordered(earlier: Op, later: Op, same_line: bool) -> bool {
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

pub(crate) fn explore(program: &Program, moment: CrashMoment) -> Results {
    let line_count = program.lines.iter().max().map_or(0, |line| line + 1);
    let cache = program.initial.clone();
    let possible = (0..line_count)
        .map(|line| vec![content(program, &cache, line)])
        .collect();
    let threads = program
        .threads
        .iter()
        .map(|code| Thread {
            next: 0,
            buffer: vec![],
            registers: vec![0; code.register_count],
        })
        .collect();
    let start = Machine {
        threads,
        cache,
        possible,
    };
    let mut results = Results::default();
    let mut seen = HashSet::from([start.clone()]);
    let mut todo = vec![start];
    while let Some(machine) = todo.pop() {
        record(program, moment, &machine, &mut results);
        for next in steps(program, &machine) {
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
        results.allowed_eadr.insert(machine.cache.clone());
        let mut states = vec![BTreeMap::new()];
        for (line, contents) in machine.possible.iter().enumerate() {
            let members: Vec<_> = (0..machine.cache.len())
                .filter(|&v| program.lines[v] == line)
                .collect();
            states = states
                .iter()
                .flat_map(|state| {
                    contents.iter().map(|content| {
                        let mut state = state.clone();
                        state.extend(members.iter().copied().zip(content.iter().copied()));
                        state
                    })
                })
                .collect();
        }
        results.allowed.extend(
            states
                .into_iter()
                .map(|state| state.into_values().collect()),
        );
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

fn steps(program: &Program, machine: &Machine) -> Vec<Machine> {
    let mut next = Vec::new();
    for t in 0..machine.threads.len() {
        next.extend(execute(program, machine, t));
        for entry in 0..machine.threads[t].buffer.len() {
            next.extend(leave(program, machine, t, entry));
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
        }
        Op::Add(variable, addend, register) => {
            if !thread.buffer.is_empty() {
                return None;
            }
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
            let old = machine.cache[variable.0];
            after.threads[t].registers[register.0] = old;
            if old == value(machine, t, expected) {
                store(program, &mut after, variable.0, value(machine, t, new));
            }
        }
    }
    Some(after)
}

fn store(program: &Program, machine: &mut Machine, variable: usize, stored: i64) {
    machine.cache[variable] = stored;
    let line = program.lines[variable];
    let content = content(program, &machine.cache, line);
    machine.possible[line].push(content);
}

fn leave(program: &Program, machine: &Machine, t: usize, entry: usize) -> Option<Machine> {
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
            ordered(ops[earlier], op, same_line)
        });
    if held_back {
        return None;
    }
    let mut after = machine.clone();
    after.threads[t].buffer.remove(entry);
    match op {
        Op::Store(variable, _) => store(program, &mut after, variable.0, stored),
        Op::NonTemporalStore(variable, _) => {
            store(program, &mut after, variable.0, stored);
            keep_newest(program, &mut after, variable.0);
        }
        Op::Flush(_, variable) => keep_newest(program, &mut after, variable.0),
        _ => {}
    }
    Some(after)
}

fn keep_newest(program: &Program, machine: &mut Machine, variable: usize) {
    let line = program.lines[variable];
    machine.possible[line] = vec![content(program, &machine.cache, line)];
}
