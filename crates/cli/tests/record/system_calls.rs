//! What the kernel writes to a pool on behalf of the target, and what the target outputs.

use crate::common::{Event, Mode, Recorder, Recording, assert_same_events, record_both, target};

fn run(what: &str) -> Recording {
    let program = target("system_calls.c", &["-O2"]);
    record_both(&program, &[what, "{pool}"])
}

/// Offsets and bytes that the kernel stored.
fn system_stores(events: &[Event]) -> Vec<(u64, &str)> {
    events
        .iter()
        .filter(|event| event.kind == "system-store")
        .map(|event| {
            (
                event.offset,
                std::str::from_utf8(&event.bytes).expect("text"),
            )
        })
        .collect()
}

#[test]
fn read_and_receive_into_a_pool() {
    let program = target("system_calls.c", &["-O2"]);
    for mode in Mode::BOTH {
        let recording = Recorder::new(&program, &["into_pool", "{pool}"])
            .mode(mode)
            .run();
        recording.assert_exit(0);
        let mut events = recording.stores();
        let random = events.pop().expect("stores");
        assert_eq!(random.kind, "system-store");
        assert_eq!((random.offset, random.len_bytes), (512, 32));
        assert_ne!(random.bytes, [0; 32]);
        let expected = [
            (0, "abcde"),
            (64, "klmnopq"),
            (128, "fg"),
            (190, "klmn"),
            (128, "bc"),
            (190, "ghij"),
            (256, "uvwxyz"),
            (320, "0123"),
            (384, "4"),
            (400, "56789"),
            (448, "xyz"),
        ];
        assert_eq!(system_stores(&events), expected);
        assert_eq!(events.len(), expected.len());
    }
}

#[test]
fn streams_read_into_a_pool() {
    run("buffered_into_pool");
}

#[test]
fn write_to_the_file_of_a_pool() {
    let recording = run("into_file");
    let expected = [
        (100, "hello"),
        (200, "ab"),
        (202, "cd"),
        (300, "one"),
        (303, "fourteen"),
        (400, "one"),
        (403, "fourteen"),
        (500, "hello"),
    ];
    assert_eq!(system_stores(&recording.events()), expected);
    assert_eq!(recording.outputs(), [], "a pool is not the outside");
}

#[test]
fn a_pool_grows_and_shrinks() {
    const MIB: u64 = 1 << 20;
    let recording = run("resized");
    let lengths: Vec<u64> = recording
        .events()
        .iter()
        .filter(|event| event.kind == "resize")
        .map(|event| event.len_bytes)
        .collect();
    // The last one is noted a second time, because the file is looked at again.
    let expected = [2 * MIB, MIB / 2, MIB, 3 * MIB, MIB, 2 * MIB, 2 * MIB];
    assert_eq!(lengths, expected);
    assert_eq!(recording.summary["pools"][0]["initial_len_bytes"], MIB);
    assert_eq!(recording.summary["pools"][0]["final_len_bytes"], 2 * MIB);
}

#[test]
fn syncs_are_recorded_where_they_succeed() {
    let recording = run("durable");
    let events = recording.pool_events();
    let seen: Vec<_> = events
        .iter()
        .map(|event| (event.kind.as_str(), event.offset, event.len_bytes))
        .collect();
    let expected = [
        ("store", 4096, 8),
        ("sync", 4096, 4096),
        ("store", 0, 8),
        ("sync", 0, 1 << 20),
        ("store", 64, 8),
        ("sync", 0, 1 << 20),
        // Those without MS_SYNC make nothing durable.
        ("annotation", 0, 24),
        ("annotation", 0, 24),
        ("annotation", 0, 24),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn syncs_of_other_mappings_and_descriptors() {
    let recording = run("durable_elsewhere");
    let events = recording.pool_events();
    let seen: Vec<_> = events
        .iter()
        .map(|event| (event.kind.as_str(), event.offset, event.len_bytes))
        .collect();
    let expected = [
        ("store", 8192, 8),
        ("sync", 8192, 4096),
        ("store", 4096, 8),
        ("sync", 4096, 4096),
        ("store", 0, 8),
        // For a file there is one per mapping.
        ("sync", 0, 1 << 20),
        ("sync", 4096, 8192),
        ("store", 8, 8),
        ("sync", 0, 1 << 20),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn outputs_are_marks_in_the_order_of_events() {
    let program = target("system_calls.c", &["-O2"]);
    let recordings = Mode::BOTH.map(|mode| {
        let recorder = Recorder::new(&program, &["told", "{pool}"]).mode(mode);
        let recording = recorder.run();
        recording.assert_exit(0);
        let events = recording.events();
        let seen: Vec<_> = events
            .iter()
            .filter(|event| !event.kind.starts_with("thread"))
            .map(|event| {
                if event.is_store() {
                    return (event.value().to_string(), event.len_bytes);
                }
                let fd = event.offset;
                let shown = event.bytes[..event.bytes.len().min(12)].to_vec();
                let shown = String::from_utf8(shown).expect("text");
                let fd = if fd > 2 {
                    "other".to_owned()
                } else {
                    fd.to_string()
                };
                (format!("{fd}: {shown}"), event.len_bytes)
            })
            .collect();
        let expected = [
            ("1", 8),
            ("1: printed 42\n", 11),
            ("2", 8),
            ("1: written\n", 8),
            ("3", 8),
            ("2: in pieces\n", 10),
            ("4", 8),
            ("other: xxxxxxxxxxxx", 1000),
            ("5", 8),
            ("other: sent", 4),
            ("6", 8),
            ("1: at the end\n\n", 12),
        ];
        let expected = expected.map(|(text, len)| (text.to_owned(), len));
        assert_eq!(seen, expected);
        assert_eq!(recording.output, "printed 42\nwritten\nat the end\n\n");
        assert!(recording.errors.starts_with("in pieces\n"));
        recording
    });
    assert_same_events(&recordings[0], &recordings[1]);
}

#[test]
fn writes_make_a_pool_longer() {
    const MIB: u64 = 1 << 20;
    let recording = run("appended");
    let expected = [
        (MIB, "one"),
        (MIB + 3, "two"),
        (MIB + 6, "thr"),
        (MIB + 9, "ee"),
        (3 * MIB, "far"),
        (64, "none"),
    ];
    assert_eq!(system_stores(&recording.events()), expected);
    assert_eq!(
        recording.summary["pools"][0]["final_len_bytes"],
        3 * MIB + 3
    );
    assert!(recording.count("sync") > 0);
}

#[test]
fn holes_are_stores_of_zeros() {
    let recording = run("punched");
    let events = recording.stores();
    let zeros: u64 = events
        .iter()
        .filter(|event| event.kind == "system-store")
        .map(|event| {
            assert!(event.bytes.iter().all(|byte| *byte == 0));
            event.len_bytes
        })
        .sum();
    assert_eq!(
        zeros,
        5000 + 3 * 4096,
        "of the second only what was not zero"
    );
    assert_eq!(recording.summary["pools"][0]["final_len_bytes"], 2 << 20);
}

#[test]
fn system_calls_past_the_c_library() {
    let program = target("system_calls.c", &["-O2"]);
    for mode in Mode::BOTH {
        let recording = Recorder::new(&program, &["raw", "{pool}"]).mode(mode).run();
        recording.assert_exit(0);
        let mut events = recording.events();
        events.retain(|event| event.kind != "system-store" || event.offset != 256);
        let expected = [
            (0, "abc"),
            (64, "ef"),
            (128, "file"),
            (320, "a"),
            (321, "b"),
        ];
        assert_eq!(system_stores(&events), expected);
        assert_eq!(recording.count("system-store"), 6);
        assert_eq!(recording.count("sync"), 1);
        let stores = recording.stores();
        assert!(stores.iter().any(|store| store.offset == 192));
    }
}

#[test]
fn threads_and_processes_made_with_clone() {
    let program = target("system_calls.c", &["-O2"]);
    for mode in Mode::BOTH {
        let recording = Recorder::new(&program, &["cloned", "{pool}"])
            .mode(mode)
            .run();
        recording.assert_exit(0);
        let stores = recording.stores();
        for place in 0..9 {
            let values: Vec<u64> = stores
                .iter()
                .filter(|store| store.offset == 64 * place)
                .map(Event::value)
                .collect();
            assert!(values.iter().copied().eq(1..=100), "{place}: {values:?}");
        }
        assert_eq!(recording.count("clflush"), 900);
        assert_eq!(recording.count("sfence"), 900);
        assert_eq!(recording.summary["processes"], 4);
        assert_eq!(recording.summary["threads"], 6);
    }
}

#[test]
fn shared_memory_that_cannot_be_recorded_is_named() {
    let program = target("system_calls.c", &["-O2"]);
    for (what, sentence) in [
        ("shared_memory", "a process that shares its memory"),
        ("raw_thread", "a thread with a raw clone system call"),
    ] {
        let attempt = Recorder::new(&program, &[what, "{pool}"]).attempt();
        assert_eq!(attempt.code, 4, "{attempt:?}");
        assert!(attempt.stderr.contains(sentence), "{attempt:?}");
    }
}

#[test]
fn writes_to_a_pool_that_is_not_mapped_any_more() {
    let recording = run("unmapped");
    assert_eq!(system_stores(&recording.events()), [(64, "later")]);
    assert_eq!(recording.summary["pools"][0]["final_len_bytes"], 2 << 20);
}
