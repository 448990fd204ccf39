//! Sources of nondeterminism give the same values in every run.

use powerfail_model::EventIndex;
use powerfail_recorder::TargetStatus;
use powerfail_trace::{Body, Trace};

use super::{Campaign, Recording, build};

fn run(derandomise: bool) -> Recording {
    let program = build("fixed", &["-lpmemobj"]);
    let campaign = Campaign::new();
    let mut options = campaign.options(&program, &["{pool}"]);
    options.derandomise = derandomise;
    let recording = Campaign::record(&options);
    assert_eq!(recording.summary.status, TargetStatus::Exited(0));
    recording
}

/// The events of the target, in order. When threads start and end is not deterministic.
fn events(trace: &Trace) -> Vec<String> {
    let mut events = Vec::new();
    let mut records = trace.records_from(EventIndex(0));
    while let Some(record) = records.next_record().unwrap() {
        if !matches!(record.body, Body::Pm(_) | Body::Mark(_)) {
            continue;
        }
        let frames: Vec<_> = trace.stack(record.stack).collect();
        events.push(format!("{} {:?} {frames:?}", record.thread.0, record.body));
    }
    events
}

#[test]
fn a_program_does_the_same_in_every_run() {
    let (first, second) = (run(true), run(true));
    assert_eq!(first.output, second.output);
    let [one, two] = [&first, &second].map(|recording| events(&recording.trace));
    assert!(one.len() > 1000, "{}", one.len());
    let difference = one.iter().zip(&two).find(|(one, two)| one != two);
    assert_eq!(difference, None);
    assert_eq!(one.len(), two.len());
    assert_eq!(first.trace.final_images(), second.trace.final_images());
}

#[test]
fn what_is_fixed_makes_sense() {
    let output = run(true).output;
    for part in [
        "time 1700000000;",
        "day 1700000000.000002;",
        "slept 1000;",
        "waited 30;",
        "pid 20000 tid 20000 ppid 19999;",
        "signal 10;",
        "passed 1;from thread 12;",
        "child 20100;",
    ] {
        assert!(output.contains(part), "{part} in {output}");
    }
    let parts: Vec<&str> = output.split(';').collect();
    let hashes = ["getrandom", "getentropy", "raw", "urandom"].map(|name| {
        let part = parts.iter().find(|part| part.starts_with(name)).unwrap();
        part.split(' ').nth(1).unwrap()
    });
    let different: std::collections::BTreeSet<_> = hashes.into_iter().collect();
    assert_eq!(different.len(), hashes.len(), "one stream: {output}");
}
