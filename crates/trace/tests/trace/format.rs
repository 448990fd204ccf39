//! The bytes of a version do not change: a committed trace is read and written identically.

use crate::common::{
    append, define_small, final_small, memory_records, meta, records_from, records_of_version_1_1,
    small_records,
};
use powerfail_trace::{
    Compression, RecordGroup, RecordKind, Statistics, Trace, TraceWriter, WriterOptions,
};

/// Version 1.0, which had no files. It is only read.
const VERSION_1_0: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/version-1.trace");
/// Written with `POWERFAIL_BLESS=1`. Only a new version of the format may change it.
const VERSION_1_1: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/version-1.1.trace");

/// The same of version 1.2.
const VERSION_1_2: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/version-1.2.trace");

/// A trace with every kind of record. Not compressed: another version of zstd may compress differently.
fn write() -> Vec<u8> {
    let mut bytes = Vec::new();
    let options = WriterOptions {
        compression: Compression::None,
        events_per_block: 6,
        ..WriterOptions::default()
    };
    let mut writer = TraceWriter::new(&mut bytes, &meta(), options).expect("memory does not fail");
    define_small(&mut writer);
    for record in small_records() {
        append(&mut writer, &record);
    }
    final_small(&mut writer);
    writer.finish(&[]).expect("memory does not fail");
    bytes
}

#[test]
fn version_1_2_is_written_as_ever() {
    let bytes = write();
    if std::env::var_os("POWERFAIL_BLESS").is_some() {
        std::fs::write(VERSION_1_2, &bytes).expect("the file is writable");
    }
    let committed = std::fs::read(VERSION_1_2).expect("the file is there");
    assert!(bytes == committed, "the bytes of version 1.2 have changed");
}

#[test]
fn old_versions_are_read_as_ever() {
    for (file, expected) in [
        (VERSION_1_0, memory_records()),
        (VERSION_1_1, records_of_version_1_1()),
        (VERSION_1_2, small_records()),
    ] {
        let trace = Trace::open(file).expect("the trace is good");
        trace.verify().expect("the trace is good");
        let records = records_from(&trace, 0).expect("the trace is good");
        assert_eq!(records, expected);
    }
}

#[test]
fn every_record_is_counted_once_under_its_kind() {
    let trace = Trace::from_bytes(write()).expect("the trace is good");
    let statistics = Statistics::collect(&trace).expect("the trace is good");
    let events: u64 = RecordKind::ALL.map(|kind| statistics.of(kind)).iter().sum();
    assert_eq!(events, 33);
    let events: u64 = RecordGroup::ALL
        .map(|group| statistics.of_group(group))
        .iter()
        .sum();
    assert_eq!(events, 33);
    for kind in [
        RecordKind::Store,
        RecordKind::LockedStore,
        RecordKind::Clwb,
        RecordKind::VolatileFlush,
        RecordKind::Sfence,
        RecordKind::Sync,
        RecordKind::Resize,
        RecordKind::Output,
        RecordKind::Link,
        RecordKind::Unlink,
        RecordKind::Write,
        RecordKind::Truncate,
        RecordKind::Close,
        RecordKind::Mapped,
        RecordKind::ThreadStart,
        RecordKind::ThreadEnd,
    ] {
        assert_eq!(statistics.of(kind), 1, "{}", kind.name());
    }
    for (kind, count) in [
        (RecordKind::Create, 5),
        (RecordKind::Rename, 3),
        (RecordKind::Allocate, 5),
        (RecordKind::FileSync, 2),
        (RecordKind::FailedCall, 2),
    ] {
        assert_eq!(statistics.of(kind), count, "{}", kind.name());
    }
    assert_eq!(statistics.store_bytes, 8 + 13);
    assert_eq!(statistics.written_bytes, 10);
}
