//! Nanoseconds per recorded event: a loop around one instruction, unpatched and patched.

#![expect(missing_docs, reason = "criterion's macros make functions without")]

#[path = "../tests/execute/frame.rs"]
mod frame;
#[expect(dead_code, reason = "the tests use the rest")]
#[path = "../tests/execute/machine.rs"]
mod machine;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use frame::State;
use machine::{Layout, Machine, SNIPPET_AT, TRAMPOLINE_AT};
use powerfail_patch::{Classifier, Emitter, EmitterSettings, MAX_TRAMPOLINE_LEN};
use powerfail_protocol::SiteId;

const ROUNDS: u64 = 10_000;
const NOP: u8 = 0x90;
/// `dec r15`.
const COUNT_DOWN: [u8; 3] = [0x49, 0xff, 0xcf];

#[rustfmt::skip]
/// The preceding code, and the instruction. RSI points to the pool.
const INSTRUCTIONS: &[(&str, &[u8], &[u8])] = &[
    ("mov 8", &[], &[0x48, 0x89, 0x96, 0x40, 0x00, 0x00, 0x00]),
    ("mov 8 from rax", &[], &[0x48, 0x89, 0x86, 0x40, 0x00, 0x00, 0x00]),
    ("mov 1", &[], &[0xc6, 0x86, 0x40, 0x00, 0x00, 0x00, 0x01]),
    ("movups 16", &[], &[0x0f, 0x11, 0x86, 0x40, 0x00, 0x00, 0x00]),
    ("vmovdqu 32", &[], &[0xc5, 0xfe, 0x7f, 0x86, 0x40, 0x00, 0x00, 0x00]),
    ("add 8", &[], &[0x48, 0x01, 0x96, 0x40, 0x00, 0x00, 0x00]),
    ("lock add 8", &[], &[0xf0, 0x48, 0x01, 0x96, 0x40, 0x00, 0x00, 0x00]),
    // mov ecx, 1024; mov rdi, rsi
    ("rep stosb 1024", &[0xb9, 0x00, 0x04, 0x00, 0x00, 0x48, 0x89, 0xf7], &[0xf3, 0xaa]),
];

#[derive(Clone, Copy)]
struct Patched {
    flags_dead: bool,
    is_shared: bool,
}

struct Loop {
    machine: Machine,
    state: State,
    entry: u64,
}

impl Loop {
    fn new(setup: &[u8], code: &[u8], patched: Option<Patched>, address: u64) -> Self {
        let layout = Layout::Near;
        let mut machine = Machine::new(layout);
        machine.protect_pool(patched.is_none());
        let mut emitter = Emitter::new(EmitterSettings::new(layout.window()));
        if patched.is_some_and(|patched| patched.is_shared) {
            machine.share_pool();
        }
        let mut out = [0; MAX_TRAMPOLINE_LEN];
        let stub = Machine::stub_address();
        let len = emitter
            .emit_refill_stub(stub, Machine::xsave_len(), &mut out)
            .unwrap();
        machine.write_code(stub, &out[..len]);

        // The instruction ends where a jump that begins with it would end, or after that.
        let entry = Machine::code_address(SNIPPET_AT);
        machine.write_code(entry, setup);
        let jump_at = entry + setup.len() as u64;
        machine.write_code(jump_at, &[NOP; 5]);
        let site_at = jump_at + 5u64.saturating_sub(code.len() as u64);
        machine.write_code(site_at, code);
        let mut end = site_at + code.len() as u64;
        machine.write_code(end, &COUNT_DOWN);
        end += 3;
        let back = (entry.wrapping_sub(end + 6) as u32).to_le_bytes();
        machine.write_code(end, &[0x0f, 0x85, back[0], back[1], back[2], back[3]]);
        write_jump(&mut machine, end + 6, Machine::exit_address());
        if let Some(Patched { flags_dead, .. }) = patched {
            let trampoline = Machine::code_address(TRAMPOLINE_AT);
            let site = Classifier::new().classify(code, site_at);
            let code = emitter
                .emit(&site, SiteId(1), trampoline, flags_dead, &mut out)
                .unwrap();
            machine.write_code(trampoline, &out[..code.len_bytes]);
            write_jump(&mut machine, jump_at, trampoline);
        }
        let mut registers = [0x0123_4567_89ab_cdef; 16];
        registers[4] = Machine::stack_address() + 0x1000;
        registers[6] = address;
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

fn record(criterion: &mut Criterion) {
    let pool = Layout::Near.pool();
    let patched = |flags_dead, is_shared| {
        Some(Patched {
            flags_dead,
            is_shared,
        })
    };
    let variants = [
        ("native", None, pool),
        ("recorded", patched(false, false), pool),
        ("recorded, flags dead", patched(true, false), pool),
        ("recorded, shared", patched(false, true), pool),
        (
            "outside the window",
            patched(false, false),
            Machine::volatile_address(),
        ),
    ];
    for (name, setup, code) in INSTRUCTIONS {
        let mut group = criterion.benchmark_group(*name);
        group.throughput(Throughput::Elements(ROUNDS));
        for (variant, patched, address) in variants {
            let mut work = Loop::new(setup, code, patched, address);
            group.bench_function(variant, |bencher| bencher.iter(|| work.run()));
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
    targets = record
}
criterion_main!(benches);
