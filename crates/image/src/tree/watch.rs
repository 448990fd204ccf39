//! Which files a recovery may have changed, and which it has opened.
//!
//! A file that was not open for writing has the bytes that it had, and the bytes of one that was not opened were not seen. The kernel reports the end of every file
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

/// Files that something may have happened to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeSet {
    /// Any file.
    Everything,
    /// These files.
    Nodes(BTreeSet<NodeKey>),
}

impl Default for NodeSet {
    fn default() -> Self {
        Self::Nodes(BTreeSet::new())
    }
}

impl NodeSet {
    /// Whether a file is one of them.
    pub fn contains(&self, node: NodeKey) -> bool {
        match self {
            Self::Everything => true,
            Self::Nodes(nodes) => nodes.contains(&node),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Nodes(nodes) if nodes.is_empty())
    }

    fn insert(&mut self, node: NodeKey) {
        if let Self::Nodes(nodes) = self {
            nodes.insert(node);
        }
    }
}

/// What has happened to files.
#[derive(Clone, Debug, Default)]
pub(super) struct Watched {
    /// They may have other bytes.
    pub(super) changed: NodeSet,
    /// Their bytes may have been seen.
    pub(super) opened: NodeSet,
}

impl Watched {
    const EVERYTHING: Self = Self {
        changed: NodeSet::Everything,
        opened: NodeSet::Everything,
    };
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
        let flags = WatchFlags::OPEN
            | WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::DONT_FOLLOW;
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

    /// What has happened since the last call.
    pub(super) fn take(&self) -> Watched {
        let Some(descriptor) = &self.descriptor else {
            return Watched::EVERYTHING;
        };
        let mut watched = Watched::default();
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(descriptor, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => {
                    // The rest of the queue says less than this; it is read so that it is empty.
                    while reader.next().is_ok() {}
                    return Watched::EVERYTHING;
                }
                Ok(event) => {
                    let Some(node) = self.nodes.get(&event.wd()) else {
                        continue;
                    };
                    watched.opened.insert(*node);
                    if event.events() != ReadFlags::OPEN {
                        watched.changed.insert(*node);
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return watched,
                Err(_) => return Watched::EVERYTHING,
            }
        }
    }
}
