//! Setups that cannot be recorded are refused in one sentence, before anything runs.

use crate::common::{Recorder, target, targets};

fn assert_refused(recorder: &Recorder, code: i32, sentence: &str) {
    let attempt = recorder.attempt();
    assert_eq!(attempt.code, code, "{attempt:?}");
    assert_eq!(attempt.stdout, "");
    assert_eq!(attempt.stderr.lines().count(), 1, "{attempt:?}");
    assert!(attempt.stderr.contains(sentence), "{attempt:?}");
}

#[test]
fn statically_linked_programs() {
    for flag in ["-static", "-static-pie"] {
        let program = target("ledger.c", &["-O2", flag]);
        let recorder = Recorder::new(&program, &["{pool}"]).option("--backend", "preload");
        assert_refused(&recorder, 4, "is statically linked");
    }
}

#[test]
fn a_program_that_is_not_there() {
    let recorder = Recorder::new("no-such-program", &["{pool}"]);
    assert_refused(&recorder, 2, "no-such-program was not found");
    let recorder = Recorder::new("./no-such-program", &["{pool}"]);
    assert_refused(&recorder, 2, "no-such-program was not found");
}

#[test]
fn a_file_that_is_not_executable() {
    let recorder = Recorder::new(targets().join("ledger.c"), &["{pool}"]);
    assert_refused(&recorder, 2, "is not executable");
}
