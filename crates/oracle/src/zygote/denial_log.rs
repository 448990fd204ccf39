//! Notes which system calls of traced commands fail because of their confinement.
//!
//! The kernel stops a tracee at the beginning and at the end of each system call. That is slow, so it is done only when
//! the denied accesses of a recovery are asked for, and nothing else has to be observed in other runs.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use crate::denied::DeniedAccess;
use crate::zygote::ended_calls::{Call, RunningCalls};

/// The longest path that the kernel accepts.
const PATH_BYTES: usize = 4096;

/// System calls that change what a path names: the places of the directory, if there is one, and of the path.
const CALLS: [(libc::c_long, Option<usize>, usize); 29] = [
    (libc::SYS_open, None, 0),
    (libc::SYS_creat, None, 0),
    (libc::SYS_openat, Some(0), 1),
    (libc::SYS_openat2, Some(0), 1),
    (libc::SYS_mkdir, None, 0),
    (libc::SYS_mkdirat, Some(0), 1),
    (libc::SYS_rmdir, None, 0),
    (libc::SYS_unlink, None, 0),
    (libc::SYS_unlinkat, Some(0), 1),
    (libc::SYS_rename, None, 1),
    (libc::SYS_renameat, Some(2), 3),
    (libc::SYS_renameat2, Some(2), 3),
    (libc::SYS_link, None, 1),
    (libc::SYS_linkat, Some(2), 3),
    (libc::SYS_symlink, None, 1),
    (libc::SYS_symlinkat, Some(1), 2),
    (libc::SYS_truncate, None, 0),
    (libc::SYS_chmod, None, 0),
    (libc::SYS_fchmodat, Some(0), 1),
    (libc::SYS_chown, None, 0),
    (libc::SYS_lchown, None, 0),
    (libc::SYS_fchownat, Some(0), 1),
    (libc::SYS_mknod, None, 0),
    (libc::SYS_mknodat, Some(0), 1),
    (libc::SYS_utime, None, 0),
    (libc::SYS_utimes, None, 0),
    (libc::SYS_utimensat, Some(0), 1),
    (libc::SYS_setxattr, None, 0),
    (libc::SYS_removexattr, None, 0),
];

/// The denied accesses of a run.
#[derive(Debug, Default)]
pub(crate) struct DenialLog {
    running: RunningCalls,
    denied: BTreeMap<DeniedAccess, u64>,
    /// Whether rules for paths deny access, and not mounts.
    has_rules: bool,
}

impl DenialLog {
    pub(crate) fn new(has_rules: bool) -> Self {
        Self {
            has_rules,
            ..Self::default()
        }
    }

    /// A thread has stopped at the beginning or end of a system call.
    pub(crate) fn stopped(&mut self, thread: i32) {
        if let Some((call, result)) = self.running.stopped(thread)
            && let Some(denied) = denied_by(thread, call, result, self.has_rules)
        {
            *self.denied.entry(denied).or_default() += 1;
        }
    }

    /// What was denied, and how often.
    pub(crate) fn take(&mut self) -> Vec<(DeniedAccess, u64)> {
        std::mem::take(&mut self.denied).into_iter().collect()
    }
}

/// What a system call with this result was denied.
fn denied_by(thread: i32, call: Call, result: i64, has_rules: bool) -> Option<DeniedAccess> {
    let errno = i32::try_from(-result).ok().filter(|it| *it > 0)?;
    let number = call.number;
    match (number, errno) {
        (libc::SYS_connect | libc::SYS_sendto | libc::SYS_sendmsg, libc::ENETUNREACH) => {
            Some(DeniedAccess::Network)
        }
        (libc::SYS_umount2, libc::EPERM) => {
            path_at(thread, None, call.arguments[0]).map(DeniedAccess::Mount)
        }
        (libc::SYS_mount, libc::EPERM) => {
            path_at(thread, None, call.arguments[1]).map(DeniedAccess::Mount)
        }
        (_, libc::EROFS | libc::EACCES | libc::EXDEV) => {
            let (_, directory, path) = CALLS.iter().find(|(it, ..)| *it == number)?;
            let directory = directory.map(|it| call.arguments[it] as i32);
            let path = path_at(thread, directory, call.arguments[*path])?;
            let is_ours = match errno {
                libc::EROFS => true,
                // So say rules where a file would get into another directory.
                libc::EXDEV => has_rules && is_permitted(&path),
                // A device that is not shown may not be accessed; other files that may not be are not our doing.
                _ => is_device(&path) || has_rules && is_permitted(&path),
            };
            is_ours.then_some(DeniedAccess::Write(path))
        }
        _ => None,
    }
}

/// Whether permissions let this user write a file, or make it. Rules for paths have no part in that.
fn is_permitted(path: &Path) -> bool {
    let place = if path.exists() {
        Some(path)
    } else {
        path.parent()
    };
    place.is_some_and(|it| rustix::fs::access(it, rustix::fs::Access::WRITE_OK).is_ok())
}

fn is_device(path: &Path) -> bool {
    let kind = fs::metadata(path).map(|it| it.file_type());
    kind.is_ok_and(|it| it.is_block_device() || it.is_char_device())
}

/// The absolute path that a thread names, by the directory that it is relative to.
fn path_at(thread: i32, directory: Option<i32>, address: u64) -> Option<PathBuf> {
    let memory = File::open(format!("/proc/{thread}/mem")).ok()?;
    let mut bytes = vec![0; PATH_BYTES];
    // The path may end just before memory that is not mapped.
    let len = memory.read_at(&mut bytes, address).ok()?;
    let end = bytes[..len].iter().position(|byte| *byte == 0)?;
    bytes.truncate(end);
    let path = PathBuf::from(OsString::from_vec(bytes));
    let base = match directory {
        Some(number) if number != libc::AT_FDCWD => format!("/proc/{thread}/fd/{number}"),
        _ => format!("/proc/{thread}/cwd"),
    };
    Some(match fs::read_link(base) {
        Ok(base) => base.join(path),
        Err(_) => path,
    })
}
