//! Sample findings, and expected texts in files.

use std::path::{Path, PathBuf};

use powerfail_finding::{
    Code, Evidence, FailurePoint, Finding, LostLine, NotDurable, RecoveryOutcome, Report, Role,
    SourcePlace, StackFrame, Totals, Tried, UnsafeRead,
};
use powerfail_report::findings::TextOptions;

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/findings")
}

pub(crate) fn options(base: &Path) -> TextOptions<'_> {
    TextOptions {
        width: Some(100),
        base,
        out: Some(Path::new("evidence")),
        warnings: false,
    }
}

/// A finding as text without colour.
pub(crate) fn shown(finding: &Finding, options: &TextOptions<'_>) -> String {
    let mut out = Vec::new();
    powerfail_report::findings::finding(&mut out, finding, options).expect("memory");
    plain(out)
}

/// A report as text without colour.
pub(crate) fn shown_report(report: &Report, options: &TextOptions<'_>) -> String {
    let mut out = Vec::new();
    powerfail_report::findings::report(&mut out, report, options).expect("memory");
    plain(out)
}

fn plain(text: Vec<u8>) -> String {
    let text = String::from_utf8(text).expect("text");
    let text = anstream::adapter::strip_str(&text).to_string();
    text.replace(folder().to_str().expect("text"), "FOLDER")
}

pub(crate) fn place(role: Role, file: &str, line: u32, function: &str) -> SourcePlace {
    SourcePlace {
        file: Some(file.to_owned()),
        line: Some(line),
        function: Some(function.to_owned()),
        module: Some("/opt/map".to_owned()),
        ..SourcePlace::new(role)
    }
}

pub(crate) fn frame(
    function: &str,
    file: Option<(&str, u32)>,
    module: &str,
    offset: u64,
) -> StackFrame {
    StackFrame {
        function: Some(function.to_owned()),
        file: file.map(|(file, _)| file.to_owned()),
        line: file.map(|(_, line)| line),
        module: Some(module.to_owned()),
        offset,
        trusted: module.starts_with("lib"),
    }
}

pub(crate) fn finding(code: Code, message: &str, places: Vec<SourcePlace>) -> Finding {
    Finding {
        id: powerfail_finding::finding_id(code, &places),
        code,
        class: code.class(),
        severity: code.severity(),
        message: message.to_owned(),
        count: 1,
        places,
        suggestion: None,
        fix: None,
        explanation: None,
        evidence: None,
        read: None,
        consequences: Vec::new(),
        marks: powerfail_finding::Marks::NONE,
        durable_by: powerfail_finding::DurableBy::Flush,
        tree: None,
        beside: Vec::new(),
    }
}

/// A lost store: an inlined function, flushed only sometimes.
pub(crate) fn lost_store() -> Finding {
    let map = "sources/map.c";
    let mut store = place(Role::Store, map, 6, "set_count");
    store.pool = Some("/mnt/pmem/map.pool".to_owned());
    store.pool_offset = Some(0x40);
    store.len_bytes = Some(8);
    store.bytes = Some("0100000000000000".to_owned());
    store.event = Some(17);
    store.stack = vec![
        frame("set_count", Some((map, 6)), "map", 0x1234),
        frame("insert", Some((map, 15)), "map", 0x1234),
        frame("main", Some((map, 23)), "map", 0x1300),
        frame("__libc_start_call_main", None, "libc.so.6", 0x29d90),
        frame("_start", None, "map", 0x1000),
    ];
    let mut failure = place(Role::Failure, map, 24, "main");
    failure.event = Some(21);
    let mut finding = finding(
        Code::AcknowledgedLost,
        "the store to the count is not durable when the operation is acknowledged",
        vec![store, failure],
    );
    finding.count = 1240;
    finding.suggestion = Some("flush the line of the store at map.c:6 before map.c:24".to_owned());
    finding.evidence = Some(Evidence {
        failure: FailurePoint {
            event: 21,
            lost_lines: vec![LostLine {
                pool: 0,
                pool_offset: 0x40,
                version: 0,
                stores: None,
            }],
            again: None,
            filled: Vec::new(),
        },
        recovery: RecoveryOutcome::Content {
            output: "0 entries\n".to_owned(),
        },
        last_good_event: Some(12),
        next_good_event: None,
        trace: None,
        difference: Some("-1 = 2\n+\n unchanged".to_owned()),
        torn: false,
        choices: Vec::new(),
    });
    finding
}

/// Recovery that is killed by a signal, in another file than the store.
pub(crate) fn recovery_crash() -> Finding {
    let (map, recover) = ("sources/map.c", "sources/recover.c");
    let mut store = place(Role::Store, map, 13, "insert");
    store.pool = Some("/mnt/pmem/map.pool".to_owned());
    store.pool_offset = Some(0x1048);
    store.len_bytes = Some(512);
    store.bytes = Some("0200000000000000".to_owned());
    store.stack = vec![
        frame("memmove_movnt", None, "libpmem.so.1", 0x10),
        frame("pmem_memcpy", None, "libpmem.so.1", 0x20),
        frame("memcpy", None, "libc.so.6", 0x30),
        frame("insert", Some((map, 13)), "map", 0x1240),
        frame("main", Some((map, 23)), "map", 0x1300),
    ];
    let mut flush = place(Role::Flush, map, 14, "insert");
    flush.event = Some(2_001);
    flush.stack = vec![
        frame("pmem_flush", None, "libpmem.so.1", 0x40),
        frame("insert", Some((map, 14)), "map", 0x1250),
        frame("main", Some((map, 23)), "map", 0x1300),
    ];
    let mut recovery = place(Role::Recovery, recover, 5, "check_entry");
    recovery.stack = vec![
        frame("check_entry", Some((recover, 5)), "map-check", 0x900),
        frame("main", None, "map-check", 0x800),
    ];
    let mut finding = finding(
        Code::RecoveryCrashes,
        "recovery crashes if the power fails in insert",
        vec![store, flush, recovery],
    );
    finding.evidence = Some(Evidence {
        failure: FailurePoint {
            event: 2_001,
            lost_lines: Vec::new(),
            again: None,
            filled: Vec::new(),
        },
        recovery: RecoveryOutcome::Signal {
            signal: 11,
            command: "recovery".to_owned(),
            output: "opening map.pool\nchecking 1 entry\n".to_owned(),
        },
        last_good_event: Some(1_998),
        next_good_event: Some(2_002),
        trace: None,
        difference: None,
        torn: false,
        choices: Vec::new(),
    });
    finding
}

/// A read of data that may not be durable, in another file than the store.
pub(crate) fn race() -> Finding {
    let (map, recover) = ("sources/map.c", "sources/recover.c");
    let mut store = place(Role::Store, map, 6, "set_count");
    store.pool = Some("/mnt/pmem/map.pool".to_owned());
    store.pool_offset = Some(0x40);
    store.len_bytes = Some(8);
    store.bytes = Some("0100000000000000".to_owned());
    store.event = Some(17);
    let mut load = place(Role::Load, recover, 5, "check_entry");
    load.stack = vec![frame("check_entry", Some((recover, 5)), "map-check", 0x900)];
    let mut failure = place(Role::Failure, map, 24, "main");
    failure.event = Some(21);
    let mut finding = finding(
        Code::CrossFailureRace,
        "recovery reads in check_entry data stored in set_count and flushed, but not fenced yet",
        vec![store, load, failure],
    );
    finding.severity = powerfail_finding::Severity::Warning;
    finding.count = 12;
    finding.read = Some(UnsafeRead {
        event: 21,
        failure_points: 12,
        command: "recovery".to_owned(),
        bytes: "01000000".to_owned(),
        instead: ["00000000", "02000000", "03000000", "04000000"]
            .map(str::to_owned)
            .to_vec(),
        not_durable: Some(NotDurable::NotFenced),
        trace: None,
        strict: false,
        tried: Some(Tried {
            other_value: 12,
            survivor: 3,
            undecided: 0,
            executions: 31,
        }),
    });
    finding
}

pub(crate) fn report(findings: Vec<Finding>) -> Report {
    Report {
        schema: 1,
        powerfail: "0.1.0".to_owned(),
        command: vec!["./map".to_owned(), "{pool}".to_owned()],
        findings,
        totals: Totals {
            events: 123_456,
            failure_points: 5_312,
            failure_point_stacks: 84,
            failure_points_run: 84,
            recovery_runs: 97,
            ..Totals::default()
        },
        notes: Vec::new(),
    }
}
