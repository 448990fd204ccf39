//! A handler that itself stores to a pool, delivered at every instruction of a trampoline: the interrupted store has
//! the same result as without it, and both are recorded.
//!
//! The signal is simulated: the run stops, the handler's trampoline runs between the steps that the deliverer of a
//! signal must take, and the first run continues from where it stopped.

use iced_x86::Code;
use powerfail_patch::{LockedFences, MAX_TRAMPOLINE_LEN};
use powerfail_protocol::{EventKind, Record, SiteId};

use crate::bench::{Bench, Written, decode, is_jumped_over};
use crate::cases::{Case, random_case};
use crate::frame::State;
use crate::instances;
use crate::machine::{Layout, MEMORY_LEN, Machine, TRAMPOLINE_AT};
use crate::random::Random;

const HANDLER_SITE: SiteId = SiteId(7);
const HANDLER_AT: usize = TRAMPOLINE_AT + 0x4000;
const HANDLER_OFFSET: usize = 0x3800;
/// `mov [rsi], rax`, padded to the length of a jump, and where it would be.
const HANDLER_STORE: [u8; 3] = [0x48, 0x89, 0x06];
const HANDLER_STORE_AT: usize = HANDLER_AT + 0x2000;

/// Writes the handler's store and its trampoline; returns the entry.
fn write_handler(bench: &mut Bench) -> u64 {
    let store_at = Machine::code_address(HANDLER_STORE_AT);
    bench.machine.write_code(store_at, &HANDLER_STORE);
    bench.write_jump(store_at + 3, Machine::exit_address());
    let site = bench.classifier.classify(&HANDLER_STORE, store_at);
    let entry = Machine::code_address(HANDLER_AT);
    let mut out = [0; MAX_TRAMPOLINE_LEN];
    let emitted = bench
        .emitter
        .emit(&site, HANDLER_SITE, entry, false, &mut out)
        .unwrap();
    bench.machine.write_code(entry, &out[..emitted.len_bytes]);
    entry
}

/// The state that must be the same with and without the signal.
fn essence(state: &State) -> (&[u64], u64, &[u8], &[u8]) {
    (
        &state.registers,
        state.flags,
        &state.extended[32..464],
        &state.extended[576..],
    )
}

fn deliver(bench: &mut Bench, handler: u64, state: &State, value: u64) {
    let scratch = bench.machine.block().scratch;
    bench.machine.block().signal_depth += 1;
    let mut inner = state.clone();
    inner.registers[0] = value;
    inner.registers[6] = bench.layout.pool() + HANDLER_OFFSET as u64;
    inner.registers[4] = Machine::stack_address() + MEMORY_LEN as u64 / 2;
    bench.machine.run(handler, &inner);
    bench.machine.block().signal_depth -= 1;
    bench.machine.block().scratch = scratch;
}

fn check(bench: &mut Bench, handler: u64, case: &Case, random: &mut Random) -> usize {
    let Written { at, code, .. } = bench.write_trampoline(case);
    let seed = random.next();
    Random::new(seed).fill(bench.machine.pool());
    bench.machine.reset_ring(None);
    let undisturbed = bench.machine.run(at, &case.state);
    let mut pool = bench.machine.pool().to_vec();
    let count = bench.machine.records().len();

    let instructions = decode(&code, at);
    let mut delivered = 0;
    for instruction in &instructions {
        if is_jumped_over(instruction, &instructions) {
            continue;
        }
        Random::new(seed).fill(bench.machine.pool());
        // Sometimes the handler, or the code that it interrupts, finds the chunk full.
        bench
            .machine
            .reset_ring(random.one_in(3).then(|| 8 * random.below(12)));
        let stop = Machine::stop_address();
        bench.write_jump(instruction.ip(), stop);
        let stopped = bench.machine.run(at, &case.state);
        bench.machine.write_code(at, &code);
        if !bench.machine.was_stopped() {
            continue;
        }
        let value = random.next();
        deliver(bench, handler, &stopped, value);
        let resumed = bench.machine.run(instruction.ip(), &stopped);
        delivered += 1;

        let what = format!(
            "{:?} {:02x?} at {:#x}",
            case.site.instruction.code(),
            case.code,
            instruction.ip() - at
        );
        assert!(essence(&resumed) == essence(&undisturbed), "{what}");
        pool[HANDLER_OFFSET..HANDLER_OFFSET + 8].copy_from_slice(&value.to_le_bytes());
        assert!(bench.machine.pool() == pool, "{what}");
        let records = bench.machine.records();
        assert!(
            records.iter().all(|record| record.stamp != 0),
            "{what}: {records:x?}"
        );
        let of_handler = |record: &&Record<'_>| record.header.site == HANDLER_SITE;
        let inner: Vec<_> = records.iter().filter(of_handler).collect();
        let outer: Vec<_> = records
            .iter()
            .filter(|record| !of_handler(record))
            .collect();
        assert_eq!(
            (inner.len(), outer.len()),
            (1, count),
            "{what}: {records:x?}"
        );
        assert_eq!(inner[0].value(), value.to_le_bytes());
        // Pieces of a string operation may overwrite each other.
        if case.site.instruction.is_string_instruction() {
            continue;
        }
        for record in outer
            .iter()
            .filter(|record| record.header.kind != EventKind::FenceLocked)
        {
            let Some(address) = record.address else {
                continue;
            };
            let offset = (address - bench.layout.pool()) as usize;
            for (from, bytes) in record.runs() {
                assert_eq!(&pool[offset + from..][..bytes.len()], bytes, "{what}");
            }
        }
    }
    delivered
}

#[test]
fn handlers_that_store_disturb_nothing() {
    let mut bench = Bench::new(Layout::Near, |settings| {
        settings.locked_fences = LockedFences::Never;
    });
    let handler = write_handler(&mut bench);
    let mut random = Random::new(5);
    let mut delivered = 0;
    for code in Code::values().filter(|code| instances::runs_here(*code)) {
        if !code.is_string_instruction() && !random.one_in(4) {
            continue;
        }
        if let Some(case) = random_case(&mut bench, code, &mut random)
            && case.aim.in_pool
        {
            delivered += check(&mut bench, handler, &case, &mut random);
        }
    }
    assert!(delivered > 1000, "only {delivered} signals");
}
