//! Nanoseconds per access to moved memory: a loop around one instruction, unpatched and with its trampoline.

#![expect(missing_docs, reason = "criterion's macros make functions without")]

#[path = "../tests/execute/frame.rs"]
mod frame;
#[expect(dead_code, reason = "the tests use the rest")]
#[path = "../tests/execute/machine.rs"]
mod machine;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use frame::State;
use machine::{Layout, Machine, SNIPPET_AT, TRAMPOLINE_AT};
use powerfail_patch::{
    AccessEmitter, AccessSettings, Classifier, LOADS_MOVE, MAX_ACCESS_LEN, STORES_MOVE,
};

const ROUNDS: u64 = 10_000;
const LINE: u64 = 64;
const PAGE: u64 = 4096;
/// `dec r15`.
const COUNT_DOWN: [u8; 3] = [0x49, 0xff, 0xcf];

#[rustfmt::skip]
/// RSI points to the pool. All are long enough for a jump.
const INSTRUCTIONS: &[(&str, &[u8])] = &[
    ("load 8", &[0x48, 0x8b, 0x96, 0x40, 0x00, 0x00, 0x00]),
    // mov rsi, [rsi + 64], which contains its own address: each load waits for the previous one.
    ("load 8, dependent", &[0x48, 0x8b, 0xb6, 0x40, 0x00, 0x00, 0x00]),
    ("vmovdqu 32", &[0xc5, 0xfe, 0x6f, 0x86, 0x40, 0x00, 0x00, 0x00]),
    ("vmovdqu 32, two lines", &[0xc5, 0xfe, 0x6f, 0x86, 0x70, 0x00, 0x00, 0x00]),
    ("add 8", &[0x48, 0x01, 0x96, 0x40, 0x00, 0x00, 0x00]),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Variant {
    Native,
    Moved { flags_dead: bool },
    Elsewhere,
}

struct Loop {
    machine: Machine,
    state: State,
    entry: u64,
}

impl Loop {
    fn new(code: &[u8], variant: Variant) -> Self {
        // As in a recovery: tables for all addresses, at any address.
        let layout = Layout::Near;
        let settings = AccessSettings {
            base: 0,
            len_bytes: 1 << 47,
            line_table: 0x3000_0000_0000,
            page_table: 0x3400_0000_0000,
            mark_table: 0x3600_0000_0000,
            has_fsgsbase: true,
        };
        let mut machine = Machine::new(layout);
        machine.protect_pool(true);
        let (pool, delta) = (layout.pool(), layout.window().alias_delta);
        machine.pool()[0x40..0x48].copy_from_slice(&pool.to_le_bytes());
        let volatile = Machine::volatile_address();
        machine.volatile()[0x40..0x48].copy_from_slice(&volatile.to_le_bytes());
        for address in [pool, volatile] {
            let lines = settings.line_table + address / LINE;
            let words = settings.page_table + address / PAGE * 8;
            machine.map_table(lines / PAGE * PAGE, PAGE as usize);
            machine.map_table(words / PAGE * PAGE, PAGE as usize);
            if address == pool {
                machine.table(lines, 64).fill(LOADS_MOVE | STORES_MOVE);
                machine
                    .table(words, 8)
                    .copy_from_slice(&delta.to_le_bytes());
            }
        }
        let entry = Machine::code_address(SNIPPET_AT);
        machine.write_code(entry, code);
        let mut end = entry + code.len() as u64;
        machine.write_code(end, &COUNT_DOWN);
        end += 3;
        let back = (entry.wrapping_sub(end + 6) as u32).to_le_bytes();
        machine.write_code(end, &[0x0f, 0x85, back[0], back[1], back[2], back[3]]);
        write_jump(&mut machine, end + 6, Machine::exit_address());
        if variant != Variant::Native {
            let at = Machine::code_address(TRAMPOLINE_AT);
            let site = Classifier::new().classify(code, entry);
            let mut out = [0; MAX_ACCESS_LEN];
            let flags_dead = variant == Variant::Moved { flags_dead: true };
            let made = AccessEmitter::new(settings)
                .emit(&site.instruction, code, at, flags_dead, &mut out)
                .unwrap();
            machine.write_code(at, &out[..made.len_bytes]);
            write_jump(&mut machine, entry, at);
        }
        let mut registers = [0x0123_4567_89ab_cdef; 16];
        registers[4] = Machine::stack_address() + 0x1000;
        registers[6] = if variant == Variant::Elsewhere {
            volatile
        } else {
            pool
        };
        registers[15] = ROUNDS;
        let state = State {
            registers,
            flags: 2,
            extended: default_extended(),
        };
        Self {
            machine,
            state,
            entry,
        }
    }

    fn run(&mut self) {
        self.machine.run(self.entry, &self.state);
    }
}

fn write_jump(machine: &mut Machine, at: u64, target: u64) {
    let displacement = (target.wrapping_sub(at + 5) as u32).to_le_bytes();
    machine.write_code(at, &[0xe9]);
    machine.write_code(at + 1, &displacement);
}

fn default_extended() -> Vec<u8> {
    let mut extended = vec![0; Machine::xsave_len() as usize];
    extended[..2].copy_from_slice(&0x37fu16.to_le_bytes());
    extended[24..28].copy_from_slice(&0x1f80u32.to_le_bytes());
    extended
}

fn access(criterion: &mut Criterion) {
    let variants = [
        ("native", Variant::Native),
        ("moved", Variant::Moved { flags_dead: false }),
        ("moved, flags dead", Variant::Moved { flags_dead: true }),
        ("no pool", Variant::Elsewhere),
    ];
    for (name, code) in INSTRUCTIONS {
        let mut group = criterion.benchmark_group(*name);
        group.throughput(Throughput::Elements(ROUNDS));
        for (name, variant) in variants {
            let mut work = Loop::new(code, variant);
            group.bench_function(name, |bencher| bencher.iter(|| work.run()));
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(std::time::Duration::from_millis(100))
        .measurement_time(std::time::Duration::from_millis(400));
    targets = access
}
criterion_main!(benches);
