//! Files that are not pools and that the target writes with system calls.
//!
//! Their content is not recorded. The host learns their names, because a recovery may need them: a journal beside a pool.

use std::collections::BTreeSet;

use powerfail_protocol::message::MessageKind;

use crate::host;
use crate::platform::lock::Lock;
use crate::platform::sys::{self, FileStatus};
use crate::recovery::fork::path_of_descriptor;

const FILE_TYPE: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
/// How many files are remembered, at most: they take memory of the target. Then all are forgotten, and the host hears of
/// some of them again.
const FILES_MAX: usize = 4096;
/// Longer paths are cut by the kernel, so they are not sent.
const PATH_MAX: usize = 4096;

/// Device and inode of the files that the host knows.
pub(crate) static KNOWN: Lock<BTreeSet<(u64, u64)>> = Lock::new(BTreeSet::new());

/// A file has got a new name outside of all trees. If it comes from one, the target has written it; else the host knows whether.
pub(crate) fn renamed(status: &FileStatus, path: &[u8], comes_from_tree: bool) {
    let is_regular = status.mode & FILE_TYPE == REGULAR;
    if is_regular && host::attached() && (1..PATH_MAX).contains(&path.len()) {
        let only_if_known = u64::from(!comes_from_tree);
        let words = [status.device, status.inode, only_if_known, 0, 0];
        host::send(MessageKind::Wrote, words, path, None);
    }
}

/// The target has written to a descriptor that is not one of a pool.
pub(crate) fn note(fd: i32) {
    let Some(status) = sys::fstat(fd) else { return };
    if status.mode & FILE_TYPE != REGULAR || !host::attached() {
        return;
    }
    let file = (status.device, status.inode);
    let is_new = KNOWN.with(|known| {
        if known.len() >= FILES_MAX {
            known.clear();
        }
        known.insert(file)
    });
    if !is_new {
        return;
    }
    let mut link = [0; 32];
    path_of_descriptor(fd, &mut link);
    let mut path = [0; PATH_MAX];
    let Ok(link) = core::ffi::CStr::from_bytes_until_nul(&link) else {
        return;
    };
    let len = host::read_link(link, &mut path);
    if (1..PATH_MAX).contains(&len) {
        let words = [status.device, status.inode, 0, 0, 0];
        host::send(MessageKind::Wrote, words, &path[..len], None);
    }
}
