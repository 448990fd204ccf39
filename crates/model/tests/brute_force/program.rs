//! On random small programs the explorer, with all of its reductions, gives the same sets as the naive one.

use powerfail_model::program::{
    CrashMoment, NonTemporal, Op, Operand, Program, RegisterId, ThreadCode, VariableId,
    crash_states, outcomes,
};
use powerfail_model::{Domain, FenceKind, FlushKind};
use proptest::prelude::*;

use crate::naive_program;

const STATE_LIMIT: usize = 10_000_000;

/// An operation whose registers are still to be numbered; a value of `None` is the newest register.
fn any_op(variables: usize) -> impl Strategy<Value = (u8, usize, Option<i64>)> {
    let value = prop_oneof![4 => (0..4i64).prop_map(Some), 1 => Just(None)];
    (0..18u8, 0..variables, value)
}

fn thread(ops: &[(u8, usize, Option<i64>)]) -> ThreadCode {
    let mut code = ThreadCode::default();
    for &(kind, variable, value) in ops {
        let variable = VariableId(variable);
        let operand = match (value, code.register_count.checked_sub(1)) {
            (None, Some(newest)) => Operand::Register(RegisterId(newest)),
            (value, _) => Operand::Number(value.unwrap_or(7)),
        };
        let register = RegisterId(code.register_count);
        let op = match kind {
            0..=4 => Op::Store(variable, operand),
            5..=6 => Op::Load(variable, register),
            7 => Op::Flush(FlushKind::Clflush, variable),
            8 => Op::Flush(FlushKind::Clflushopt, variable),
            9 => Op::Flush(FlushKind::Clwb, variable),
            10..=11 => Op::Fence(FenceKind::Sfence),
            12 => Op::Fence(FenceKind::Mfence),
            13 => Op::Add(variable, operand, register),
            14 => {
                let expected = Operand::Number(value.unwrap_or(0) % 2);
                Op::CompareAndSwap(variable, expected, operand, register)
            }
            _ => Op::NonTemporalStore(variable, operand),
        };
        if matches!(op, Op::Load(..) | Op::Add(..) | Op::CompareAndSwap(..)) {
            code.register_count += 1;
        }
        code.ops.push(op);
    }
    code
}

fn any_program() -> impl Strategy<Value = Program> {
    (1..=3usize, 1..=3usize).prop_flat_map(|(threads, variables)| {
        let ops_max = 9 / threads + 1;
        let threads = proptest::collection::vec(
            proptest::collection::vec(any_op(variables), 0..=ops_max).prop_map(|ops| thread(&ops)),
            threads,
        );
        let lines = proptest::collection::vec(0..variables, variables);
        (threads, lines).prop_map(move |(threads, lines)| {
            // Lines are numbered from 0 without gaps.
            let mut used = lines.clone();
            used.sort_unstable();
            used.dedup();
            let lines = lines
                .iter()
                .map(|line| used.binary_search(line).expect("used"))
                .collect();
            Program {
                lines,
                initial: (0..variables)
                    .map(|variable| i64::from(variable % 2 == 1))
                    .collect(),
                threads,
            }
        })
    })
}

fn any_reading() -> impl Strategy<Value = NonTemporal> {
    proptest::sample::select(vec![
        NonTemporal::Weak,
        NonTemporal::InOrder,
        NonTemporal::DurableAtFence,
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn explorer_equals_brute_force(
        program in any_program(),
        at_end in any::<bool>(),
        reading in any_reading(),
    ) {
        let moment = if at_end { CrashMoment::End } else { CrashMoment::Any };
        let naive = naive_program::explore(&program, moment, reading);
        let states = |domain| {
            crash_states(&program, domain, moment, reading, STATE_LIMIT).expect("small")
        };
        prop_assert_eq!(states(Domain::Adr), naive.allowed);
        prop_assert_eq!(states(Domain::Eadr), naive.allowed_eadr);
        let found = outcomes(&program, reading, STATE_LIMIT).expect("small");
        prop_assert_eq!(found.registers, naive.registers);
        prop_assert_eq!(found.memory, naive.memory);
    }
}
