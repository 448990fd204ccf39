//! Notes which bytes of the files of a tree traced commands read and write, and from where they read them.
//!
//! As with denied accesses, each system call stops the command twice. That is slow, so only runs are watched whose reads are asked
//! for.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use crate::file_use::FileUse;
use crate::verdict::Backtrace;
use crate::zygote::ended_calls::{Call, RunningCalls};
use crate::zygote::stack::StoppedStacks;

/// How many uses are kept. A recovery that uses more parts of files is not watched to its end.
const USES_MAX: usize = 1 << 16;

/// The uses of files of a run.
#[derive(Debug, Default)]
pub(crate) struct UseLog {
    running: RunningCalls,
    /// Only files below these count.
    roots: Vec<PathBuf>,
    stacks: HashMap<i32, StoppedStacks>,
    uses: Vec<FileUse>,
}

/// What a call does to which bytes.
struct Access {
    descriptor: i32,
    /// `None`: the bytes before the place where the descriptor is now.
    start: Option<u64>,
    len: u64,
    is_read: bool,
}

impl UseLog {
    pub(crate) fn of(roots: Vec<PathBuf>) -> Self {
        Self {
            roots,
            ..Self::default()
        }
    }

    /// A thread has stopped at the beginning or end of a system call.
    pub(crate) fn stopped(&mut self, thread: i32) {
        let Some((call, result)) = self.running.stopped(thread) else {
            return;
        };
        let is_code =
            call.number == libc::SYS_mmap && call.arguments[2] & libc::PROT_EXEC as u64 != 0;
        if call.number == libc::SYS_execve || call.number == libc::SYS_execveat || is_code {
            self.stacks.remove(&thread);
        }
        if self.uses.len() >= USES_MAX {
            return;
        }
        if let Some(access) = access_of(call, result) {
            self.add(thread, &access);
        }
    }

    fn add(&mut self, thread: i32, access: &Access) {
        let link = format!("/proc/{thread}/fd/{}", access.descriptor);
        let Ok(path) = fs::read_link(&link) else {
            return;
        };
        if !self.roots.iter().any(|root| path.starts_with(root)) {
            return;
        }
        let Some(status) = fs::metadata(&link).ok().filter(fs::Metadata::is_file) else {
            return;
        };
        let start = access.start.unwrap_or_else(|| {
            let end = position(thread, access.descriptor).unwrap_or(0);
            end.saturating_sub(access.len)
        });
        let reader = access.is_read.then(|| self.stack(thread));
        let used = FileUse {
            device: status.dev(),
            inode: status.ino(),
            range: start..start.saturating_add(access.len),
            reader,
        };
        // A file is often read in pieces, one after the other.
        if let Some(last) = self.uses.last_mut()
            && (last.device, last.inode, &last.reader) == (used.device, used.inode, &used.reader)
            && last.range.end == used.range.start
        {
            last.range.end = used.range.end;
            return;
        }
        self.uses.push(used);
    }

    fn stack(&mut self, thread: i32) -> Backtrace {
        if !self.stacks.contains_key(&thread)
            && let Some(stacks) = StoppedStacks::of(thread)
        {
            self.stacks.insert(thread, stacks);
        }
        let stacks = self.stacks.get(&thread);
        stacks.and_then(|it| it.take(thread)).unwrap_or_default()
    }

    /// What was used so far.
    pub(crate) fn take(&mut self) -> Vec<FileUse> {
        std::mem::take(&mut self.uses)
    }
}

/// What a call with this result has read or written.
fn access_of(call: Call, result: i64) -> Option<Access> {
    let Call { number, arguments } = call;
    let count = u64::try_from(result).ok()?;
    let access = |argument: usize, start: Option<u64>, len: u64, is_read: bool| Access {
        descriptor: arguments[argument] as i32,
        start,
        len,
        is_read,
    };
    let given = Some(arguments[3]);
    let is_of_file = arguments[3] & libc::MAP_ANONYMOUS as u64 == 0;
    let access = match number {
        libc::SYS_mmap if is_of_file => access(4, Some(arguments[5]), arguments[1], true),
        libc::SYS_ftruncate => access(0, Some(arguments[1]), u64::MAX, false),
        _ if count == 0 => return None,
        libc::SYS_pread64 | libc::SYS_preadv => access(0, given, count, true),
        libc::SYS_preadv2 => access(0, given.filter(|it| *it != u64::MAX), count, true),
        libc::SYS_read | libc::SYS_readv => access(0, None, count, true),
        libc::SYS_write | libc::SYS_writev => access(0, None, count, false),
        libc::SYS_pwrite64 | libc::SYS_pwritev => access(0, given, count, false),
        libc::SYS_pwritev2 => access(0, given.filter(|it| *it != u64::MAX), count, false),
        // Where the kernel copies from an offset of its own, all of the file counts as read.
        libc::SYS_sendfile => access(1, Some(0), u64::MAX, true),
        libc::SYS_copy_file_range | libc::SYS_splice => access(0, Some(0), u64::MAX, true),
        _ => return None,
    };
    Some(access)
}

/// Where a descriptor is in its file.
fn position(thread: i32, descriptor: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{thread}/fdinfo/{descriptor}")).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix("pos:"))?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::access_of;
    use crate::zygote::ended_calls::Call;

    /// Descriptor, first byte, length, and whether it is read.
    fn used(
        number: libc::c_long,
        arguments: [u64; 6],
        result: i64,
    ) -> Option<(i32, Option<u64>, u64, bool)> {
        let access = access_of(Call { number, arguments }, result)?;
        Some((access.descriptor, access.start, access.len, access.is_read))
    }

    #[test]
    fn calls_use_what_they_have_transferred() {
        let read = used(libc::SYS_read, [3, 0, 100, 0, 0, 0], 60);
        assert_eq!(read, Some((3, None, 60, true)));
        let read = used(libc::SYS_pread64, [3, 0, 100, 40, 0, 0], 60);
        assert_eq!(read, Some((3, Some(40), 60, true)));
        let written = used(libc::SYS_pwritev2, [3, 0, 1, u64::MAX, 0, 0], 60);
        assert_eq!(written, Some((3, None, 60, false)));
        assert_eq!(used(libc::SYS_read, [3, 0, 100, 0, 0, 0], 0), None);
        assert_eq!(used(libc::SYS_read, [3, 0, 100, 0, 0, 0], -9), None);
    }

    /// It transfers nothing, and what was there can no longer be read.
    #[test]
    fn a_truncation_overwrites_all_that_follows() {
        let cut = used(libc::SYS_ftruncate, [3, 40, 0, 0, 0, 0], 0);
        assert_eq!(cut, Some((3, Some(40), u64::MAX, false)));
    }
}
