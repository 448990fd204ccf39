//! Paths: whether one leads to a pool.
//!
//! # Safety
//!
//! Memory of the recovery is read by the kernel, which fails where nothing is mapped; everything else is on this
//! stack.
#![allow(unsafe_code, reason = "reads paths of the recovery")]

use powerfail_protocol::explore::PoolEntry;

use crate::platform::number::GETCWD;
use crate::platform::sys;

use super::{shared_file, state};

const AT_FDCWD: i32 = -100;
const LEN_MAX: usize = 4096;

/// A path, with a zero behind it. On the stack, because nothing that is allocated is given back.
pub(crate) struct Text {
    bytes: [u8; 2 * LEN_MAX + 2],
    len: usize,
}

impl Text {
    const EMPTY: Self = Self {
        bytes: [0; 2 * LEN_MAX + 2],
        len: 0,
    };

    fn push(&mut self, more: &[u8]) {
        let len = more.len().min(self.bytes.len() - 1 - self.len);
        self.bytes[self.len..self.len + len].copy_from_slice(&more[..len]);
        self.len += len;
        self.bytes[self.len] = 0;
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn with_end(&self) -> &[u8] {
        &self.bytes[..=self.len]
    }

    /// Adds a string of the target, if it can be read.
    fn push_from(&mut self, address: usize) {
        let mut bytes = [0u8; LEN_MAX];
        let own = [bytes.as_mut_ptr() as usize, LEN_MAX];
        // In two parts: the second page need not be there.
        let in_page = LEN_MAX - address % LEN_MAX;
        let other = [[address, in_page], [address + in_page, LEN_MAX - in_page]];
        let arguments = [
            sys::getpid() as usize,
            own.as_ptr() as usize,
            1,
            other.as_ptr() as usize,
            2,
            0,
        ];
        // SAFETY: the kernel copies to these bytes, or says that it cannot.
        let copied = unsafe { sys::call(sys::number::PROCESS_VM_READV, arguments) };
        let bytes = &bytes[..copied.max(0) as usize];
        let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(0);
        self.push(&bytes[..len]);
    }

    /// Adds the path of a directory.
    fn push_directory(&mut self, fd: i32) {
        let mut path = [0u8; LEN_MAX];
        let len = if fd == AT_FDCWD {
            let arguments = [path.as_mut_ptr() as usize, LEN_MAX, 0, 0, 0, 0];
            // SAFETY: the kernel writes no more than there is.
            let len = unsafe { sys::call(GETCWD, arguments) };
            // With its end.
            len.max(1) as usize - 1
        } else {
            let mut link = [0; 32];
            super::fork::path_of_descriptor(fd, &mut link);
            core::ffi::CStr::from_bytes_until_nul(&link)
                .map_or(0, |link| crate::host::read_link(link, &mut path))
        };
        self.push(&path[..len]);
    }
}

/// The path without what leads nowhere: empty names, `.` and `..`.
pub(crate) fn simplify(path: &[u8]) -> Text {
    let mut simple = Text::EMPTY;
    for name in path.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => {
                let before = simple.as_slice().iter().rposition(|byte| *byte == b'/');
                simple.len = before.unwrap_or(0);
            }
            _ => {
                simple.push(b"/");
                simple.push(name);
            }
        }
    }
    simple
}

/// A path that is relative to a directory, from the root on.
pub(crate) fn whole(directory: i32, address: usize) -> Option<Text> {
    let mut given = Text::EMPTY;
    given.push_from(address);
    let mut path = Text::EMPTY;
    match given.as_slice() {
        [] => return None,
        [b'/', ..] => {}
        _ => {
            path.push_directory(directory);
            path.push(b"/");
        }
    }
    path.push(given.as_slice());
    Some(path)
}

/// The path of the directory in which a path, without what leads nowhere, lies.
fn parent(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte == b'/');
    &path[..end.unwrap_or(0)]
}

/// Whether a path is one of the same directory as a pool.
pub(super) fn is_beside_pool(directory: i32, address: usize) -> bool {
    whole(directory, address).is_some_and(|path| {
        let simple = simplify(path.as_slice());
        let is_beside = |pool: &PoolEntry| {
            parent(simplify(shared_file::path(pool)).as_slice()) == parent(simple.as_slice())
        };
        shared_file::pools().iter().any(is_beside)
    })
}

/// Whether there is something at a path.
pub(super) fn leads_to_file(directory: i32, address: usize) -> bool {
    whole(directory, address).is_some_and(|path| state::status_of_path(path.with_end()).is_some())
}

/// The pool that a path, relative to a directory, leads to.
pub(super) fn pool_at(directory: i32, address: usize) -> Option<u32> {
    let path = whole(directory, address)?;
    let simple = simplify(path.as_slice());
    let is_it =
        |pool: &PoolEntry| simplify(shared_file::path(pool)).as_slice() == simple.as_slice();
    if let Some(number) = shared_file::pools().iter().position(is_it) {
        return Some(number as u32);
    }
    let status = state::status_of_path(path.with_end())?;
    let is_same = |pool: &PoolEntry| {
        let mut path = Text::EMPTY;
        path.push(shared_file::path(pool));
        state::status_of_path(path.with_end()) == Some(status)
    };
    let number = shared_file::pools().iter().position(is_same)?;
    Some(number as u32)
}
