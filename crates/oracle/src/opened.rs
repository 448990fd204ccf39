//! Whether a file is opened.

use std::mem::MaybeUninit;
use std::path::PathBuf;

use rustix::fd::OwnedFd;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

/// Watches whether one of some files is opened, by any process and under any path.
#[derive(Debug)]
pub struct OpenWatch(OwnedFd);

impl OpenWatch {
    /// Watches files from now on; `None` if the system cannot.
    pub fn of(paths: &[PathBuf]) -> Option<Self> {
        let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
        for path in paths {
            let flags = WatchFlags::OPEN | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
            inotify::add_watch(&watch, path, flags).ok()?;
        }
        Some(Self(watch))
    }

    /// Whether one of the files was opened, renamed or removed.
    pub fn has_opened(&self) -> bool {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        inotify::Reader::new(&self.0, &mut buffer).next().is_ok()
    }
}
