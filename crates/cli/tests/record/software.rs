//! Real software: PMDK, LMDB, memcached and fio, as packaged by Debian.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{
    Event, Mode, Recorder, Recording, assert_same_events, native, record, record_both, target,
};

/// The target must print the same as without powerfail.
fn assert_same_output(recording: &Recording, program: &Path, arguments: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = folder.path().join("pool");
    let pool = pool.to_str().expect("text");
    let arguments: Vec<_> = arguments
        .iter()
        .map(|argument| {
            if *argument == "{pool}" {
                pool
            } else {
                argument
            }
        })
        .collect();
    let alone = native(program, &arguments);
    assert_eq!(recording.output, String::from_utf8_lossy(&alone.stdout));
}

/// Pools of PMDK have random identifiers and creation times: only those bytes differ between runs.
fn assert_same_shape(one: &Recording, other: &Recording) {
    let shape = |recording: &Recording| -> Vec<(String, u64, u64)> {
        let shape = |event: Event| (event.kind, event.offset, event.len_bytes);
        recording.pool_events().into_iter().map(shape).collect()
    };
    let (left, right) = (shape(one), shape(other));
    for (at, (left, right)) in left.iter().zip(&right).enumerate() {
        assert_eq!(left, right, "event {at}");
    }
    assert_eq!(left.len(), right.len());
}

#[test]
fn a_map_in_libpmemobj() {
    let program = target("object_map.c", &["-O2", "-lpmemobj", "-pthread"]);
    let arguments = ["{pool}", "1", "2000"];
    let [patch, trap] = Mode::BOTH.map(|mode| record(mode, &program, &arguments));
    assert_eq!(patch.output, trap.output);
    for kind in ["store", "ntstore", "locked-store", "clwb", "sfence", "sync"] {
        assert_eq!(patch.count(kind), trap.count(kind), "{kind}");
    }
    assert!(patch.count("store") > 20_000);
    assert!(patch.count("sfence") > 2000);
    assert_same_output(&patch, &program, &arguments);
}

#[test]
fn a_map_in_libpmemobj_with_four_threads() {
    let program = target("object_map.c", &["-O2", "-lpmemobj", "-pthread"]);
    let arguments = ["{pool}", "4", "500"];
    let recording = record(Mode::Patch, &program, &arguments);
    assert_eq!(recording.summary["threads"], 5);
    assert_same_output(&recording, &program, &arguments);
}

#[test]
fn atomic_lists_in_libpmemobj() {
    let program = target("object_list.c", &["-O2", "-lpmemobj"]);
    let recording = record(Mode::Patch, &program, &["{pool}"]);
    assert_same_output(&recording, &program, &["{pool}"]);
}

/// The target compares the content with the expected content after each call.
#[test]
fn copies_of_libpmem_with_all_flags() {
    let program = target("copies.c", &["-O2", "-lpmem"]);
    let recording = record_both(&program, &["{pool}"]);
    for kind in ["store", "ntstore", "sfence"] {
        assert!(recording.count(kind) > 0, "{kind}");
    }
}

#[test]
fn a_log_in_libpmemlog() {
    let program = target("log_and_blocks.c", &["-O2", "-lpmemlog", "-lpmemblk"]);
    let [patch, trap] = Mode::BOTH.map(|mode| record(mode, &program, &["log", "{pool}"]));
    assert_same_shape(&patch, &trap);
    assert_same_output(&patch, &program, &["log", "{pool}"]);
}

#[test]
fn blocks_in_libpmemblk() {
    let program = target("log_and_blocks.c", &["-O2", "-lpmemlog", "-lpmemblk"]);
    let [patch, trap] = Mode::BOTH.map(|mode| record(mode, &program, &["blocks", "{pool}"]));
    assert_same_shape(&patch, &trap);
    assert_same_output(&patch, &program, &["blocks", "{pool}"]);
}

#[test]
fn pmempool_makes_a_pool() {
    let recorder = Recorder::new("pmempool", &["create", "obj", "--layout=x", "--size=8M"]);
    let folder = tempfile::tempdir().expect("a folder");
    let pool = folder.path().join("pool");
    let made = recorder.argument(&pool).run();
    made.assert_exit(0);
    assert!(made.count("store") > 1000);
    let checked = native(
        Path::new("pmempool"),
        &["check", pool.to_str().expect("text")],
    );
    assert!(checked.status.success(), "{checked:?}");
}

/// A pool whose header has a wrong checksum: checking it stores nothing, repairing it stores.
#[test]
fn pmempool_checks_and_repairs_a_pool() {
    const CHECKSUM_AT: u64 = 4096 - 8;
    let folder = tempfile::tempdir().expect("a folder");
    let pool = folder.path().join("pool");
    let path = pool.to_str().expect("text");
    let pmempool = Path::new("pmempool");
    let made = native(pmempool, &["create", "log", "--size=8M", path]);
    assert!(made.status.success(), "{made:?}");
    let file = std::fs::OpenOptions::new().write(true).open(&pool);
    let file = file.expect("the pool is there");
    file.write_all_at(&[0xee; 8], CHECKSUM_AT)
        .expect("the pool is writable");
    let found = Recorder::new(pmempool, &["check", path]).run();
    found.assert_exit(1);
    assert_eq!(found.pool_count(), 1);
    assert_eq!(found.stores(), []);
    let arguments = ["check", "--repair", "--advanced", "--yes", path];
    let repaired = Recorder::new(pmempool, &arguments).run();
    repaired.assert_exit(0);
    let stores = repaired.stores();
    let touches_checksum =
        |store: &Event| (store.offset..store.offset + store.len_bytes).contains(&CHECKSUM_AT);
    assert!(stores.iter().any(touches_checksum));
    let checked = native(pmempool, &["check", path]);
    assert!(checked.status.success(), "{checked:?}");
}

/// Both parts are separate pools; offsets are those in the files.
#[test]
fn a_pool_set_of_two_parts() {
    const PART_LEN: u64 = 16 << 20;
    let program = target("pool_set.c", &["-O2", "-lpmemobj"]);
    let recordings = Mode::BOTH.map(|mode| {
        let recorder = Recorder::new(&program, &[]).mode(mode);
        let parts = ["one", "other"].map(|name| recorder.folder().join(name));
        let set = recorder.folder().join("set");
        let lines: Vec<String> = parts
            .iter()
            .map(|part| format!("{PART_LEN} {}\n", part.display()))
            .collect();
        std::fs::write(&set, format!("PMEMPOOLSET\n{}", lines.concat())).expect("writable");
        let recording = recorder.argument(&set).run();
        recording.assert_exit(0);
        assert_eq!(recording.output, "checked\n");
        let pools = recording.summary["pools"].as_array().expect("pools");
        let paths: Vec<_> = pools.iter().map(|pool| pool["path"].as_str()).collect();
        assert_eq!(paths, parts.each_ref().map(|part| part.to_str()));
        recording
    });
    let [patch, trap] = &recordings;
    assert_same_shape(patch, trap);
    // The offsets of the ends of the five blocks.
    for (pool, block_marks) in [(0, 2), (1, 3)] {
        let stores = patch.stores();
        let marks = stores.iter().filter(|store| {
            store.pool == pool && store.len_bytes == 8 && (1000..1005).contains(&store.value())
        });
        assert_eq!(marks.count(), block_marks, "in part {pool}");
    }
}

#[test]
fn lmdb_in_write_map_mode() {
    let program = target("database.c", &["-O2", "-llmdb"]);
    for (flags, is_synced) in [("sync", true), ("async", false)] {
        let arguments = ["{pool}", flags];
        let recordings = Mode::BOTH.map(|mode| {
            let recorder = Recorder::new(&program, &["{pool}", flags]).mode(mode);
            // Its lock file contains process ids.
            let recording = recorder.option("--pool", "/dev/shm/*/pool").run();
            recording.assert_exit(0);
            assert_eq!(recording.pool_count(), 1);
            recording
        });
        let [patch, trap] = &recordings;
        assert_same_events(patch, trap);
        assert_eq!(patch.count("sync") > 16, is_synced);
        assert_same_output(patch, &program, &arguments);
    }
}

/// Reads the output of the server until it listens; it must not end before.
fn wait_until_it_listens(errors: &mut impl BufRead) {
    let mut line = String::new();
    while !line.contains("server listening") {
        line.clear();
        let len = errors.read_line(&mut line).expect("text");
        assert!(len > 0, "the server has ended");
    }
}

#[test]
fn memcached_with_items_in_a_pool() {
    const VALUE_LEN: usize = 50_000;
    let recorder = Recorder::new("memcached", &["-u", "root", "-m", "40", "-t", "2", "-vv"]);
    let socket = recorder.folder().join("socket");
    let pool = recorder.folder().join("pool");
    let recorder = recorder
        .argument("-s")
        .argument(&socket)
        .argument("-e")
        .argument(&pool);
    let mut server = recorder
        .to_command()
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("powerfail runs");
    let mut errors = BufReader::new(server.stderr.take().expect("standard error"));
    wait_until_it_listens(&mut errors);
    let mut stream = UnixStream::connect(&socket).expect("the server listens");
    let mut requests = b"set short 0 0 5\r\nhello\r\n".to_vec();
    requests.extend_from_slice(format!("set long 0 0 {VALUE_LEN}\r\n").as_bytes());
    requests.extend(std::iter::repeat_n(b'v', VALUE_LEN));
    requests.extend_from_slice(b"\r\nappend short 0 0 6\r\n world\r\nget short\r\nquit\r\n");
    stream.write_all(&requests).expect("the server reads");
    let mut answers = String::new();
    stream
        .read_to_string(&mut answers)
        .expect("the server answers");
    let stored = "STORED\r\nSTORED\r\nSTORED\r\n";
    let expected = format!("{stored}VALUE short 0 11\r\nhello world\r\nEND\r\n");
    assert_eq!(answers, expected);
    let kill = Command::new("kill").arg(server.id().to_string()).status();
    assert!(kill.expect("kill runs").success());
    let mut output = server.wait_with_output().expect("a child of ours");
    errors
        .read_to_end(&mut output.stderr)
        .expect("what is left on standard error");
    let recording = recorder.finish(output.into());
    recording.assert_exit(0);
    assert_eq!(recording.pool_count(), 1);
    let told = recording.outputs();
    let told = |text: &str| {
        told.iter()
            .any(|mark| mark.bytes.starts_with(text.as_bytes()))
    };
    assert!(told("STORED"), "an answer to a client is a mark");
    assert!(
        recording.count("system-store") > 0,
        "long values are received in place"
    );
}

/// Every byte of the file was stored at least once.
fn check_fio(engine: &str, by_thread: bool) {
    const LEN: u64 = 128 << 10;
    let engine = format!("--ioengine={engine}");
    let size = format!("--size={LEN}");
    let mut arguments = vec![
        "--name=job",
        engine.as_str(),
        size.as_str(),
        "--rw=randwrite",
        "--bs=4k",
        "--randseed=1",
        "--filename={pool}",
        "--output-format=terse",
    ];
    if by_thread {
        arguments.push("--thread");
    }
    let recording = Recorder::new("fio", &arguments)
        .option("--pool", "/dev/shm/*/pool")
        .run();
    recording.assert_exit(0);
    let mut written = vec![false; LEN as usize];
    for store in recording.stores() {
        let start = store.offset as usize;
        written[start..start + store.bytes.len()].fill(true);
    }
    assert!(written.into_iter().all(|byte| byte));
}

#[test]
fn fio_with_mmap() {
    check_fio("mmap", true);
}

#[test]
fn fio_with_mmap_in_a_child() {
    check_fio("mmap", false);
}

#[test]
fn fio_with_libpmem() {
    check_fio("libpmem", true);
}
