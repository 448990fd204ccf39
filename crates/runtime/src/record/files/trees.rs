//! Where the trees are. The host keeps the list in shared memory; it only grows.
//!
//! # Safety
//!
//! The list of this process is replaced by a longer one and never freed, so references to it stay valid.
#![allow(unsafe_code, reason = "keeps a list that is read without a lock")]

use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use powerfail_protocol::file::PATHS_MAX;
use powerfail_protocol::message::MessageKind;
use powerfail_protocol::shared::Reply;

use crate::host;
use crate::platform::lock::Lock;
use crate::platform::sys;
use crate::record::threads;

/// The list, as this process has read it.
struct Roots {
    /// How long the shared list was.
    len: u32,
    /// Below this, directories become trees when they change.
    candidate: Vec<u8>,
    trees: Vec<Vec<u8>>,
}

static ROOTS: AtomicPtr<Roots> = AtomicPtr::new(core::ptr::null_mut());
/// Held while the list is replaced.
pub(crate) static READING: Lock<()> = Lock::new(());
static ON: AtomicBool = AtomicBool::new(false);

/// Looks whether operations on files are recorded.
pub(crate) fn begin() {
    let is_on = host::control().trees.is_on.load(Ordering::Acquire) != 0;
    ON.store(is_on, Ordering::Release);
}

/// Whether operations on files are recorded.
pub(crate) fn are_on() -> bool {
    ON.load(Ordering::Acquire)
}

fn roots() -> &'static Roots {
    let shared = host::control().trees.paths_len.load(Ordering::Acquire);
    let known = ROOTS.load(Ordering::Acquire);
    // SAFETY: null, or a list that is never freed.
    if let Some(roots) = unsafe { known.as_ref() }
        && roots.len == shared
    {
        return roots;
    }
    READING.with(|()| {
        let fresh: &'static Roots = Box::leak(Box::new(read(shared)));
        ROOTS.store(core::ptr::from_ref(fresh).cast_mut(), Ordering::Release);
        fresh
    })
}

fn read(len: u32) -> Roots {
    let table = &host::control().trees.paths;
    let byte = |at: usize| table.get(at).map_or(0, |byte| byte.load(Ordering::Relaxed));
    let end = (len as usize).min(PATHS_MAX);
    let mut paths = Vec::new();
    let mut at = 0;
    while at + 2 <= end {
        let count = usize::from(u16::from_le_bytes([byte(at), byte(at + 1)]));
        at += 2;
        paths.push((at..at + count).map(byte).collect());
        at += count;
    }
    let candidate = if paths.is_empty() {
        Vec::new()
    } else {
        paths.remove(0)
    };
    Roots {
        len,
        candidate,
        trees: paths,
    }
}

/// Whether a path is a directory or lies below it.
fn is_below(path: &[u8], directory: &[u8]) -> bool {
    let directory = directory.strip_suffix(b"/").unwrap_or(directory);
    path.strip_prefix(directory)
        .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Whether a path is that of a tree or of something in it. The path is absolute and without symbolic links.
pub(crate) fn has(path: &[u8]) -> bool {
    roots().trees.iter().any(|tree| is_below(path, tree))
}

/// Whether there is any tree, or may be one.
fn may_have(path: &[u8]) -> bool {
    let candidate = &roots().candidate;
    !candidate.is_empty() && is_below(path, candidate)
}

/// Directories of which the host has said that they are not in a tree.
pub(crate) static REFUSED: Lock<Vec<Vec<u8>>> = Lock::new(Vec::new());
/// How many of them are remembered; then the host is asked again.
const REFUSED_MAX: usize = 256;

/// As [`has`], of something in a directory that is about to change: if the directory may become a tree, the host is asked.
pub(crate) fn has_changed(path: &[u8]) -> bool {
    if has(path) {
        return true;
    }
    if !may_have(path) {
        return false;
    }
    let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    let directory = &path[..end];
    if REFUSED.with(|refused| refused.iter().any(|known| known == directory)) {
        return false;
    }
    let is_tree = ask(directory);
    if !is_tree {
        REFUSED.with(|refused| {
            if refused.len() >= REFUSED_MAX {
                refused.clear();
            }
            refused.push(directory.to_vec());
        });
    }
    is_tree
}

/// Asks the host, which looks at the directory, and waits for the answer.
fn ask(directory: &[u8]) -> bool {
    let Some(slot) = threads::slot() else {
        return false;
    };
    slot.reply.store(0, Ordering::Release);
    let words = [threads::index_of(slot), 0, 0, 0, 0];
    if !host::send(MessageKind::TreeAsk, words, directory, None) {
        host::unreachable();
    }
    loop {
        match slot.reply.load(Ordering::Acquire) {
            0 => sys::futex_wait(&slot.reply, 0),
            reply => return reply == Reply::Record as u32,
        }
    }
}

/// Whether a directory may become a tree because it changes.
pub(crate) fn may_grow() -> bool {
    !roots().candidate.is_empty()
}
