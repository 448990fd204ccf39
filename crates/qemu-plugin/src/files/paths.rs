//! What the kernel says of paths and open files of the target.
//!
//! # Safety
//!
//! Descriptors of the target are those of this process. Paths are copies, and the kernel writes only to local variables.
#![allow(
    unsafe_code,
    reason = "asks the kernel about paths and descriptors of the target"
)]

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;

use crate::pools::FileIdentity;

pub(super) fn status_of(descriptor: RawFd) -> Option<libc::stat> {
    // SAFETY: the kernel writes to this stack.
    unsafe {
        let mut status: libc::stat = core::mem::zeroed();
        (libc::fstat(descriptor, &raw mut status) == 0).then_some(status)
    }
}

pub(super) fn status_at(directory: RawFd, path: &CStr, follows: bool) -> Option<libc::stat> {
    let flags = if follows {
        0
    } else {
        libc::AT_SYMLINK_NOFOLLOW
    };
    // SAFETY: the kernel reads the path and writes to this stack.
    unsafe {
        let mut status: libc::stat = core::mem::zeroed();
        (libc::fstatat(directory, path.as_ptr(), &raw mut status, flags) == 0).then_some(status)
    }
}

/// Of an absolute path; a symbolic link is not followed.
pub(super) fn status_of_path(place: &[u8]) -> Option<libc::stat> {
    status_at(libc::AT_FDCWD, &CString::new(place).ok()?, false)
}

pub(super) const fn identity(status: &libc::stat) -> FileIdentity {
    FileIdentity {
        device: status.st_dev,
        inode: status.st_ino,
    }
}

pub(super) const fn is_regular(status: &libc::stat) -> bool {
    status.st_mode & libc::S_IFMT == libc::S_IFREG
}

pub(super) fn len_of(descriptor: RawFd) -> u64 {
    status_of(descriptor).map_or(0, |status| status.st_size.cast_unsigned())
}

/// Where a descriptor is in its file.
pub(super) fn position(descriptor: RawFd) -> u64 {
    // SAFETY: takes no pointer and changes nothing.
    unsafe { libc::lseek(descriptor, 0, libc::SEEK_CUR) }.cast_unsigned()
}

/// Opens what a path names, without access to its content.
pub(super) fn opened_at(directory: RawFd, path: &CStr, flags: libc::c_int) -> Option<OwnedFd> {
    let flags = flags | libc::O_PATH | libc::O_CLOEXEC;
    // SAFETY: the kernel reads the path, and a descriptor of this kind has no effect on the file. It is owned here alone.
    unsafe {
        let descriptor = libc::openat(directory, path.as_ptr(), flags);
        (descriptor >= 0).then(|| OwnedFd::from_raw_fd(descriptor))
    }
}

/// The path of an open file: absolute, without symbolic links. Behind that of a file without a name is a remark of the kernel.
pub(super) fn path_of(descriptor: RawFd) -> Option<Vec<u8>> {
    let path = std::fs::read_link(format!("/proc/self/fd/{descriptor}")).ok()?;
    Some(path.into_os_string().into_vec())
}

/// The path of an entry of a directory, which need not exist. A symbolic link in its place is not followed. `None` if no
/// entry can have that path.
pub(super) fn entry_at(directory: RawFd, path: &CStr) -> Option<Vec<u8>> {
    let path = path.to_bytes();
    let end = path.iter().rposition(|byte| *byte != b'/')? + 1;
    let path = &path[..end];
    let slash = path.iter().rposition(|byte| *byte == b'/');
    let name = &path[slash.map_or(0, |slash| slash + 1)..];
    if name == b"." || name == b".." {
        return None;
    }
    let parent = match slash {
        None => b".",
        Some(0) => b"/".as_slice(),
        Some(slash) => &path[..slash],
    };
    let parent = CString::new(parent).ok()?;
    let parent = opened_at(directory, &parent, libc::O_DIRECTORY)?;
    let mut found = path_of(parent.as_raw_fd())?;
    if found != b"/" {
        found.push(b'/');
    }
    found.extend_from_slice(name);
    Some(found)
}
