//! Which file a path or a descriptor names: absolute paths without symbolic links, as the kernel sees them.
//!
//! # Safety
//!
//! Paths are C strings of the target or of this stack. The calls open a directory for a moment, without effect on it, or
//! write to this stack.
#![allow(unsafe_code, reason = "makes system calls with paths")]

use core::ffi::CStr;

use crate::host;
use crate::platform::{number, sys};
use crate::recovery::fork::path_of_descriptor;

/// Longer paths are cut by the kernel.
pub(super) const PATH_MAX: usize = 4096;
pub(super) const AT_FDCWD: i32 = -100;
const O_PATH: usize = 0o10_000_000;
const O_DIRECTORY: usize = 0o200_000;
const O_NOFOLLOW: usize = 0o400_000;
const O_CLOEXEC: usize = 0o2_000_000;

/// A path.
pub(super) struct Path {
    bytes: [u8; PATH_MAX + 256],
    len: usize,
}

impl Path {
    const EMPTY: Self = Self {
        bytes: [0; PATH_MAX + 256],
        len: 0,
    };

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.len + bytes.len();
        self.bytes.get_mut(self.len..end)?.copy_from_slice(bytes);
        self.len = end;
        Some(())
    }
}

/// The path of an open file. Behind that of a file without a name is a remark of the kernel.
pub(super) fn of_descriptor(fd: i32) -> Option<Path> {
    let mut link = [0; 32];
    path_of_descriptor(fd, &mut link);
    let link = CStr::from_bytes_until_nul(&link).ok()?;
    let mut path = Path::EMPTY;
    path.len = host::read_link(link, &mut path.bytes[..PATH_MAX]);
    (1..PATH_MAX).contains(&path.len).then_some(path)
}

/// The path of an entry of a directory, which need not exist. A symbolic link in its place is not followed. `None` if no
/// entry can have that path.
pub(super) fn of_entry(directory: i32, path: &CStr) -> Option<Path> {
    let path = path.to_bytes();
    let is_slash = |byte: &u8| *byte == b'/';
    let end = path.iter().rposition(|byte| !is_slash(byte))? + 1;
    let path = &path[..end];
    let slash = path.iter().rposition(is_slash);
    let name = &path[slash.map_or(0, |slash| slash + 1)..];
    if name == b"." || name == b".." {
        return None;
    }
    let mut found = match slash {
        None if directory == AT_FDCWD => current_directory()?,
        None => of_directory(directory, b".")?,
        Some(0) => of_directory(directory, b"/")?,
        Some(slash) => of_directory(directory, &path[..slash])?,
    };
    if found.bytes() != b"/" {
        found.push(b"/")?;
    }
    found.push(name)?;
    Some(found)
}

/// Where a process is.
fn current_directory() -> Option<Path> {
    let mut path = Path::EMPTY;
    let arguments = [path.bytes.as_mut_ptr() as usize, PATH_MAX, 0, 0, 0, 0];
    // SAFETY: the kernel writes at most so many bytes to this stack.
    let len = unsafe { sys::call(number::GETCWD, arguments) };
    // A zero byte is counted. A directory that cannot be reached has no slash.
    path.len = usize::try_from(len).ok()?.checked_sub(1)?;
    path.bytes().starts_with(b"/").then_some(path)
}

fn of_directory(directory: i32, path: &[u8]) -> Option<Path> {
    let mut text = [0; PATH_MAX];
    text.get_mut(..path.len())?.copy_from_slice(path);
    let text = CStr::from_bytes_until_nul(&text).ok()?;
    with_opened(directory, text, O_PATH | O_DIRECTORY, |fd| {
        of_descriptor(fd)
    })?
}

/// Opens what a path names, without access to its content, for as long as `look` looks at it.
pub(super) fn with_opened<R>(
    directory: i32,
    path: &CStr,
    flags: usize,
    look: impl FnOnce(i32) -> R,
) -> Option<R> {
    let arguments = [
        directory as usize,
        path.as_ptr() as usize,
        flags | O_PATH | O_CLOEXEC,
        0,
        0,
        0,
    ];
    // SAFETY: the kernel reads the path, and a descriptor of this kind has no effect on the file.
    let fd = unsafe { sys::call(number::OPENAT, arguments) } as i32;
    if fd < 0 {
        return None;
    }
    let seen = look(fd);
    sys::close(fd);
    Some(seen)
}

/// As [`with_opened`], of a symbolic link itself if it is one.
pub(super) fn with_opened_entry<R>(
    directory: i32,
    path: &CStr,
    look: impl FnOnce(i32) -> R,
) -> Option<R> {
    with_opened(directory, path, O_NOFOLLOW, look)
}

/// What a path names; a symbolic link is followed if `follows`.
pub(super) fn status(directory: i32, path: &CStr, follows: bool) -> Option<sys::FileStatus> {
    const AT_SYMLINK_NOFOLLOW: usize = 0x100;
    let flags = if follows { 0 } else { AT_SYMLINK_NOFOLLOW };
    sys::status_at(directory, path, flags)
}
