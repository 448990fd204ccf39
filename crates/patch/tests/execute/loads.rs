//! Loads that wait for their turn: they ask for it where they read from a pool, and do what they did.

use powerfail_patch::{Action, Classifier, MAX_TRAMPOLINE_LEN, Turns};
use powerfail_protocol::SiteId;

use crate::bench::Bench;
use crate::cases::random_state;
use crate::machine::{Layout, Machine, TRAMPOLINE_AT};
use crate::random::Random;

const SITE: SiteId = SiteId(43);
/// The flags that a program can set: status and direction.
const FLAGS: u64 = 0xcd5;
const RSI: usize = 6;

/// Loads from where RSI points, with 8 bytes more.
const LOADS: [&[u8]; 8] = [
    &[0x48, 0x8b, 0x46, 0x08],       // mov rax, [rsi + 8]
    &[0x48, 0x8b, 0x76, 0x08],       // mov rsi, [rsi + 8]
    &[0x0f, 0xb6, 0x5e, 0x08],       // movzx ebx, byte ptr [rsi + 8]
    &[0x48, 0x3b, 0x4e, 0x08],       // cmp rcx, [rsi + 8]
    &[0x48, 0x83, 0x7e, 0x08, 0x00], // cmp qword ptr [rsi + 8], 0
    &[0x48, 0x13, 0x7e, 0x08],       // adc rdi, [rsi + 8]
    &[0x48, 0x0f, 0x44, 0x46, 0x08], // cmove rax, [rsi + 8]
    &[0xf3, 0x0f, 0x6f, 0x46, 0x08], // movdqu xmm0, [rsi + 8]
];

#[test]
fn a_turn_is_asked_for_in_the_pool_and_nothing_else_changes() {
    let mut random = Random::new(11);
    let mut bench = Bench::new(Layout::Near, |settings| settings.turns = Turns::AskedFor);
    let at = Machine::code_address(TRAMPOLINE_AT);
    let places = [bench.layout.pool(), Machine::volatile_address()];
    for code in LOADS {
        let start = bench.write_snippet(code);
        let site = bench.classifier.load_at(code, start).expect("a load");
        assert_eq!(site.action, Action::Load);
        for round in 0..40 {
            let flags_dead = round % 4 >= 2;
            let mut out = [0; MAX_TRAMPOLINE_LEN];
            let emitted = bench.emitter.emit(&site, SITE, at, flags_dead, &mut out);
            let len = emitted.expect("a trampoline").len_bytes;
            bench.machine.write_code(at, &out[..len]);
            let in_pool = round % 2 == 0;
            let mut state = random_state(&mut random);
            state.registers[RSI] = places[usize::from(!in_pool)] + 8 * random.below(64);
            let native = bench.machine.run(start, &state);
            bench.machine.reset_ring(None);
            let outcome = bench.machine.run(at, &state);
            assert_eq!(outcome.registers, native.registers, "{code:x?}");
            if !flags_dead {
                assert_eq!(outcome.flags & FLAGS, native.flags & FLAGS, "{code:x?}");
            }
            assert_eq!(outcome.extended[160..], native.extended[160..], "{code:x?}");
            assert_eq!(bench.machine.turns(), u64::from(in_pool), "{code:x?}");
            assert!(bench.machine.records().is_empty());
        }
    }
}

#[test]
fn a_scan_finds_loads_that_may_be_of_a_pool() {
    const CODE: &[&[u8]] = &[
        &[0x55],                         // push rbp
        &[0x48, 0x89, 0xe5],             // mov rbp, rsp
        &[0x48, 0x8b, 0x45, 0xf8],       // mov rax, [rbp - 8]: the frame
        &[0x48, 0x8b, 0x04, 0x24],       // mov rax, [rsp]: the stack
        &[0x48, 0x8b, 0x05, 0, 0, 0, 0], // mov rax, [rip]
        &[0x48, 0x8d, 0x40, 0x08],       // lea rax, [rax + 8]: reads nothing
        &[0x48, 0x89, 0x08],             // mov [rax], rcx: a store
        &[0x48, 0x8b, 0x00],             // mov rax, [rax]: found
        &[0x48, 0x39, 0x54, 0xd8, 0x10], // cmp [rax + 8 * rbx + 16], rdx: found
        &[0xff, 0x10],                   // call [rax]
        &[0x0f, 0x1f, 0x40, 0x00],       // nop [rax]
        &[0x64, 0x48, 0x8b, 0x00],       // mov rax, fs:[rax]
        &[0xc3],                         // ret
    ];
    let (mut found, mut starts, mut address) = (Vec::new(), Vec::new(), 0x1000);
    for instruction in CODE {
        starts.push(address);
        address += instruction.len() as u64;
    }
    let code: Vec<u8> = CODE.concat();
    Classifier::new().scan_loads(&code, 0x1000, |site| found.push(site.address()));
    assert_eq!(found, [starts[7], starts[8]]);
}
