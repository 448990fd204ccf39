//! Children, programs started by programs, and all ways to end.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::common::{Event, Mode, Recorder, Recording, assert_same_events, record, target};

fn run(mode: Mode, what: &str) -> Recording {
    let program = target("processes.c", &["-O2"]);
    record(mode, &program, &[what, "{pool}"])
}

/// Records in both modes, however the target ends.
fn run_to_its_end(what: &str) -> [Recording; 2] {
    let program = target("processes.c", &["-O2"]);
    Mode::BOTH.map(|mode| Recorder::new(&program, &[what, "{pool}"]).mode(mode).run())
}

/// Offsets and values in the order of the trace.
fn stored(recording: &Recording) -> Vec<(u64, u64)> {
    recording
        .stores()
        .iter()
        .map(|store| (store.offset, store.value()))
        .collect()
}

#[test]
fn children_store_to_the_pool_of_their_parent() {
    let [patch, trap] = run_to_its_end("fork_children");
    patch.assert_exit(0);
    assert_same_events(&patch, &trap);
    assert_eq!(patch.summary["processes"], 5);
    let expected: Vec<_> = (0..4)
        .flat_map(|at| {
            let child = [(0, 10 * at + 2), (8, at + 1), (64 * (at + 1), at + 100)];
            [(0, 10 * at + 1)]
                .into_iter()
                .chain(child)
                .chain([(0, 10 * at + 3)])
        })
        .collect();
    assert_eq!(stored(&patch), expected);
}

#[test]
fn children_that_store_at_once() {
    for mode in Mode::BOTH {
        let recording = run(mode, "fork_at_once");
        let stores = recording.stores();
        let counter: Vec<u64> = stores
            .iter()
            .filter(|store| store.offset == 0)
            .map(Event::value)
            .collect();
        let expected: Vec<u64> = (1..=2500).collect();
        assert_eq!(counter, expected);
        assert_eq!(stores.len(), 2500 + 4 * 500);
    }
}

/// A child that ended by itself has made its last store, whatever the pool contains afterwards.
#[test]
fn last_stores_of_children_that_the_next_store_over() {
    for mode in Mode::BOTH {
        let recording = run(mode, "last_stores");
        let counter: Vec<u64> = recording
            .stores()
            .iter()
            .filter(|store| store.offset == 0)
            .map(Event::value)
            .collect();
        let expected: Vec<u64> = (1..=20).collect();
        assert_eq!(counter, expected);
    }
}

#[test]
fn many_short_children() {
    let recording = run(Mode::Patch, "fork_many");
    let expected: Vec<_> = (0..100).map(|at| (8 * at, at + 1)).collect();
    assert_eq!(stored(&recording), expected);
    assert_eq!(recording.summary["processes"], 101);
    let threads: BTreeSet<u64> = recording
        .stores()
        .iter()
        .map(|store| store.thread)
        .collect();
    assert_eq!(threads.len(), 100, "each child has a thread of its own");
}

#[test]
fn grandchildren() {
    for mode in Mode::BOTH {
        let recording = run(mode, "grandchildren");
        let expected = [(0, 1), (8, 2), (16, 3), (24, 4), (32, 5)];
        assert_eq!(stored(&recording), expected);
    }
}

#[test]
fn a_child_that_becomes_another_program() {
    let [patch, trap] = run_to_its_end("fork_exec");
    patch.assert_exit(0);
    assert_same_events(&patch, &trap);
    assert_eq!(stored(&patch), [(64, 1), (128, 1), (0, 1), (64, 2)]);
    assert_eq!((patch.count("clflush"), patch.count("sfence")), (1, 1));
}

#[test]
fn vfork_and_exec() {
    let [patch, trap] = run_to_its_end("vfork_exec");
    patch.assert_exit(0);
    assert_same_events(&patch, &trap);
    assert_eq!(stored(&patch), [(64, 1), (0, 1), (64, 2)]);
}

#[test]
fn programs_started_by_posix_spawn() {
    for mode in Mode::BOTH {
        let recording = run(mode, "spawn");
        let expected = [(64, 1), (0, 1), (0, 2), (0, 3), (64, 2)];
        assert_eq!(stored(&recording), expected);
    }
}

#[test]
fn programs_started_by_a_shell() {
    for mode in Mode::BOTH {
        let recording = run(mode, "shell");
        let expected = [(64, 1), (0, 1), (0, 2), (64, 2)];
        assert_eq!(stored(&recording)[..4], expected);
        let text: Vec<u8> = recording
            .stores()
            .iter()
            .filter(|store| store.offset >= 256)
            .fold(vec![0; 16], |mut text, store| {
                let start = (store.offset - 256) as usize;
                text[start..start + store.bytes.len()].copy_from_slice(&store.bytes);
                text
            });
        assert_eq!(text, b"from the shell\n\0");
    }
}

#[test]
fn a_program_that_replaces_itself() {
    let [patch, trap] = run_to_its_end("exec_self");
    patch.assert_exit(0);
    assert_same_events(&patch, &trap);
    assert_eq!(stored(&patch), [(64, 1), (0, 1)]);
}

#[test]
fn ends_with_an_exit_code() {
    for (what, code) in [("exit", 3), ("fast_exit", 4)] {
        for recording in run_to_its_end(what) {
            recording.assert_exit(code);
            assert_eq!(stored(&recording), [(0, 1)]);
        }
    }
}

#[test]
fn handlers_at_exit_are_recorded() {
    for recording in run_to_its_end("at_exit") {
        recording.assert_exit(0);
        assert_eq!(stored(&recording), [(0, 1), (8, 2)]);
    }
}

#[test]
fn ends_by_a_signal() {
    for (what, signal) in [("abort", 6), ("kill", 9)] {
        for recording in run_to_its_end(what) {
            recording.assert_signal(signal);
            assert_eq!(stored(&recording), [(0, 1)]);
        }
    }
}

#[test]
fn killed_in_the_middle_of_stores() {
    for recording in run_to_its_end("kill_in_store") {
        recording.assert_signal(9);
        let stores = recording.stores();
        let values = stores.iter().filter(|store| store.offset == 0);
        let values: Vec<u64> = values.map(Event::value).collect();
        let expected: Vec<u64> = (1..=values.len() as u64).collect();
        assert_eq!(values, expected);
    }
}

#[test]
fn children_killed_in_the_middle_of_stores() {
    for recording in run_to_its_end("kill_child") {
        recording.assert_exit(0);
        let last = recording.last_store();
        assert_eq!((last.offset, last.value()), (128, 1));
    }
}

/// A signal for powerfail ends the target and then its children, which the signal of a terminal would reach by itself. Otherwise
/// the recording would go on until its time limit.
#[test]
fn an_interruption_ends_children_too() {
    let program = target("processes.c", &["-O2"]);
    for mode in Mode::BOTH {
        let recorder = Recorder::new(&program, &["waiting_child", "{pool}"])
            .mode(mode)
            .option("--record-timeout", "60s");
        let mut powerfail = recorder
            .to_command()
            .stdout(Stdio::piped())
            .spawn()
            .expect("powerfail runs");
        let mut output = BufReader::new(powerfail.stdout.take().expect("a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a line of the child");
        assert_eq!(line, "ready\n");
        let id = i32::try_from(powerfail.id()).expect("an id");
        let id = rustix::process::Pid::from_raw(id).expect("an id");
        rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("it runs");
        let summary = std::io::read_to_string(output).expect("a summary");
        let status = powerfail.wait().expect("it ends");
        assert_eq!(status.code(), Some(0), "{summary}");
        let summary: serde_json::Value = serde_json::from_str(&summary).expect("JSON");
        assert_eq!(summary["signal"], 15, "{summary}");
        assert_eq!(summary["processes"], 2, "{summary}");
    }
}

/// The next recording removes the files that a killed recording leaves.
#[test]
fn a_killed_recording_leaves_nothing_for_long() {
    let program = target("processes.c", &["-O2"]);
    let folder = tempfile::tempdir().expect("a folder");
    let count = || {
        std::fs::read_dir(folder.path())
            .expect("the folder")
            .count()
    };
    let recorder =
        Recorder::new(&program, &["waiting", "{pool}"]).option("--pm-dir", folder.path());
    let mut powerfail = recorder
        .to_command()
        .stdout(Stdio::piped())
        .spawn()
        .expect("powerfail runs");
    let mut line = String::new();
    let output = powerfail.stdout.take().expect("a pipe");
    BufReader::new(output)
        .read_line(&mut line)
        .expect("a line of the target");
    assert_eq!(line, "ready\n");
    powerfail.kill().expect("it was running");
    powerfail.wait().expect("it was killed");
    assert_eq!(count(), 1);
    Recorder::new(&program, &["fork_children", "{pool}"])
        .option("--pm-dir", folder.path())
        .run()
        .assert_exit(0);
    assert_eq!(count(), 0);
}
