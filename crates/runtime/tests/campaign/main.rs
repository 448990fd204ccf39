//! Targets as a campaign runs them: recorded on given contents, with an input, and deterministic.

mod destructors;
mod determinism;
mod input;
mod repeated;
mod sockets;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use powerfail_image::{CursorOptions, ImageCursor};
use powerfail_model::{EventIndex, Place, PoolIndex, PoolOffset};
use powerfail_recorder::{RecordOptions, RecordingSummary, record};
use powerfail_test_support::runtime;
use powerfail_trace::{Body, MarkKind, Trace};
use tempfile::TempDir;

/// Builds a program of these tests, once.
fn build(name: &str, flags: &[&str]) -> PathBuf {
    static BUILT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("campaign-{name}"));
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/campaign");
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if !built.contains(&path) {
        let status = Command::new("gcc")
            .args(["-O1", "-g", "-pthread", "-Wall", "-Wextra", "-Werror", "-o"])
            .args([&path, &sources.join(name).with_extension("c")])
            .args(flags)
            .status()
            .expect("a compiler");
        assert!(status.success());
        built.insert(path.clone());
    }
    path
}

/// A directory for recordings, and one for pools.
struct Campaign {
    directory: TempDir,
}

/// The result of a recording.
struct Recording {
    summary: RecordingSummary,
    /// The standard output of the target.
    output: String,
    trace: Trace,
}

impl Campaign {
    fn new() -> Self {
        let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
        Self { directory }
    }

    /// Options for a program.
    fn options(&self, program: &Path, arguments: &[&str]) -> RecordOptions {
        let mut command = vec![program.as_os_str().to_owned()];
        command.extend(arguments.iter().map(OsString::from));
        let mut options = RecordOptions::new(command, self.directory.path().join("trace"));
        options.directory = Some(self.directory.path().join("slot"));
        options.output_prefix_bytes = 1 << 20;
        options.discard_output = true;
        options.time_limit = Some(std::time::Duration::from_mins(1));
        options
    }

    fn record(options: &RecordOptions) -> Recording {
        let summary = record(options, runtime::bytes()).expect("a recording");
        assert!(summary.fatal.is_empty(), "{:?}", summary.fatal);
        let trace = Trace::open(&options.trace).expect("a trace");
        let mut output = Vec::new();
        let mut records = trace.records_from(EventIndex(0));
        while let Some(record) = records.next_record().expect("records") {
            match record.body {
                Body::Mark(mark) if matches!(mark.kind, MarkKind::Output { fd: 1, .. }) => {
                    output.extend_from_slice(mark.payload);
                }
                _ => {}
            }
        }
        Recording {
            summary,
            output: String::from_utf8_lossy(&output).into_owned(),
            trace,
        }
    }
}

impl Recording {
    /// The beginning of the first pool at the end of the trace.
    fn pool_begins(&self, len: usize) -> Vec<u8> {
        let mut cursor = ImageCursor::new(&self.trace, CursorOptions::default()).expect("a pass");
        cursor.move_to_end().expect("the end");
        let mut bytes = vec![0; len];
        cursor.read(Place::new(PoolIndex(0), PoolOffset(0)), &mut bytes);
        bytes
    }
}
