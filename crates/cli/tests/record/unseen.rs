//! Writes to pools past the usual functions of the C library: they are recorded, or the target ends with their name.

use serde_json::json;

use crate::common::{Mode, Recorder, record_both, target, target_with};

fn program() -> std::path::PathBuf {
    target("unseen.c", &["-O2"])
}

#[test]
fn a_pool_mapped_by_an_instruction_of_the_target() {
    for mode in Mode::BOTH {
        let recording = Recorder::new(program(), &["mapped_raw", "{pool}"])
            .mode(mode)
            .run();
        recording.assert_exit(0);
        let stores = recording.stores();
        let seen: Vec<_> = stores
            .iter()
            .map(|store| (store.offset, store.value()))
            .collect();
        assert_eq!(seen, [(64, 101)]);
        assert_eq!(recording.count("clflush"), 1);
    }
}

#[test]
fn what_cannot_be_recorded_is_named() {
    for (what, name) in [
        ("sendfile", "sendfile"),
        ("splice", "splice"),
        ("copy_file_range", "copy_file_range"),
        ("raw_copy_file_range", "copy_file_range"),
        ("process_vm_writev", "process_vm_writev"),
        ("process_vm_readv", "process_vm_readv"),
        ("io_submit", "io_submit"),
    ] {
        let attempt = Recorder::new(program(), &[what, "{pool}"]).attempt();
        assert_eq!(attempt.code, 4, "{attempt:?}");
        let sentence = format!("the target writes to a pool with {name}, which cannot be recorded");
        assert!(attempt.stderr.contains(&sentence), "{attempt:?}");
    }
}

#[test]
fn io_uring_does_not_exist_for_the_target() {
    let recording = Recorder::new(program(), &["io_uring", "{pool}"]).run();
    recording.assert_exit(0);
    let warnings = recording.summary["warnings"].to_string();
    assert!(warnings.contains("io_uring"), "{warnings}");
    assert_eq!(recording.stores().len(), 2);
}

#[test]
fn direct_writes_to_the_file() {
    let recording = Recorder::new(program(), &["direct", "{pool}"]).run();
    if recording.summary["exit_code"] == 77 {
        // The file system has none.
        return;
    }
    recording.assert_exit(0);
    let bytes = |offset: u64| -> u64 {
        let stores = recording.stores();
        let page = offset..offset + 4096;
        let inside = stores.iter().filter(|store| page.contains(&store.offset));
        inside.map(|store| store.len_bytes).sum()
    };
    assert_eq!((bytes(8192), bytes(16384)), (4096, 4096));
}

#[test]
fn names_of_a_library_that_was_opened_for_itself() {
    let shared = ["-O2", "-shared", "-fPIC"];
    let with = |flags: &[&str]| target_with("local_names.c", "so", &[&shared[..], flags].concat());
    let provider = with(&["-DPROVIDER"]);
    let provider = provider.to_str().expect("text");
    let plugin = with(&["-DPLUGIN", provider]);
    let plugin = plugin.to_str().expect("text");
    let program = target("local_names.c", &["-O2"]);
    let recording = Recorder::new(&program, &["{pool}", plugin]).run();
    recording.assert_exit(0);
    assert_eq!(
        recording
            .stores()
            .iter()
            .map(|store| store.len_bytes)
            .sum::<u64>(),
        32
    );
}

#[test]
fn a_program_in_go_without_c_is_not_preloaded() {
    let program = target("unseen.c", &["-O2", "-static", "-DHAS_NOTE_OF_GO"]);
    let recorder = Recorder::new(&program, &["mapped_raw", "{pool}"]);
    let attempt = recorder.option("--backend", "preload").attempt();
    assert_eq!(attempt.code, 4, "{attempt:?}");
    let says = attempt.stderr.contains("is a Go program without C code");
    assert!(says, "{attempt:?}");
}

#[test]
fn code_of_go_is_found_by_its_own_table() {
    for layout in ["-DLAYOUT=0xf0", "-DLAYOUT=0xf1"] {
        let program = target("go_table.c", &["-O2", "-no-pie", layout]);
        let recording = record_both(&program, &["{pool}"]);
        recording.assert_exit(0);
        assert_eq!(recording.summary["warnings"], json!([]));
        let stores = recording.json_events_of(&["--kind", "stores", "--stacks"]);
        assert_eq!(stores.len(), 2);
        for store in stores {
            let frames = store["stack"].as_array().expect("a stack");
            let frames: Vec<&str> = frames.iter().filter_map(|it| it.as_str()).collect();
            // The store, its caller and main, and then who called main.
            let modules = ["go_table", "go_table", "go_table", "libc"];
            assert!(frames.len() >= modules.len(), "{frames:?}");
            let mut pairs = frames.iter().zip(modules);
            let is_right = pairs.all(|(frame, module)| frame.starts_with(module));
            assert!(is_right, "{frames:?}");
        }
    }
}

/// Breakpoints for system calls stay where they are, whatever the stores beside them need for their jumps.
#[test]
fn stores_beside_system_calls() {
    for flag in ["-no-pie", "-pie"] {
        let program = target("beside_calls.c", &["-O2", flag]);
        let recording = record_both(&program, &["{pool}"]);
        recording.assert_exit(0);
        // Five rounds of seven functions, one of which stores twice.
        assert_eq!(recording.stores().len(), 5 * 8);
        assert_eq!(recording.summary["warnings"], json!([]));
    }
}

#[test]
fn code_without_unwind_tables_is_named() {
    let flags = ["-O2", "-fno-asynchronous-unwind-tables"];
    let program = target("beside_calls.c", &flags);
    let recording = Recorder::new(&program, &["{pool}"]).run();
    recording.assert_exit(0);
    let warnings = recording.summary["warnings"].as_array().expect("a list");
    let name = program.to_str().expect("text");
    let names_it = |warning: &serde_json::Value| {
        let warning = warning.as_str().expect("a sentence");
        warning.starts_with(name) && warning.contains("code without unwind tables")
    };
    assert!(warnings.iter().any(names_it), "{warnings:?}");
}
