//! Locked operations of two threads on one word: every value is recorded exactly, and stamps are in the order in which
//! the values were written.

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
    let at = Machine::code_address(SNIPPET_AT);
    let mut code = vec![0x48, 0x89, 0xf0]; // mov rax, rsi
    code.extend(body);
    code.extend([0x48, 0xff, 0xca]); // dec rdx
    code.extend([0x0f, 0x85]); // jnz back
    code.extend((0u32.wrapping_sub(code.len() as u32 + 4)).to_le_bytes());
    code.push(0xc3);
    bench.machine.write_code(at, &code);
    let site_at = at + 3;
    let site = bench.classifier.classify(body, site_at);
    let trampoline = Machine::code_address(TRAMPOLINE_AT);
    let mut out = [0; MAX_TRAMPOLINE_LEN];
    let emitted = bench
        .emitter
        .emit(&site, SiteId(1), trampoline, false, &mut out)
        .unwrap();
    bench
        .machine
        .write_code(trampoline, &out[..emitted.len_bytes]);
    bench.write_jump(site_at, trampoline);
    for _ in 0..RACES {
        run(&mut bench, at);
    }
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
