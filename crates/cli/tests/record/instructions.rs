//! Every kind of instruction, compared with the log that the program writes.

use crate::common::{Event, Mode, Recording, parse_hex, record, record_both, target};

/// One line of the target's log.
struct Logged {
    kind: String,
    offset: u64,
    bytes: Vec<u8>,
}

fn log(recording: &Recording) -> Vec<Logged> {
    let parse = |line: &str| {
        let mut words = line.split(' ');
        let mut word = || words.next().expect("four words");
        let kind = word().to_owned();
        let offset = u64::from_str_radix(word(), 16).expect("an offset");
        let len = usize::from_str_radix(word(), 16).expect("a length");
        let bytes = parse_hex(word());
        assert_eq!(bytes.len(), len);
        Logged {
            kind,
            offset,
            bytes,
        }
    };
    recording.output.lines().map(parse).collect()
}

/// Takes the plain stores at the head of `events`, which together must write all or some of the logged bytes.
fn take_bulk<'a>(events: &'a [Event], logged: &Logged) -> &'a [Event] {
    let mut written = vec![None; logged.bytes.len()];
    let range = logged.offset..logged.offset + logged.bytes.len() as u64;
    let end = events
        .iter()
        .position(|event| event.kind != "store" || !range.contains(&event.offset))
        .unwrap_or(events.len());
    for event in &events[..end] {
        let start = event
            .offset
            .checked_sub(logged.offset)
            .expect("not below what is written") as usize;
        for (place, byte) in written[start..][..event.bytes.len()]
            .iter_mut()
            .zip(&event.bytes)
        {
            *place = Some(*byte);
        }
    }
    let mut expected: Vec<_> = logged.bytes.iter().copied().map(Some).collect();
    if logged.kind == "some" {
        assert!(end > 0, "nothing at {:#x}", logged.offset);
        for (place, byte) in expected.iter_mut().zip(&written) {
            *place = place.filter(|_| byte.is_some());
        }
    }
    assert_eq!(written, expected, "at {:#x}", logged.offset);
    &events[end..]
}

pub(crate) fn check(recording: &Recording) {
    let events = recording.pool_events();
    let mut rest = events.as_slice();
    for (number, logged) in log(recording).iter().enumerate() {
        if logged.kind == "bulk" || logged.kind == "some" {
            rest = take_bulk(rest, logged);
            continue;
        }
        let (event, behind) = rest.split_first().expect("as many events as logged");
        assert_eq!(
            (&event.kind, event.offset, &event.bytes),
            (&logged.kind, logged.offset, &logged.bytes),
            "line {number} of the log"
        );
        rest = behind;
    }
    assert_eq!(rest, [], "more events than logged");
}

#[test]
fn patched_instructions_are_recorded_exactly() {
    let program = target("instructions.c", &["-O1", "-mcx16", "-mmovbe"]);
    check(&record(Mode::Patch, &program, &["{pool}"]));
}

#[test]
fn trapped_instructions_are_recorded_exactly() {
    let program = target("instructions.c", &["-O1", "-mcx16", "-mmovbe"]);
    check(&record(Mode::Trap, &program, &["{pool}"]));
}

#[test]
fn instructions_of_an_unoptimised_program() {
    let program = target("instructions.c", &["-O0", "-mcx16", "-mmovbe"]);
    check(&record_both(&program, &["{pool}"]));
}

/// Stores without a trampoline: popped, masked, saved state.
#[test]
fn rare_instructions() {
    let program = target("rare.c", &["-O1"]);
    let recording = record_both(&program, &["{pool}"]);
    check(&recording);
    assert!(recording.count("store") > 20);
}
