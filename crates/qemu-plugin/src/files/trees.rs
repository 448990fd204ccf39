//! Which directories are trees, and the lock under which all processes change them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use powerfail_protocol::file::{LOCK_WAITED_FOR, PATHS_MAX};

use crate::host;
use crate::program::Thread;

/// The trees, as this process has read them.
#[derive(Default)]
struct Roots {
    /// How long the shared list was.
    len: u32,
    /// Below this, directories become trees when they change.
    candidate: Vec<u8>,
    trees: Vec<Vec<u8>>,
    /// Directories of which the host has said that they are not in a tree.
    refused: Vec<Vec<u8>>,
}

static ROOTS: Mutex<Roots> = Mutex::new(Roots {
    len: 0,
    candidate: Vec::new(),
    trees: Vec::new(),
    refused: Vec::new(),
});

fn with_roots<R>(look: impl FnOnce(&mut Roots) -> R) -> R {
    let mut roots = ROOTS
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let shared = host::trees().paths_len.load(Ordering::Acquire);
    if roots.len != shared {
        roots.read(shared);
    }
    look(&mut roots)
}

impl Roots {
    fn read(&mut self, len: u32) {
        let table = &host::trees().paths;
        let byte = |at: usize| table.get(at).map_or(0, |byte| byte.load(Ordering::Relaxed));
        let end = (len as usize).min(PATHS_MAX);
        let mut paths: Vec<Vec<u8>> = Vec::new();
        let mut at = 0;
        while at + 2 <= end {
            let count = usize::from(u16::from_le_bytes([byte(at), byte(at + 1)]));
            at += 2;
            paths.push((at..at + count).map(byte).collect());
            at += count;
        }
        let mut paths = paths.into_iter();
        self.candidate = paths.next().unwrap_or_default();
        self.trees = paths.collect();
        self.len = len;
    }

    fn has(&self, path: &[u8]) -> bool {
        self.trees.iter().any(|tree| is_below(path, tree))
    }
}

/// Whether a path is a directory or lies below it.
fn is_below(path: &[u8], directory: &[u8]) -> bool {
    let directory = directory.strip_suffix(b"/").unwrap_or(directory);
    path.strip_prefix(directory)
        .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Whether a path is that of a tree or of something in it.
pub(super) fn has(path: &[u8]) -> bool {
    with_roots(|roots| roots.has(path))
}

/// Whether a directory may become a tree because it changes.
pub(super) fn may_grow() -> bool {
    with_roots(|roots| !roots.candidate.is_empty())
}

/// As [`has`], of something in a directory that is about to change: if the directory may become a tree, the host is asked.
pub(super) fn has_changed(thread: &Thread, path: &[u8]) -> bool {
    /// How many refused directories are remembered; then the host is asked again.
    const REFUSED_MAX: usize = 256;
    let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    let directory = &path[..end];
    let known = with_roots(|roots| {
        if roots.has(path) {
            return Some(true);
        }
        let may_have = !roots.candidate.is_empty() && is_below(path, &roots.candidate);
        let is_refused = !may_have || roots.refused.iter().any(|known| known == directory);
        is_refused.then_some(false)
    });
    known.unwrap_or_else(|| {
        let is_tree = thread.appender.asks_for_tree(directory);
        if !is_tree {
            with_roots(|roots| {
                if roots.refused.len() >= REFUSED_MAX {
                    roots.refused.clear();
                }
                roots.refused.push(directory.to_vec());
            });
        }
        is_tree
    })
}

fn lock_word() -> &'static AtomicU32 {
    &host::trees().lock
}

/// Takes the lock under which all processes make their operations. The turn is given up meanwhile: another thread of this
/// process may have the lock.
pub(super) fn lock(thread: &mut Thread) {
    let owner = thread.appender.number() + 1;
    let word = lock_word();
    let take = |value| {
        word.compare_exchange(0, value, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    };
    if take(owner) {
        return;
    }
    thread.turn.give();
    // Others may wait, too.
    while !take(owner | LOCK_WAITED_FOR) {
        let found = word.load(Ordering::Relaxed);
        let waited_for = found | LOCK_WAITED_FOR;
        let is_marked = found != 0
            && (found == waited_for
                || word
                    .compare_exchange(found, waited_for, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok());
        if is_marked {
            host::wait_while(word, waited_for);
        }
    }
    thread.turn.take();
}

pub(super) fn unlock() {
    let word = lock_word();
    if word.swap(0, Ordering::Release) & LOCK_WAITED_FOR != 0 {
        host::wake_one(word);
    }
}
