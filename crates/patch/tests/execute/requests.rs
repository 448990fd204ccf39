//! Client requests: the runtime's answer is returned in RDX, and nothing else changes.

use powerfail_patch::{Action, Classifier, MAX_TRAMPOLINE_LEN, Means, Turns};
use powerfail_protocol::{SiteId, request};

use crate::bench::Bench;
use crate::cases::random_state;
use crate::frame::State;
use crate::machine::{Layout, Machine, TRAMPOLINE_AT, answer};
use crate::random::Random;

const SITE: SiteId = SiteId(41);
/// The flags that a program can set: status and direction.
const FLAGS: u64 = 0xcd5;

/// Puts the words of a request into volatile memory and its address into RAX.
fn prepare(bench: &mut Bench, state: &mut State, random: &mut Random) -> [u64; request::WORDS] {
    let words = core::array::from_fn(|_| random.next());
    let at = Machine::volatile_address() + 8 * random.below(64);
    for (index, word) in words.iter().enumerate() {
        let word: &u64 = word;
        bench
            .machine
            .memory(at + 8 * index as u64, 8)
            .copy_from_slice(&word.to_le_bytes());
    }
    state.registers[0] = at;
    words
}

#[test]
fn the_answer_arrives_and_nothing_else_changes() {
    let mut random = Random::new(9);
    for turns in [Turns::NotAskedFor, Turns::AskedFor] {
        let mut bench = Bench::new(Layout::Near, |settings| settings.turns = turns);
        let start = bench.write_snippet(&request::SEQUENCE);
        let site = bench.classifier.classify(&request::SEQUENCE, start);
        assert_eq!(site.action, Action::Request);
        let at = Machine::code_address(TRAMPOLINE_AT);
        for round in 0..200 {
            let flags_dead = round % 2 == 1;
            let mut out = [0; MAX_TRAMPOLINE_LEN];
            let emitted = bench
                .emitter
                .emit(&site, SITE, at, flags_dead, &mut out)
                .unwrap();
            bench.machine.write_code(at, &out[..emitted.len_bytes]);
            let mut state = random_state(&mut random);
            let words = prepare(&mut bench, &mut state, &mut random);
            let native = bench.machine.run(start, &state);
            assert_eq!(
                native.registers, state.registers,
                "the sequence does nothing"
            );
            let outcome = bench.machine.run(at, &state);
            let mut expected = state.clone();
            expected.registers[2] = answer(SITE, words, state.registers[2]);
            assert_eq!(outcome.registers, expected.registers);
            if !flags_dead {
                assert_eq!(outcome.flags & FLAGS, expected.flags & FLAGS);
            }
            assert_eq!(outcome.extended[576..], native.extended[576..]);
            assert!(bench.machine.records().is_empty());
        }
    }
}

#[test]
fn it_is_found_in_a_scan_and_nothing_like_it_is() {
    let mut code = vec![0x90, 0x48, 0xc1, 0xc7, 0x03];
    code.extend(request::SEQUENCE);
    // Cut short at the end, and with another last instruction.
    code.extend(&request::SEQUENCE[..16]);
    code.extend([0x48, 0x87, 0xc9]);
    code.extend(&request::SEQUENCE[..18]);
    let mut found = Vec::new();
    Classifier::new().scan(&code, 0x1000, |scanned| {
        found.extend(scanned.silent.map(|site| {
            assert_eq!(site.means, Means::Trampoline);
            (site.address(), site.len_bytes(), site.resume_address())
        }));
    });
    assert_eq!(found, [(0x1005, 4, 0x1018)]);
}
