//! Debug information is read once, whatever number of executions fails.

use std::fs;

use rustix::fs::inotify::{self, WatchFlags};

use crate::common::{FINDINGS, Folder};

/// How often a file was opened since it is watched.
fn opened(changes: &rustix::fd::OwnedFd) -> usize {
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(changes, &mut buffer);
    let mut count = 0;
    // Nothing more to read is an error, because reading does not wait.
    while reader.next().is_ok() {
        count += 1;
    }
    count
}

#[test]
fn the_debug_file_of_a_program_is_opened_once_in_a_check() {
    let folder = Folder::new();
    folder.build_own("bug", "large_record.c", &[]);
    // What only the symbols need is in a file of its own.
    for arguments in [
        &["--only-keep-debug", "bug", "bug.debug"][..],
        &["--strip-debug", "--add-gnu-debuglink=bug.debug", "bug"],
    ] {
        let status = folder.command("objcopy").args(arguments).status();
        assert!(status.expect("objcopy").success());
    }
    let debug_file = folder.path("bug.debug");
    assert!(fs::metadata(&debug_file).is_ok());
    let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
    let changes = inotify::init(flags).expect("inotify");
    inotify::add_watch(&changes, &debug_file, WatchFlags::OPEN).expect("a file");
    let run = folder.check(&[]).ends_with(FINDINGS);
    let finding = &run.report().findings[0];
    assert!(finding.places[0].line.is_some(), "{}", run.stdout);
    assert_eq!(opened(&changes), 1);
}
