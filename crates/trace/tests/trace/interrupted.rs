//! A writer that is killed leaves a trace that is readable up to its last complete block.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::common::{Owned, OwnedBody, append, define_small, meta, records_from};
use powerfail_model::StoreKind;
use powerfail_trace::{Completeness, Trace, TraceWriter, WriterOptions};

const PATH_VARIABLE: &str = "POWERFAIL_TRACE_TEST_PATH";

fn record(number: u64) -> Owned {
    Owned {
        thread: u32::from(number.is_multiple_of(7)),
        stack: u32::from(number.is_multiple_of(2)),
        body: OwnedBody::Store(
            StoreKind::Plain,
            0,
            (number * 8) % 65_536,
            number.to_le_bytes().to_vec(),
        ),
    }
}

/// The other process of the test below: writes until it is killed.
fn write_forever(path: OsString) -> ! {
    let options = WriterOptions {
        events_per_block: 1000,
        ..WriterOptions::default()
    };
    let mut writer = TraceWriter::create(path, &meta(), options).expect("the file is writable");
    define_small(&mut writer);
    let mut number = 0;
    loop {
        append(&mut writer, &record(number));
        if number == 100_000 {
            println!("\nready");
        }
        number += 1;
    }
}

#[test]
fn a_killed_writer_leaves_a_readable_trace() {
    if let Some(path) = std::env::var_os(PATH_VARIABLE) {
        write_forever(path);
    }
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let mut child = Command::new(std::env::current_exe().expect("this program has a path"))
        .args([
            "--exact",
            "interrupted::a_killed_writer_leaves_a_readable_trace",
            "--nocapture",
        ])
        .env(PATH_VARIABLE, file.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program can run");
    let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    let ready = stdout
        .lines()
        .map_while(Result::ok)
        .any(|line| line == "ready");
    child.kill().expect("the writer still runs");
    child.wait().expect("the writer is gone");
    assert!(ready, "the writer wrote");

    let trace = Trace::open(file.path()).expect("the trace is readable");
    assert!(matches!(
        trace.completeness(),
        Completeness::Incomplete { .. }
    ));
    assert!(trace.event_count() >= 100_000);
    assert_eq!(trace.meta(), &meta());
    assert_eq!(trace.pools().len(), 2);
    trace.verify().expect("complete blocks are good");
    let expected = (0..trace.event_count()).map(record);
    let found = records_from(&trace, 0).expect("complete blocks are good");
    assert!(found.into_iter().eq(expected));
}

#[test]
fn definitions_come_before_the_records_that_use_them() {
    let mut bytes = Vec::new();
    let mut writer = TraceWriter::new(&mut bytes, &meta(), WriterOptions::default())
        .expect("memory does not fail");
    define_small(&mut writer);
    append(&mut writer, &record(0));
    writer.flush_block().expect("memory does not fail");
    let thread = writer
        .define_thread(&crate::common::thread(300))
        .expect("good");
    let late = Owned {
        thread: thread.0,
        ..record(1)
    };
    append(&mut writer, &late);
    writer.flush_block().expect("memory does not fail");
    append(&mut writer, &record(2));
    drop(writer);

    let trace = Trace::from_bytes(bytes.clone()).expect("the trace is readable");
    assert_eq!(
        trace.completeness(),
        Completeness::Incomplete {
            usable_bytes: bytes.len() as u64,
            lost_bytes: 0
        }
    );
    let found = records_from(&trace, 0).expect("complete blocks are good");
    assert_eq!(found, [record(0), late]);
    let mut runs = trace.initial_image(powerfail_model::PoolIndex(0));
    assert!(runs.next_run().expect("the image is good").is_some());
}
