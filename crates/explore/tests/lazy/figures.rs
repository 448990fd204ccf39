//! The examples of the Jaaru paper (ASPLOS '21), with no more executions than it counts.

use std::collections::BTreeSet;

use powerfail_explore::lazy::CrashTable;
use powerfail_explore::lazy::nested::CrashPoint;
use powerfail_model::{BigUint, FlushKind, Frontier, Rules, StoreKind};

use crate::lazily::{Execution, explore};
use crate::machine::{Effect, Instruction, Program};
use crate::workload::{Workload, at_failure_points, frontier_at, newest};

fn store(at: u64, value: u64) -> (u32, Effect) {
    let bytes = value.to_le_bytes().to_vec();
    (0, Effect::Store(StoreKind::Plain, at, bytes))
}

fn clflush(at: u64) -> (u32, Effect) {
    (0, Effect::Flush(FlushKind::Clflush, at))
}

fn load(at: u64) -> Instruction {
    Instruction::Load { at, len: 8 }
}

fn explore_at(frontier: &Frontier, program: &Program, len: usize) -> Vec<Execution> {
    let crash = CrashPoint::first(CrashTable::of(frontier));
    explore(program, &crash, &newest(frontier, len))
}

/// The values loaded by each execution.
fn values(executions: &[Execution]) -> BTreeSet<Vec<u64>> {
    let word = |bytes: &Vec<u8>| u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let values = executions
        .iter()
        .map(|execution| execution.behaviour.loaded.iter().map(word).collect());
    values.collect()
}

/// How many executions each failure point takes.
fn counts(workload: &Workload, program: &Program, len: usize) -> Vec<usize> {
    let mut counts = Vec::new();
    at_failure_points(Rules::default(), workload, |_, frontier| {
        counts.push(explore_at(frontier, program, len).len());
    });
    counts
}

const X: u64 = 0;
const Y: u64 = 8;

/// Both variables share a line.
fn figure_2() -> Frontier {
    let workload = [
        store(Y, 1),
        store(X, 2),
        clflush(X),
        store(Y, 3),
        store(X, 4),
        store(Y, 5),
        store(X, 6),
    ];
    frontier_at(Rules::default(), &workload)
}

#[test]
fn figure_2_what_may_be_read_of_x() {
    let executions = explore_at(&figure_2(), &vec![load(X)], 64);
    assert_eq!(executions.len(), 3);
    assert_eq!(values(&executions), [vec![2], vec![4], vec![6]].into());
}

#[test]
fn figure_3_what_is_read_of_x_limits_y() {
    let executions = explore_at(&figure_2(), &vec![load(X), load(Y)], 64);
    let expected = [[2, 1], [2, 3], [4, 3], [4, 5], [6, 5]];
    assert_eq!(executions.len(), expected.len());
    assert_eq!(values(&executions), expected.map(Vec::from).into());
}

const CHILD: u64 = 0;
const DATA: u64 = 64;

fn add_child() -> Workload {
    vec![
        store(DATA, 7),
        clflush(DATA),
        store(CHILD, DATA),
        clflush(CHILD),
    ]
}

/// Executions before the first flush, before the second one, and at the end. The paper counts 1, 2 and 1; all that can
/// be read at the end can also be read before the second flush, so the end is not a failure point.
#[test]
fn figure_4_a_commit_store_keeps_executions_few() {
    let read_child = vec![
        load(CHILD),
        Instruction::JumpIf {
            byte: 0,
            value: 0,
            to: 4,
        },
        load(DATA),
        Instruction::Stop(1),
        Instruction::Stop(0),
    ];
    assert_eq!(counts(&add_child(), &read_child, 128), [1, 2]);
    let before_second = frontier_at(Rules::default(), &add_child()[..3]);
    let executions = explore_at(&before_second, &read_child, 128);
    assert_eq!(values(&executions), [vec![0], vec![DATA, 7]].into());
}

/// Without the check, each line of the child that is not durable doubles the executions.
#[test]
fn without_a_commit_store_executions_multiply() {
    for lines in 1..=5_u64 {
        let workload: Workload = (0..lines).map(|line| store(64 * line, 7)).collect();
        let program: Program = (0..lines).map(|line| load(64 * line)).collect();
        assert_eq!(
            counts(&workload, &program, 64 * lines as usize),
            [1 << lines]
        );
    }
}

/// An array of *n* integers is initialised and flushed, then a commit store says that it is valid.
#[test]
fn the_array_takes_as_many_executions_however_long_it_is() {
    for exponent in 3..=12 {
        let n = 1_u64 << exponent;
        let commit = 8 * n;
        let mut workload: Workload = (0..n).map(|at| store(8 * at, at + 1)).collect();
        let initialised = frontier_at(Rules::default(), &workload);
        let states = initialised.crash_state_count();
        let lines = u32::try_from(n / 8).unwrap();
        assert_eq!(states, BigUint::from(9_u32).pow(lines));
        let log10 = CrashTable::of(&initialised).log10_states;
        assert!((log10 - 9_f64.log10() * f64::from(lines)).abs() < 1e-6);
        workload.extend((0..n / 8).map(|line| clflush(64 * line)));
        workload.extend([store(commit, 1), clflush(commit)]);
        let mut program = vec![
            load(commit),
            Instruction::JumpIf {
                byte: 0,
                value: 0,
                to: 2 + n as usize,
            },
        ];
        program.extend((0..n).map(|at| load(8 * at)));
        let len = 8 * n as usize + 64;
        assert_eq!(counts(&workload, &program, len), [1, 2], "{n}");
    }
}
