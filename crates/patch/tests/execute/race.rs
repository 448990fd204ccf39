//! Operations of two threads on one word. Locked ones: every value is recorded exactly, and stamps are in the order in which
//! the values were written. Plain stores to a shared pool: each found what the store before it in the order of stamps wrote. Those of
//! one stamp belong to one thread, in their order.

use powerfail_patch::MAX_TRAMPOLINE_LEN;
use powerfail_protocol::{EventKind, Records, SiteId};

use crate::bench::Bench;
use crate::machine::{Layout, Machine, SNIPPET_AT, TRAMPOLINE_AT};

const ROUNDS: u64 = 8000;
/// Whether threads collide depends on the scheduler; among several races some are close.
const RACES: usize = 8;

/// Repeats `body` (with the address in RDI and the number in RAX) as often as RDX says.
fn check(body: &[u8]) {
    let mut bench = Bench::new(Layout::Near, |_| {});
    let at = write_loop(&mut bench, &[body]);
    for _ in 0..RACES {
        run(&mut bench, at);
    }
}

/// Writes a loop of operations, and the trampoline of each of them.
fn write_loop(bench: &mut Bench, operations: &[&[u8]]) -> u64 {
    let at = Machine::code_address(SNIPPET_AT);
    let mut code = vec![0x48, 0x89, 0xf0]; // mov rax, rsi
    code.extend(operations.concat());
    code.extend([0x48, 0xff, 0xca]); // dec rdx
    code.extend([0x0f, 0x85]); // jnz back
    code.extend((0u32.wrapping_sub(code.len() as u32 + 4)).to_le_bytes());
    code.push(0xc3);
    bench.machine.write_code(at, &code);
    let mut site_at = at + 3;
    for (number, operation) in operations.iter().enumerate() {
        let site = bench.classifier.classify(operation, site_at);
        let trampoline = Machine::code_address(TRAMPOLINE_AT + number * MAX_TRAMPOLINE_LEN);
        let mut out = [0; MAX_TRAMPOLINE_LEN];
        let emitted = bench
            .emitter
            .emit(&site, SiteId(1), trampoline, false, &mut out)
            .unwrap();
        bench
            .machine
            .write_code(trampoline, &out[..emitted.len_bytes]);
        bench.write_jump(site_at, trampoline);
        site_at += operation.len() as u64;
    }
    at
}

/// Two threads store to the same bytes of a shared pool, at an offset in it.
fn check_shared(body: &[u8], value_len: usize, offset: usize) {
    /// Records have what was found, too, and all of a thread must fit into a chunk.
    const ROUNDS: u64 = 4000;
    let mut bench = Bench::new(Layout::Near, |_| {});
    bench.machine.share_pool();
    let at = write_loop(&mut bench, &[body]);
    for _ in 0..RACES {
        bench.machine.clear_ring();
        bench.machine.pool().fill(0);
        let chunks = bench.machine.race(at, ROUNDS);
        let mut records: Vec<_> = chunks
            .iter()
            .flat_map(|chunk| Records::new(chunk).map(Result::unwrap))
            .map(|record| (record.stamp, record.value(), record.found().unwrap()))
            .collect();
        assert_eq!(records.len() as u64, 2 * ROUNDS);
        records.sort_by_key(|(stamp, ..)| *stamp);
        let first = vec![0; value_len];
        let mut value: &[u8] = &first;
        for (stamp, next, found) in records {
            assert_eq!(found, value, "at {stamp}");
            value = next;
        }
        assert_eq!(&bench.machine.pool()[offset..][..value_len], value);
        assert_eq!(bench.machine.held_locks(), []);
    }
}

#[test]
fn shared_store() {
    check_shared(&[0x48, 0x89, 0x87, 0x08, 0, 0, 0], 8, 8); // mov [rdi+8], rax
}

#[test]
fn shared_store_across_a_granule() {
    check_shared(&[0x48, 0x89, 0x87, 0xfb, 0x03, 0, 0], 8, 0x3fb); // mov [rdi+0x3fb], rax
}

#[test]
fn shared_add() {
    check_shared(&[0x01, 0x87, 0x08, 0, 0, 0], 4, 8); // add [rdi+8], eax
}

#[test]
fn shared_non_temporal_store() {
    check_shared(&[0x48, 0x0f, 0xc3, 0x47, 0x08], 8, 8); // movnti [rdi+8], rax
}

/// A flush finds what the store before it in the order of stamps has left.
#[test]
fn shared_flush() {
    const ROUNDS: u64 = 2000;
    let mut bench = Bench::new(Layout::Near, |_| {});
    bench.machine.share_pool();
    let store = [0x48, 0x89, 0x87, 0x08, 0, 0, 0]; // mov [rdi+8], rax
    let flush = [0x0f, 0xae, 0xbf, 0x0b, 0, 0, 0]; // clflush [rdi+11]
    let at = write_loop(&mut bench, &[&store, &flush]);
    for _ in 0..RACES {
        bench.machine.clear_ring();
        bench.machine.pool().fill(0);
        let chunks = bench.machine.race(at, ROUNDS);
        let mut records: Vec<_> = chunks
            .iter()
            .flat_map(|chunk| Records::new(chunk).map(Result::unwrap))
            .map(|record| (record.stamp, record.header.kind, record.value()))
            .collect();
        assert_eq!(records.len() as u64, 4 * ROUNDS);
        records.sort_by_key(|(stamp, ..)| *stamp);
        let mut value: &[u8] = &[0; 8];
        for (stamp, kind, word) in records {
            match kind {
                EventKind::Clflush => assert_eq!(word, value, "at {stamp}"),
                _ => value = word,
            }
        }
        assert_eq!(bench.machine.held_locks(), []);
    }
}

#[test]
fn shared_locked_add() {
    check_shared(&[0xf0, 0x48, 0x01, 0x47, 0x08], 8, 8); // lock add [rdi+8], rax
}

fn run(bench: &mut Bench, at: u64) {
    bench.machine.clear_ring();
    bench.machine.pool().fill(0);

    let chunks = bench.machine.race(at, ROUNDS);
    let mut records: Vec<(u64, u64)> = Vec::new();
    for (thread, chunk) in chunks.iter().enumerate() {
        let mut count = 0;
        for record in Records::new(chunk).map(Result::unwrap) {
            assert_eq!(record.header.kind, EventKind::StoreLocked);
            let value = u64::from_le_bytes(record.value().try_into().unwrap());
            records.push((record.stamp, value));
            count += 1;
        }
        assert_eq!(count, ROUNDS, "thread {thread}");
    }
    records.sort_unstable();
    let mut value = 0;
    for (stamp, next) in &records {
        let step = next.wrapping_sub(value);
        assert!(step == 1 || step == 2, "{value} became {next} at {stamp}");
        value = *next;
    }
    assert_eq!(value, 3 * ROUNDS);
    assert_eq!(bench.machine.pool()[8..16], value.to_le_bytes());
}

#[test]
fn locked_xadd() {
    check(&[0xf0, 0x48, 0x0f, 0xc1, 0x47, 0x08]);
}

#[test]
fn locked_add() {
    check(&[0xf0, 0x48, 0x01, 0x47, 0x08]);
}
