//! A signal at every instruction of a trampoline of a shared pool: what the code that delivers a signal does about the locks
//! leaves the same result as without it, and every store is recorded once.

use iced_x86::Code;
use powerfail_patch::{Interruption, LockedFences};
use powerfail_protocol::{EventKind, ScratchSlot};

use crate::bench::{Bench, Written, decode, is_jumped_over};
use crate::cases::{Case, STATUS_FLAGS, random_case};
use crate::frame::State;
use crate::instances;
use crate::machine::{Layout, Machine};
use crate::random::Random;

const ZERO_FLAG: u64 = 0x40;

/// How often locks were held, by what was done then.
#[derive(Default)]
struct Tally {
    undone: usize,
    done: usize,
    completed: usize,
}

/// The state that must be the same with and without the signal.
fn essence(state: &State) -> (&[u64], u64, &[u8], &[u8]) {
    let extended = &state.extended;
    (
        &state.registers,
        state.flags,
        &extended[32..464],
        &extended[576..],
    )
}

/// The state of before the instruction, from the slots.
fn undo(bench: &mut Bench, stopped: &State, slots: impl Iterator<Item = ScratchSlot>) -> State {
    let mut state = stopped.clone();
    for slot in slots {
        let value = bench.machine.block().scratch[slot.index()];
        match slot {
            ScratchSlot::Register(number) => state.registers[usize::from(number)] = value,
            _ => {
                let flags = (value >> 8 & 0xd5) | (value & 1) << 11;
                state.flags = state.flags & !STATUS_FLAGS | flags;
            }
        }
    }
    state
}

fn check(bench: &mut Bench, case: &Case, random: &mut Random, tally: &mut Tally) {
    let Written { at, code, emitted } = bench.write_trampoline(case);
    let seed = random.next();
    Random::new(seed).fill(bench.machine.pool());
    bench.machine.reset_ring(None);
    let undisturbed = bench.machine.run(at, &case.state);
    let pool = bench.machine.pool().to_vec();
    let count = bench.machine.records().len();
    let Some(work) = emitted.locked_work else {
        return;
    };

    let instructions = decode(&code, at);
    for instruction in &instructions {
        if is_jumped_over(instruction, &instructions) {
            continue;
        }
        Random::new(seed).fill(bench.machine.pool());
        bench.machine.reset_ring(None);
        bench.write_jump(instruction.ip(), Machine::stop_address());
        let stopped = bench.machine.run(at, &case.state);
        bench.machine.write_code(at, &code);
        if !bench.machine.was_stopped() {
            assert_eq!(bench.machine.held_locks(), []);
            continue;
        }
        let offset = (instruction.ip() - at) as usize;
        let what = format!(
            "{:?} {:02x?} at {offset:#x}",
            case.site.instruction.code(),
            case.code
        );
        let (mut entry, mut state) = (instruction.ip(), stopped.clone());
        let held = bench.machine.held_locks();
        if let Some(record) = held.first() {
            assert_eq!(
                *record,
                stopped.registers[usize::from(work.record)],
                "{what}"
            );
            let interruption = work.interrupted_at(offset, stopped.flags & ZERO_FLAG != 0);
            match interruption {
                Interruption::Undo => {
                    bench.machine.void_record(*record);
                    state = undo(bench, &stopped, emitted.states.slots_at(offset));
                    entry = at;
                    tally.undone += 1;
                }
                Interruption::Done => tally.done += 1,
                Interruption::Complete => {
                    bench.machine.complete_record(*record);
                    tally.completed += 1;
                }
            }
            if interruption != Interruption::Undo {
                entry = at + work.released_at as u64;
            }
            bench.machine.release_locks();
        }
        let resumed = bench.machine.run(entry, &state);
        assert!(essence(&resumed) == essence(&undisturbed), "{what}");
        assert!(bench.machine.pool() == pool, "{what}");
        assert_eq!(bench.machine.held_locks(), [], "{what}");
        let records = bench.machine.records();
        let made = records
            .iter()
            .filter(|record| record.header.kind != EventKind::Void);
        assert_eq!(made.count(), count, "{what}: {records:x?}");
        assert!(
            records.iter().all(|record| record.stamp != 0),
            "{what}: {records:x?}"
        );
    }
}

#[test]
fn no_handler_runs_under_a_lock() {
    let mut bench = Bench::new(Layout::Near, |settings| {
        settings.locked_fences = LockedFences::Never;
    });
    bench.machine.share_pool();
    let mut random = Random::new(9);
    let mut tally = Tally::default();
    for code in Code::values().filter(|code| instances::runs_here(*code)) {
        if let Some(case) = random_case(&mut bench, code, &mut random)
            && case.aim.in_pool
        {
            check(&mut bench, &case, &mut random, &mut tally);
        }
    }
    assert!(tally.undone > 1000, "{}", tally.undone);
    assert!(tally.done > 500, "{}", tally.done);
    assert!(tally.completed > 50, "{}", tally.completed);
}

/// A thread uses its stamp again until another one has taken one.
#[test]
fn a_stamp_is_used_again_until_another_one_is_taken() {
    let mut bench = Bench::new(Layout::Near, |_| {});
    bench.machine.share_pool();
    let mut random = Random::new(13);
    for code in [Code::Mov_rm64_r64, Code::Add_rm32_r32, Code::Clwb_m8] {
        let case = core::iter::from_fn(|| Some(random_case(&mut bench, code, &mut random)))
            .flatten()
            .find(|case| case.aim.in_pool && !case.site.instruction.has_lock_prefix())
            .unwrap();
        let at = bench.write_trampoline(&case).at;
        bench.machine.reset_ring(None);
        bench.machine.run(at, &case.state);
        bench.machine.run(at, &case.state);
        let taken = bench.machine.tick();
        bench.machine.run(at, &case.state);
        let records = bench.machine.records();
        let stamps: Vec<u64> = records.iter().map(|record| record.stamp).collect();
        assert_eq!(stamps, [taken - 1, taken - 1, taken + 1], "{code:?}");
    }
}
