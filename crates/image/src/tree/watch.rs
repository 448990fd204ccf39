//! Which files a recovery may have changed.
//!
//! A file that was not open for writing has the bytes that it had. The kernel reports the end of every file
//! description that was open for writing, also of one that was only mapped, when the last process that has it ends; and
//! every recovery has ended before its tree is looked at.

use std::collections::{BTreeSet, HashMap};
use std::mem::MaybeUninit;
use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::image::NodeKey;

/// Watches files of a tree.
#[derive(Debug)]
pub(super) struct WriteWatch {
    /// `None` where files cannot be watched: everything may have changed then.
    descriptor: Option<OwnedFd>,
    nodes: HashMap<i32, NodeKey>,
    watches: HashMap<NodeKey, i32>,
}

/// What may have changed.
#[derive(Debug)]
pub(super) enum Changed {
    /// Any file.
    Everything,
    /// These files.
    Nodes(BTreeSet<NodeKey>),
}

impl Changed {
    pub(super) fn contains(&self, node: NodeKey) -> bool {
        match self {
            Self::Everything => true,
            Self::Nodes(nodes) => nodes.contains(&node),
        }
    }
}

impl WriteWatch {
    pub(super) fn new() -> Self {
        Self {
            descriptor: inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok(),
            nodes: HashMap::new(),
            watches: HashMap::new(),
        }
    }

    /// Watches a file from now on, if it is not watched.
    pub(super) fn add(&mut self, node: NodeKey, path: &Path) {
        let Some(descriptor) = &self.descriptor else {
            return;
        };
        let flags = WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE | WatchFlags::DONT_FOLLOW;
        match inotify::add_watch(descriptor, path, flags) {
            Ok(watch) => {
                self.nodes.insert(watch, node);
                self.watches.insert(node, watch);
            }
            // Too many files, or a file system that cannot.
            Err(_) => self.descriptor = None,
        }
    }

    /// The file is removed.
    pub(super) fn forget(&mut self, node: NodeKey) {
        if let Some(watch) = self.watches.remove(&node) {
            self.nodes.remove(&watch);
            if let Some(descriptor) = &self.descriptor {
                // The kernel may have removed it with the file.
                let _ = inotify::remove_watch(descriptor, watch);
            }
        }
    }

    /// What may have changed since the last call.
    pub(super) fn take(&self) -> Changed {
        let Some(descriptor) = &self.descriptor else {
            return Changed::Everything;
        };
        let mut changed = BTreeSet::new();
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(descriptor, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => {
                    // The rest of the queue says less than this; it is read so that it is empty.
                    while reader.next().is_ok() {}
                    return Changed::Everything;
                }
                Ok(event) => changed.extend(self.nodes.get(&event.wd()).copied()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Changed::Nodes(changed),
                Err(_) => return Changed::Everything,
            }
        }
    }
}
