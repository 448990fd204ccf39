//! Memory that changes at every instruction of a locked operation's trampoline: a record that a reader may trust does
//! not change, and the record that is trusted in the end describes what happened.

use iced_x86::Code;
use powerfail_patch::{Action, LockedFences, StoreForm};
use powerfail_protocol::{EventKind, Header, Record};

use crate::bench::{Bench, Written, decode, is_jumped_over};
use crate::cases::{Case, random_case};
use crate::instances;
use crate::machine::{Layout, Machine};
use crate::random::Random;

/// A committed record.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Committed {
    header: Header,
    stamp: u64,
    is_tentative: bool,
    value: Vec<u8>,
}

impl Committed {
    fn new(record: &Record<'_>) -> Option<Self> {
        (record.stamp != 0).then(|| Self {
            header: record.header,
            stamp: record.stamp,
            is_tentative: record.is_tentative,
            value: record.value().to_vec(),
        })
    }
}

/// How many records were seen before their operation was complete.
#[derive(Default)]
struct Seen {
    /// Final immediately.
    final_already: usize,
    /// Tentative, and unchanged.
    confirmed: usize,
    /// Tentative, and rewritten.
    retried: usize,
}

fn is_tried_again(case: &Case) -> bool {
    matches!(case.site.action, Action::Store(store)
        if store.kind == EventKind::StoreLocked || store.form == StoreForm::CompareExchangePair)
}

fn check(bench: &mut Bench, case: &Case, random: &mut Random, tally: &mut Seen) {
    let Written { at, code, .. } = bench.write_trampoline(case);
    let instructions = decode(&code, at);
    let seed = random.next();
    for instruction in &instructions {
        if is_jumped_over(instruction, &instructions) {
            continue;
        }
        Random::new(seed).fill(bench.machine.pool());
        bench.machine.reset_ring(None);
        bench.machine.write_code(at, &code);
        bench.write_jump(instruction.ip(), Machine::stop_address());
        let stopped = bench.machine.run(at, &case.state);
        bench.machine.write_code(at, &code);
        if !bench.machine.was_stopped() {
            continue;
        }
        let before = bench.machine.records().first().and_then(Committed::new);
        for byte in bench.machine.pool() {
            *byte = !*byte;
        }
        bench.machine.run(instruction.ip(), &stopped);

        let what = format!(
            "{:?} {:02x?} at {:#x}",
            case.site.instruction.code(),
            case.code,
            instruction.ip() - at
        );
        let records = bench.machine.records();
        assert_eq!(records.len(), 1, "{what}");
        let address = records[0].address.expect("an address");
        let after = Committed::new(&records[0]).expect("a stamp");
        assert!(!after.is_tentative, "{what}");
        let offset = (address - bench.layout.pool()) as usize;
        let in_pool = &bench.machine.pool()[offset..offset + after.value.len()];
        match before {
            Some(before) if !before.is_tentative => {
                assert_eq!(before, after, "{what}");
                tally.final_already += 1;
            }
            Some(before) if before.stamp == after.stamp => {
                let is_tentative = false;
                let confirmed = Committed {
                    is_tentative,
                    ..before
                };
                assert_eq!(confirmed, after, "{what}");
                tally.confirmed += 1;
            }
            before => {
                assert_eq!(in_pool, after.value, "{what}");
                tally.retried += usize::from(before.is_some());
            }
        }
    }
}

#[test]
fn only_what_has_happened_is_final() {
    let mut bench = Bench::new(Layout::Near, |settings| {
        settings.locked_fences = LockedFences::Never;
    });
    let mut random = Random::new(11);
    let mut seen = Seen::default();
    let mut cases = 0;
    for code in Code::values().filter(|code| instances::runs_here(*code)) {
        // Whether there is a lock is random.
        for _ in 0..8 {
            if let Some(case) = random_case(&mut bench, code, &mut random)
                && case.aim.in_pool
                && is_tried_again(&case)
            {
                check(&mut bench, &case, &mut random, &mut seen);
                cases += 1;
            }
        }
    }
    assert!(cases > 100, "only {cases} cases");
    assert!(seen.final_already > cases, "{}", seen.final_already);
    assert!(seen.confirmed >= cases, "{}", seen.confirmed);
    assert!(seen.retried > cases, "{}", seen.retried);
}
