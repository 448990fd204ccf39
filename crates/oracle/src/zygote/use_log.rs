//! Notes which bytes of the files of a tree traced commands read and write, and from where they read them.
//!
//! As with denied accesses, each system call stops the command twice. That is slow, so only runs are watched whose reads are asked
//! for.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
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
    range: Range<u64>,
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
        for access in accesses(thread, call, result) {
            self.add(thread, access);
        }
    }

    fn add(&mut self, thread: i32, access: Access) {
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
        let reader = access.is_read.then(|| self.stack(thread));
        let used = FileUse {
            device: status.dev(),
            inode: status.ino(),
            range: access.range,
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

/// What a call with this result has read and written.
fn accesses(thread: i32, call: Call, result: i64) -> Vec<Access> {
    let Call { number, arguments } = call;
    let Some(count) = u64::try_from(result).ok() else {
        return Vec::new();
    };
    let at = |argument: usize| arguments[argument] as i32;
    let access = |descriptor: i32, start: u64, len: u64, is_read: bool| Access {
        descriptor,
        range: start..start.saturating_add(len),
        is_read,
    };
    let here = |descriptor: i32| {
        position(thread, descriptor)
            .unwrap_or(0)
            .saturating_sub(count)
    };
    match number {
        libc::SYS_mmap if at(4) >= 0 && arguments[3] & libc::MAP_ANONYMOUS as u64 == 0 => {
            vec![access(at(4), arguments[5], arguments[1], true)]
        }
        _ if count == 0 => Vec::new(),
        libc::SYS_pread64 | libc::SYS_preadv => vec![access(at(0), arguments[3], count, true)],
        libc::SYS_preadv2 if arguments[3] != u64::MAX => {
            vec![access(at(0), arguments[3], count, true)]
        }
        libc::SYS_read | libc::SYS_readv | libc::SYS_preadv2 => {
            vec![access(at(0), here(at(0)), count, true)]
        }
        libc::SYS_write | libc::SYS_writev => vec![access(at(0), here(at(0)), count, false)],
        libc::SYS_pwrite64 | libc::SYS_pwritev | libc::SYS_pwritev2 => {
            vec![access(at(0), arguments[3], count, false)]
        }
        // Where the kernel copies from an offset of its own, all of the file counts as read.
        libc::SYS_sendfile => vec![access(at(1), 0, u64::MAX, true)],
        libc::SYS_copy_file_range | libc::SYS_splice => vec![access(at(0), 0, u64::MAX, true)],
        libc::SYS_ftruncate => vec![access(at(0), arguments[1], u64::MAX, false)],
        _ => Vec::new(),
    }
}

/// Where a descriptor is in its file.
fn position(thread: i32, descriptor: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{thread}/fdinfo/{descriptor}")).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix("pos:"))?;
    value.trim().parse().ok()
}
