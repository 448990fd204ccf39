//! Recordings under QEMU: of statically linked programs, and of dynamic ones against the other recorder.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Event, Mode, Recorder, Recording, record, target, targets};
use crate::instructions;

/// Records a target under QEMU; it must exit with zero.
fn emulate(program: &Path, arguments: &[&str]) -> Recording {
    let recorder = Recorder::new(program, arguments).option("--backend", "qemu");
    let recording = recorder.run();
    recording.assert_exit(0);
    recording
}

/// What both recorders must agree on: kind, place and bytes. Stores that continue each other are one: recorders cut those of
/// string instructions at different places.
fn effects(recording: &Recording) -> Vec<(String, u64, Vec<u8>)> {
    let mut effects: Vec<(String, u64, Vec<u8>)> = Vec::new();
    for Event {
        kind,
        offset,
        bytes,
        ..
    } in recording.pool_events()
    {
        if let Some((last, start, before)) = effects.last_mut()
            && *last == kind
            && kind.contains("store")
            && *start + before.len() as u64 == offset
        {
            before.extend(bytes);
        } else {
            effects.push((kind, offset, bytes));
        }
    }
    effects
}

fn assert_same(program: &Path, arguments: &[&str]) {
    let preloaded = effects(&record(Mode::Patch, program, arguments));
    let emulated = effects(&emulate(program, arguments));
    for (at, (preloaded, emulated)) in preloaded.iter().zip(&emulated).enumerate() {
        assert_eq!(preloaded, emulated, "event {at} of {arguments:?}");
    }
    assert_eq!(preloaded.len(), emulated.len(), "{arguments:?}");
    assert!(!emulated.is_empty(), "{arguments:?}");
}

/// All families of instructions that QEMU knows: it has no AVX-512.
#[test]
fn both_recorders_give_the_same_events() {
    let program = target("steps.c", &["-O2"]);
    for family in [
        "plain",
        "addresses",
        "sse",
        "strings",
        "modify",
        "shifts",
        "bits",
        "x87",
        "locked",
        "order",
        "conditions",
        "non_temporal",
    ] {
        assert_same(&program, &[family, "{pool}"]);
    }
}

#[test]
fn instructions_are_recorded_exactly() {
    let program = target("instructions.c", &["-O1", "-mcx16", "-mmovbe"]);
    instructions::check(&emulate(&program, &["{pool}"]));
}

#[test]
fn system_calls_on_pools() {
    let program = target("system_calls.c", &["-O2"]);
    for what in ["buffered_into_pool", "into_file", "durable", "unmapped"] {
        assert_same(&program, &[what, "{pool}"]);
    }
}

/// The values of a counter that all threads add to, in the order of the trace.
#[test]
fn threads_are_recorded_in_the_order_of_their_stores() {
    let program = target("threads.c", &["-O2", "-pthread", "-static"]);
    let recording = emulate(&program, &["add", "{pool}", "4"]);
    let values: Vec<u64> = recording
        .stores()
        .iter()
        .filter(|event| event.offset == 0)
        .map(Event::value)
        .collect();
    let expected: Vec<u64> = (1..=8000).collect();
    assert_eq!(values, expected);
    assert_eq!(recording.summary["threads"], 5);
}

/// The same program with the C library of musl.
fn with_musl(source: &Path, folder: &Path) -> PathBuf {
    let program = folder.join("musl");
    let mut compiler = Command::new("musl-gcc");
    compiler.args(["-O2", "-g", "-static"]).arg(source);
    let status = compiler.arg("-o").arg(&program).status();
    assert!(status.expect("musl-gcc is installed").success());
    program
}

#[test]
fn statically_linked_programs_are_recorded_without_being_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let programs = [
        target("ledger.c", &["-O2", "-static"]),
        target("ledger.c", &["-O2", "-static-pie"]),
        with_musl(&targets().join("ledger.c"), folder.path()),
    ];
    for program in programs {
        let recording = Recorder::new(&program, &["{pool}"]).run();
        recording.assert_exit(0);
        assert!(recording.count("store") > 1000, "{}", recording.summary);
        let text = recording.look(&["events", "--kind", "stores", "--stacks", "--limit", "1"]);
        assert!(text.contains("main") && text.contains("ledger.c"), "{text}");
    }
}

#[test]
fn a_static_program_in_rust() {
    let program = target("mapped.rs", &["-O", "-Ctarget-feature=+crt-static"]);
    let recording = Recorder::new(&program, &["{pool}"]).run();
    recording.assert_exit(0);
    let dynamic = record(Mode::Patch, &target("mapped.rs", &["-O"]), &["{pool}"]);
    for kind in ["store", "sfence"] {
        assert_eq!(recording.count(kind), dynamic.count(kind), "{kind}");
    }
    assert_eq!(recording.summary["threads"], dynamic.summary["threads"]);
}

/// The C library of musl has no unwind tables and keeps no frame pointers.
#[test]
fn the_callers_of_musl_are_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = targets().join("../fail/files/rename_without_fsync.c");
    let program = with_musl(&source, folder.path());
    let recording = Recorder::new(&program, &["{dir}"]).run();
    recording.assert_exit(0);
    for kind in ["write", "rename", "file-sync"] {
        let text = recording.look(&["events", "--kind", kind, "--stacks"]);
        let events = text.matches(&format!("  {kind}  ")).count();
        assert!(events > 0, "{text}");
        assert_eq!(
            text.matches("main (rename_without_fsync.c:").count(),
            events,
            "{text}"
        );
    }
}

/// Replaying the operations gives the tree that was left, or the recording fails.
#[test]
fn every_call_that_changes_files() {
    let program = target("files.c", &["-O1", "-pthread", "-static"]);
    let recording = Recorder::new(&program, &["{dir}", "alone"]).run();
    recording.assert_exit(0);
    let dynamic = target("files.c", &["-O1", "-pthread"]);
    let preloaded = record(Mode::Patch, &dynamic, &["{dir}", "alone"]);
    for kind in ["link", "unlink", "rename", "truncate", "allocate", "mapped"] {
        assert_eq!(recording.count(kind), preloaded.count(kind), "{kind}");
    }
    // QEMU has no openat2 and no pwritev2.
    for kind in ["create", "write", "file-sync"] {
        let missing = preloaded.count(kind) - recording.count(kind);
        assert!(missing <= 4, "{kind}: {}", recording.summary);
    }
    let text = recording.look(&["events", "--kind", "rename", "--stacks", "--limit", "1"]);
    assert!(text.contains("files.c"), "{text}");
}

#[test]
fn without_qemu_its_package_is_named() {
    let program = target("ledger.c", &["-O2", "-static"]);
    let recorder = Recorder::new(&program, &["{pool}"]);
    let output = recorder
        .to_command()
        .env("PATH", "/nowhere")
        .output()
        .expect("powerfail runs");
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("install the package qemu-user"), "{errors}");
}

#[test]
fn what_qemu_cannot_do_is_refused() {
    let program = target("ledger.c", &["-O2", "-static"]);
    for option in ["--heap", "--derandomise"] {
        let attempt = Recorder::new(&program, &["{pool}"]).flag(option).attempt();
        assert_eq!(attempt.code, 4, "{attempt:?}");
        let sentence = format!("under QEMU, where {option} is not available");
        assert!(attempt.stderr.contains(&sentence), "{attempt:?}");
    }
}
