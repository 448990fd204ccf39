//! What an observer hears of a session.

use std::fs::File;
use std::path::Path;

use powerfail_config::LintArgs;
use powerfail_model::{Event, FenceKind, ThreadIndex};
use powerfail_trace::{Body, Meta, StackId, Thread, TraceWriter, WriterOptions};

use super::Session;
use crate::event::{CheckEvent, CheckStep, Observer};

/// Every report of progress.
#[derive(Default)]
struct Heard(Vec<(CheckStep, u64, u64)>);

impl Observer for Heard {
    fn event(&mut self, event: CheckEvent<'_>) {
        if let CheckEvent::Progress { step, done, of } = event {
            self.0.push((step, done, of));
        }
    }
}

/// Writes a trace of several blocks.
fn write_trace(path: &Path) {
    let file = File::create(path).expect("a file");
    let options = WriterOptions {
        events_per_block: 1,
        ..WriterOptions::default()
    };
    let mut writer = TraceWriter::new(file, &Meta::default(), options).expect("a trace");
    let thread = Thread {
        os_id: 1,
        name: None,
    };
    writer.define_thread(&thread).expect("a thread");
    for _ in 0..5 {
        let fence = Body::Pm(Event::Fence(FenceKind::Sfence));
        let appended = writer.append(ThreadIndex(0), StackId::NONE, fence);
        appended.expect("an event");
    }
    writer.finish(&[]).expect("the end");
}

#[test]
fn the_bytes_that_are_read_are_progress() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace");
    write_trace(&path);
    let len = path.metadata().expect("it exists").len();
    let mut heard = Heard::default();
    let mut session = Session {
        runtime: &[],
        plugin: &[],
        suppressions: &[],
        arguments: &[],
        shares: None,
        changed: None,
        watched: None,
        observer: &mut heard,
    };
    let settings = LintArgs::default().settle(LintArgs::default());
    let settings = settings.expect("options that fit");
    session.lint(&path, &settings).expect("a report");

    let is_read = |it: &&(CheckStep, u64, u64)| it.0 == CheckStep::Read;
    let read: Vec<_> = heard.0.iter().take_while(is_read).collect();
    assert!(read.iter().all(|(_, done, of)| *of == len && *done <= len));
    // The trace is opened, and then read to find its domain: from one block to the next.
    let passes: Vec<_> = read.chunk_by(|one, other| one.1 < other.1).collect();
    assert_eq!(passes.len(), 2, "{:?}", heard.0);
    assert!(passes.iter().all(|pass| pass.len() > 5), "{passes:?}");
    assert_eq!(read.last().map(|it| it.1), Some(len));
    // Then it is linted.
    let rest = &heard.0[read.len()..];
    assert!(!rest.is_empty() && rest.iter().all(|it| it.0 == CheckStep::Lint));
}
