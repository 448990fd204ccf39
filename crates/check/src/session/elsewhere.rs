//! Files that the workload wrote outside of all trees: a crash leaves them alone. If recovery reads one, a note says so.
//!
//! The kernel tells which of them are read while recoveries run. A read by another program looks the same, so this is a note
//! and nothing more.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};

/// How many files are watched, at most; the kernel allows a user some thousands.
const WATCHED_MAX: usize = 256;

/// Watches some files.
pub(super) struct Elsewhere {
    queue: Option<OwnedFd>,
    paths: BTreeMap<i32, PathBuf>,
}

impl Elsewhere {
    /// Watches these files from now on, those that exist. If the kernel cannot, nothing is noted.
    pub(super) fn watch(paths: &[PathBuf]) -> Self {
        let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC);
        let queue = queue.ok().filter(|_| !paths.is_empty());
        let mut watched = BTreeMap::new();
        // A descriptor that was opened for reading only is closed after a mapping was read, too.
        let reads = WatchFlags::ACCESS | WatchFlags::CLOSE_NOWRITE | WatchFlags::ONESHOT;
        for path in paths.iter().filter(|it| it.is_file()).take(WATCHED_MAX) {
            if let Some(queue) = &queue
                && let Ok(watch) = inotify::add_watch(queue, path, reads)
            {
                watched.insert(watch, path.clone());
            }
        }
        Self {
            queue,
            paths: watched,
        }
    }

    /// The note about those that were read since then, if there are any.
    pub(super) fn note(self) -> Option<String> {
        let queue = self.queue?;
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(&queue, &mut buffer);
        let mut read = Vec::new();
        // The end of the queue is an error.
        while let Ok(event) = events.next() {
            read.extend(self.paths.get(&event.wd()));
        }
        read.sort();
        read.dedup();
        let first = read.first()?.display();
        let others = match read.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        Some(format!(
            "recovery reads {first}{others}, which the workload wrote outside of all trees: a crash leaves it as it was at the \
             end; choose its directory with --tree"
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_files_that_are_read_are_noted() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        for name in ["read", "written", "untouched"] {
            fs::write(path(name), "content").expect("a file");
        }
        let watched = [
            path("read"),
            path("written"),
            path("untouched"),
            path("gone"),
        ];
        let elsewhere = Elsewhere::watch(&watched);
        fs::write(path("written"), "other content").expect("it is written");
        fs::read(path("read")).expect("it is read");
        let note = elsewhere.note().expect("a note");
        assert!(
            note.starts_with(&format!("recovery reads {}, which", path("read").display())),
            "{note}"
        );
        let elsewhere = Elsewhere::watch(&watched);
        assert_eq!(elsewhere.note(), None);
    }
}
