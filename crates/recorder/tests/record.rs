//! Recordings of a target that speaks the protocol itself, with known traces.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use powerfail_model::{Event, EventIndex, FenceKind, FlushKind, StoreKind};
use powerfail_protocol::message::SiteTactic;
use powerfail_recorder::{
    IgnoreReason, RecordError, RecordOptions, RecordingSummary, TargetStatus, record,
};
use powerfail_trace::{Body, Frame, MarkKind, RecordKind, Trace};

const PAGE: u64 = 4096;

#[test]
fn a_target_whose_time_is_over_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let command = vec!["sleep".into(), "1000".into()];
    let mut options = RecordOptions::new(command, directory.path().join("trace"));
    options.time_limit = Some(std::time::Duration::from_millis(50));
    match record(&options, &[]) {
        Err(RecordError::RuntimeSilent { status }) => {
            assert_eq!(status, TargetStatus::Killed(9));
        }
        other => panic!("{other:?}"),
    }
}

/// A directory with pools of one page each, and a trace.
struct Setup {
    directory: tempfile::TempDir,
}

impl Setup {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn pool(&self, name: &str, pages: u64) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, vec![0; (pages * PAGE) as usize]).unwrap();
        path
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn options(&self, scenario: &str, arguments: &[&Path]) -> RecordOptions {
        let mut command: Vec<OsString> = vec![
            env!("CARGO_BIN_EXE_powerfail-fake-target").into(),
            scenario.into(),
        ];
        command.extend(
            arguments
                .iter()
                .map(|argument| argument.as_os_str().to_owned()),
        );
        RecordOptions::new(command, self.path("trace"))
    }

    fn record(&self, scenario: &str, arguments: &[&Path]) -> RecordingSummary {
        let summary = record(&self.options(scenario, arguments), &[]).unwrap();
        assert_eq!(summary.fatal, [""; 0]);
        summary
    }

    fn trace(&self) -> Trace {
        let trace = Trace::open(self.path("trace")).unwrap();
        trace.verify().unwrap();
        trace
    }
}

/// Calls `visit` with the stores of a trace: pool, offset, bytes, thread.
fn for_each_store(trace: &Trace, mut visit: impl FnMut(u32, u64, &[u8], u32)) {
    let mut records = trace.records_from(EventIndex(0));
    while let Some(record) = records.next_record().unwrap() {
        if let Body::Pm(Event::Store { at, bytes, .. }) = record.body {
            visit(at.pool.0, at.offset.0, bytes, record.thread.0);
        }
    }
}

fn stores(trace: &Trace) -> Vec<(u32, u64, Vec<u8>)> {
    let mut stores = Vec::new();
    for_each_store(trace, |pool, offset, bytes, _| {
        stores.push((pool, offset, bytes.to_vec()));
    });
    stores
}

fn values(trace: &Trace) -> Vec<u64> {
    let mut values = Vec::new();
    for_each_store(trace, |_, _, bytes, _| {
        values.push(u64::from_le_bytes(bytes.try_into().unwrap()));
    });
    values
}

#[test]
fn every_kind_of_record() {
    let setup = Setup::new();
    let pool = setup.pool("pool", 2);
    let mut options = setup.options("kinds", &[&pool]);
    options.output_prefix_bytes = 11;
    let summary = record(&options, &[]).unwrap();
    let trace = setup.trace();
    let mut seen = Vec::new();
    let mut frames = Vec::new();
    let mut records = trace.records_from(EventIndex(0));
    while let Some(record) = records.next_record().unwrap() {
        frames.push(trace.stack(record.stack).next());
        seen.push(match record.body {
            Body::Pm(Event::Store { kind, at, bytes }) => {
                format!("{kind:?} {at} {} {}", bytes[0], bytes.len())
            }
            Body::Mark(mark) => {
                format!("{:?} {}", mark.kind, String::from_utf8_lossy(mark.payload))
            }
            body => format!("{body:?}"),
        });
    }
    let output = MarkKind::Output {
        fd: 2,
        full_len_bytes: 5000,
    };
    let pool_index = powerfail_model::PoolIndex(0);
    let place =
        |offset| powerfail_model::Place::new(pool_index, powerfail_model::PoolOffset(offset));
    let debug = |event: Event<'_>| format!("{:?}", Body::Pm(event));
    let expected = vec![
        "ThreadStart".to_owned(),
        format!("{:?} 0:0x10 1 3", StoreKind::Plain),
        format!("{:?} 0:0x40 9 8", StoreKind::NonTemporal),
        format!("{:?} 0:0x80 7 4", StoreKind::Locked),
        format!("{:?} 0:0x1000 5 1000", StoreKind::System),
        format!("{:?} 0:0xc9 5 2", StoreKind::Plain),
        format!("{:?} 0:0xcc 7 1", StoreKind::Plain),
        debug(Event::Flush {
            kind: FlushKind::Clflush,
            at: place(17),
        }),
        debug(Event::Flush {
            kind: FlushKind::Clflushopt,
            at: place(64),
        }),
        format!(
            "{:?}",
            Body::VolatileFlush {
                kind: FlushKind::Clwb,
                address: 0x7fff_0000
            }
        ),
        debug(Event::Fence(FenceKind::Sfence)),
        debug(Event::Fence(FenceKind::Mfence)),
        debug(Event::Fence(FenceKind::Locked)),
        debug(Event::Fence(FenceKind::Locked)),
        debug(Event::Sync {
            pool: pool_index,
            offset: powerfail_model::PoolOffset(PAGE),
            len_bytes: PAGE,
        }),
        format!("{output:?} a beginning"),
        debug(Event::Resize {
            pool: pool_index,
            len_bytes: 3 * PAGE,
        }),
        "ThreadEnd".to_owned(),
    ];
    assert_eq!(seen, expected);
    let module = powerfail_trace::ModuleIndex(0);
    assert_eq!(
        frames[1],
        Some(Frame::Module {
            module,
            offset: 0x1000
        })
    );
    assert_eq!(frames[2], Some(Frame::Absolute { address: 0x99_0000 }));
    assert_eq!(trace.modules()[0].build_id, [0xab, 0xcd]);
    assert_eq!(trace.pools()[0].path, pool);
    assert_eq!(summary.status, TargetStatus::Exited(0));
    assert_eq!(summary.events(), trace.event_count());
    assert_eq!(summary.events_of(RecordKind::Store), 3);
    assert_eq!(summary.trap_events, 1);
    assert_eq!(
        (
            summary.sites.of(SiteTactic::Jump),
            summary.sites.of(SiteTactic::Trap)
        ),
        (1, 1)
    );
    assert_eq!(summary.sites.total(), 2);
    assert_eq!(summary.warnings, ["something is odd"]);
    assert_eq!((summary.process_count, summary.thread_count), (1, 1));
    assert_eq!(summary.pools[0].final_len_bytes, 3 * PAGE);
    assert_eq!(
        summary.trace_bytes,
        std::fs::metadata(setup.path("trace")).unwrap().len()
    );
}

/// The thread of a store may wait long before it voids it, for example for a page of the file.
#[test]
fn a_store_that_is_voided_long_after_it_was_read() {
    for scenario in ["voided-late-alone", "voided-late-locked"] {
        let setup = Setup::new();
        let pools: Vec<_> = (0..4)
            .map(|number| setup.pool(&format!("pool{number}"), 1))
            .collect();
        let pools: Vec<&Path> = pools.iter().map(PathBuf::as_path).collect();
        setup.record(scenario, &pools);
        let expected = [u64::from_le_bytes([1; 8])];
        assert_eq!(values(&setup.trace()), expected, "{scenario}");
    }
}

#[test]
fn threads_that_take_turns_are_in_order() {
    let setup = Setup::new();
    let pool = setup.pool("pool", 1);
    let summary = setup.record("turns", &[&pool]);
    let trace = setup.trace();
    assert_eq!(values(&trace), (0..4000).collect::<Vec<_>>());
    for_each_store(&trace, |_, _, bytes, thread| {
        let first = u64::from_le_bytes(bytes.try_into().unwrap()) % 4;
        assert!(u64::from(thread) <= 4, "thread {thread} of turn {first}");
    });
    assert_eq!(summary.thread_count, 5);
    assert_eq!(summary.events_of(RecordKind::ThreadEnd), 5);
    assert_eq!(summary.warnings, [""; 0]);
}

#[test]
fn a_full_ring_makes_the_target_wait_and_drops_nothing() {
    let setup = Setup::new();
    let pool = setup.pool("pool", 1);
    let mut options = setup.options("long", &[&pool]);
    options.chunk_count = 2;
    let summary = record(&options, &[]).unwrap();
    assert_eq!(values(&setup.trace()), (0..100_000).collect::<Vec<_>>());
    assert_eq!(summary.events_of(RecordKind::Store), 100_000);
    assert_eq!(summary.uncommitted_records, 0);
}

#[test]
fn a_killed_target_leaves_what_it_had_committed_and_done() {
    let setup = Setup::new();
    let pool = setup.pool("pool", 1);
    let summary = setup.record("killed", &[&pool]);
    assert_eq!(summary.status, TargetStatus::Killed(9));
    assert_eq!(
        (summary.uncommitted_records, summary.unperformed_stores),
        (1, 1)
    );
    assert_eq!(
        stores(&setup.trace()),
        [(0, 0, vec![1; 8]), (0, 16, vec![3; 8])]
    );
}

#[test]
fn a_file_that_is_mapped_twice_is_one_pool_and_may_grow() {
    let setup = Setup::new();
    let pool = setup.pool("pool", 2);
    let summary = setup.record("twice", &[&pool]);
    let trace = setup.trace();
    assert_eq!(trace.pools().len(), 1);
    assert_eq!(trace.pools()[0].len_bytes, 2 * PAGE);
    let expected = [
        (0, PAGE, vec![1; 8]),
        (0, PAGE + 8, vec![2; 8]),
        (0, 3 * PAGE, vec![3; 8]),
    ];
    assert_eq!(stores(&trace), expected);
    assert_eq!(summary.events_of(RecordKind::Resize), 1);
    assert_eq!(summary.pools[0].final_len_bytes, 4 * PAGE);
}

#[test]
fn a_store_over_the_border_of_two_pools_is_two_stores() {
    let setup = Setup::new();
    let (one, other) = (setup.pool("one", 1), setup.pool("other", 1));
    let summary = setup.record("neighbours", &[&one, &other]);
    let expected = [
        (0, PAGE - 3, vec![1, 2, 3]),
        (1, 0, vec![4, 5, 6, 7, 8]),
        (0, 0, vec![9]),
    ];
    assert_eq!(stores(&setup.trace()), expected);
    assert_eq!(summary.unmapped_bytes, 0);
}

#[test]
fn processes_have_their_own_address_spaces() {
    let setup = Setup::new();
    let pool = setup.pool("pool", 1);
    let summary = setup.record("fork", &[&pool]);
    let trace = setup.trace();
    assert_eq!((summary.process_count, trace.pools().len()), (4, 4));
    let mut seen = vec![Vec::new(); 4];
    for_each_store(&trace, |pool, _, bytes, _| {
        seen[pool as usize].push(u64::from_le_bytes(bytes.try_into().unwrap()));
    });
    assert_eq!(seen[0], [0x0101_0101_0101_0101]);
    for values in &seen[1..] {
        assert_eq!(*values, (0..5000).collect::<Vec<_>>());
    }
}

#[test]
fn a_daemon_is_recorded_to_its_end() {
    let setup = Setup::new();
    let pool = setup.pool("pool", 1);
    let summary = setup.record("daemon", &[&pool]);
    assert_eq!(
        stores(&setup.trace()),
        [(0, 0, vec![1; 8]), (0, 8, vec![2; 8])]
    );
    assert_eq!(summary.unmapped_bytes, 0);
}

#[test]
fn exec_ends_threads_and_begins_anew() {
    let setup = Setup::new();
    let pool = setup.pool("pool", 1);
    let summary = setup.record("exec", &[&pool]);
    assert_eq!(
        stores(&setup.trace()),
        [(0, 0, vec![1; 8]), (0, 8, vec![2; 8])]
    );
    assert_eq!(summary.thread_count, 2);
    assert_eq!(summary.events_of(RecordKind::ThreadEnd), 2);
}

#[test]
fn only_selected_files_are_pools() {
    let setup = Setup::new();
    let (pool, other) = (setup.pool("a.pool", 1), setup.pool("other", 1));
    let mut options = setup.options("ignored", &[&pool, &other]);
    options.pools = vec![setup.path("*.pool")];
    let summary = record(&options, &[]).unwrap();
    assert_eq!(summary.pools.len(), 1);
    assert_eq!(summary.pools[0].path, pool);
    assert_eq!(summary.ignored.len(), 1);
    assert_eq!(
        (&summary.ignored[0].path, summary.ignored[0].reason),
        (&other, IgnoreReason::NotSelected)
    );
}

#[test]
fn a_message_is_known_before_the_record_that_needs_it() {
    let setup = Setup::new();
    let pool = setup.pool("pool", 1);
    let summary = setup.record("sites", &[&pool]);
    let trace = setup.trace();
    let mut records = trace.records_from(EventIndex(0));
    let mut count = 0;
    while let Some(record) = records.next_record().unwrap() {
        if matches!(record.body, Body::Pm(Event::Store { .. })) {
            let frame = trace.stack(record.stack).next();
            assert_eq!(
                frame,
                Some(Frame::Module {
                    module: powerfail_trace::ModuleIndex(0),
                    offset: count
                })
            );
            count += 1;
        }
    }
    assert_eq!(count, 2000);
    assert_eq!(summary.sites.of(SiteTactic::Pun), 2000);
}

#[test]
fn addresses_that_are_used_again_mean_the_pool_of_the_moment() {
    let setup = Setup::new();
    let (one, other) = (setup.pool("one", 1), setup.pool("other", 1));
    setup.record("reuse", &[&one, &other]);
    let expected: Vec<_> = (0..200u64)
        .map(|number| {
            (
                (number % 2) as u32,
                8 * number,
                number.to_le_bytes().to_vec(),
            )
        })
        .collect();
    assert_eq!(stores(&setup.trace()), expected);
}

#[test]
fn an_interrupted_append_is_waited_for() {
    let setup = Setup::new();
    let pool = setup.pool("pool", 1);
    let mut options = setup.options("interrupted", &[&pool]);
    options.chunk_count = 6;
    let summary = record(&options, &[]).unwrap();
    assert_eq!(summary.uncommitted_records, 0);
    assert_eq!(summary.warnings, [""; 0]);
    let mut expected = vec![(0, 0, vec![1; 8])];
    expected.extend((0..40_000u64).map(|number| (0, 8, number.to_le_bytes().to_vec())));
    expected.extend([(0, 8, vec![3; 8]), (0, 0, vec![2; 8])]);
    expected.extend((0..40_000u64).map(|number| (0, 16, number.to_le_bytes().to_vec())));
    assert!(stores(&setup.trace()) == expected);
}

#[test]
fn what_is_tentative_is_not_believed() {
    let setup = Setup::new();
    let pool = setup.pool("pool", 1);
    let summary = setup.record("tentative", &[&pool]);
    let expected = [1, 2, 3].map(|value| (0, 0, vec![value; 8]));
    assert_eq!(stores(&setup.trace()), expected);
    assert_eq!(summary.events_of(RecordKind::LockedStore), 1);
    assert_eq!(summary.uncommitted_records, 0);
    assert_eq!(summary.warnings, [""; 0]);
}

#[test]
fn a_chunk_with_a_tentative_record_is_kept() {
    let setup = Setup::new();
    let pool = setup.pool("pool", 1);
    let mut options = setup.options("tentative-held", &[&pool]);
    options.chunk_count = 3;
    let summary = record(&options, &[]).unwrap();
    let mut expected: Vec<_> = (0..20_000u64)
        .map(|number| (0, 0, number.to_le_bytes().to_vec()))
        .collect();
    expected.extend([2, 3].map(|value| (0, 0, vec![value; 8])));
    assert!(stores(&setup.trace()) == expected);
    assert_eq!(summary.uncommitted_records, 0);
    assert_eq!(summary.warnings, [""; 0]);
}

#[test]
fn of_a_killed_thread_what_was_tentative_counts_if_it_was_done() {
    let setup = Setup::new();
    let pool = setup.pool("pool", 1);
    let summary = setup.record("tentative-killed", &[&pool]);
    assert_eq!(summary.status, TargetStatus::Killed(9));
    assert_eq!(stores(&setup.trace()), [(0, 8, vec![1; 8])]);
    assert_eq!(
        (summary.uncommitted_records, summary.unperformed_stores),
        (1, 1)
    );
}

#[test]
fn a_target_of_another_protocol_is_ended() {
    let setup = Setup::new();
    let note = setup.path("note");
    let error = record(&setup.options("wrong-version", &[&note]), &[]).unwrap_err();
    assert!(
        matches!(error, RecordError::ProtocolVersion { found: 77, .. }),
        "{error}"
    );
    let pid: i32 = std::fs::read_to_string(note).unwrap().parse().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    assert_eq!(
        rustix::process::test_kill_process(pid),
        Err(rustix::io::Errno::SRCH)
    );
}

#[test]
fn a_store_that_the_next_one_did_not_find_was_not_made() {
    let setup = Setup::new();
    let pool = setup.pool("pool", 1);
    let summary = setup.record("killed-and-overwritten", &[&pool]);
    assert_eq!(summary.unperformed_stores, 1);
    assert_eq!(stores(&setup.trace()), [(0, 4, vec![5; 8])]);
}

#[test]
fn a_wrong_order_that_a_later_store_hides_is_found() {
    let setup = Setup::new();
    let pool = setup.pool("pool", 1);
    let RecordError::SelfCheck(failure) =
        record(&setup.options("wrong-order", &[&pool]), &[]).unwrap_err()
    else {
        panic!("the self-check should fail");
    };
    let wrong = failure.wrong_order.unwrap();
    assert_eq!(
        (wrong.offset.0, wrong.replayed, wrong.found, wrong.count),
        (100, 2, 0, 16)
    );
    assert_eq!(failure.path, pool);
    assert!(
        failure.to_string().contains(
            "has stores in the wrong order: byte 0x64 is 0x02 in the trace when a store found 0x00 there"
        ),
        "{failure}"
    );
}

#[test]
fn a_store_that_was_not_recorded_is_found() {
    let setup = Setup::new();
    let pool = setup.pool("pool", 1);
    let RecordError::SelfCheck(failure) =
        record(&setup.options("unrecorded", &[&pool]), &[]).unwrap_err()
    else {
        panic!("the self-check should fail");
    };
    let first = failure.first_difference.unwrap();
    assert_eq!(
        (first.offset.0, first.replayed, first.actual, first.count),
        (100, 0, 7, 2)
    );
    assert_eq!(failure.path, pool);
    assert_eq!(failure.summary.events_of(RecordKind::Store), 1);
    assert!(
        failure
            .to_string()
            .contains("byte 0x64 is 0x00 in the trace, but 0x07 in the file"),
        "{failure}"
    );
}

#[test]
fn the_target_sees_what_it_would_see_anyway() {
    let setup = Setup::new();
    let note = setup.path("note");
    setup.record("surroundings", &[&note]);
    let text = std::fs::read_to_string(note).unwrap();
    let words: Vec<&str> = text.split(' ').collect();
    let personality = u32::from_str_radix(words[0], 16).unwrap();
    assert_ne!(personality & 0x0004_0000, 0, "addresses are not random");
    let descriptor: i32 = words[1].parse().unwrap();
    assert!(descriptor < 1000, "descriptor {descriptor}");
    assert_eq!(words[2], "1");
    assert!(
        u64::from_str_radix(words[3], 16).unwrap() >= powerfail_protocol::shared::WINDOW_ADDRESS
    );
    let own = std::fs::read_to_string("/proc/self/personality").unwrap();
    assert_eq!(
        u32::from_str_radix(own.trim(), 16).unwrap() & 0x0004_0000,
        0,
        "ours still are"
    );
}

#[test]
fn a_fresh_pool_is_made_and_removed() {
    let setup = Setup::new();
    let mut options = setup.options("create", &[Path::new("{pool}")]);
    options.pm_dir = Some(setup.directory.path().into());
    options.pools = vec!["/nowhere".into()];
    let summary = record(&options, &[]).unwrap();
    assert_eq!(summary.pools.len(), 1);
    assert!(summary.pools[0].path.starts_with(setup.directory.path()));
    assert!(!summary.pools[0].path.exists());
    let left: Vec<_> = std::fs::read_dir(setup.directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["trace"]);
    assert_eq!(setup.trace().meta().command[2], "{pool}");
}

#[test]
fn nonsense_in_a_chunk_is_reported() {
    let setup = Setup::new();
    let pool = setup.pool("pool", 1);
    let summary = setup.record("damaged", &[&pool]);
    assert!(
        summary
            .warnings
            .iter()
            .any(|warning| warning.contains("damaged")),
        "{:?}",
        summary.warnings
    );
    assert_eq!(stores(&setup.trace()), [(0, 0, vec![1; 8])]);
}

#[test]
fn a_target_without_the_runtime_is_an_error() {
    let setup = Setup::new();
    let options = RecordOptions::new(vec!["true".into()], setup.path("trace"));
    let error = record(&options, &[]).unwrap_err();
    assert!(
        matches!(
            error,
            RecordError::RuntimeSilent {
                status: TargetStatus::Exited(0)
            }
        ),
        "{error}"
    );
}

#[test]
fn no_descriptor_is_left_open() {
    let setup = Setup::new();
    let pool = setup.pool("pool", 1);
    setup.record("create", &[&pool]);
    // Other tests run at the same time, so the search is for a specific name.
    let leaked = || {
        std::fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
            .any(|link| link == pool)
    };
    assert!(!leaked());
}
