//! What a program reads from a file by system calls: fsck reads an image so. It is traced by the thread that starts it.
#![allow(unsafe_code, reason = "system calls")]

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::error::{Result, VmError};

const READ: u64 = 0;
const MMAP: u64 = 9;
const PREAD64: u64 = 17;
const READV: u64 = 19;
const PREADV: u64 = 295;
const PREADV2: u64 = 327;

/// Runs a command, and says which bytes of a file it read. Whether it succeeds does not matter.
pub(crate) fn traced_reads(mut command: Command, file: &File) -> Result<Vec<Range<u64>>> {
    let failed = |error: std::io::Error| VmError::Guest(format!("fsck cannot be traced: {error}"));
    let metadata = file.metadata().map_err(failed)?;
    let identity = (metadata.dev(), metadata.ino());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // SAFETY: only system calls are made between fork and exec.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let child = command.spawn().map_err(failed)?;
    let first = child.id().cast_signed();
    let mut reads = Vec::new();
    let mut is_set_up = false;
    loop {
        let mut status = 0;
        // SAFETY: the status is on this stack. Only children of this thread are waited for.
        let thread =
            unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
        if thread < 0 {
            return Err(failed(std::io::Error::last_os_error()));
        }
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            if thread == first {
                return Ok(reads);
            }
            continue;
        }
        let mut signal = libc::WSTOPSIG(status);
        if !is_set_up {
            is_set_up = true;
            let options = libc::PTRACE_O_TRACESYSGOOD
                | libc::PTRACE_O_TRACECLONE
                | libc::PTRACE_O_TRACEFORK
                | libc::PTRACE_O_TRACEVFORK
                | libc::PTRACE_O_EXITKILL;
            // SAFETY: the tracee has stopped.
            unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, thread, 0, options) };
        }
        if signal == libc::SIGTRAP | 0x80 {
            if let Some(range) = read_of(thread, identity, metadata.len()) {
                reads.push(range);
            }
            signal = 0;
        } else if matches!(signal, libc::SIGTRAP | libc::SIGSTOP) {
            signal = 0;
        }
        // SAFETY: the tracee has stopped.
        unsafe { libc::ptrace(libc::PTRACE_SYSCALL, thread, 0, signal) };
    }
}

/// What a system call reads of the file, whether it begins or ends: to note it twice does no harm.
fn read_of(thread: i32, (device, inode): (u64, u64), len: u64) -> Option<Range<u64>> {
    // SAFETY: registers are plain numbers, and the kernel fills them.
    let registers = unsafe {
        let mut registers: libc::user_regs_struct = core::mem::zeroed();
        let result = libc::ptrace(libc::PTRACE_GETREGS, thread, 0, &raw mut registers);
        (result == 0).then_some(registers)
    }?;
    let call = registers.orig_rax;
    if !matches!(call, READ | MMAP | PREAD64 | READV | PREADV | PREADV2) {
        return None;
    }
    let number = if call == MMAP {
        registers.r8
    } else {
        registers.rdi
    };
    let opened = fs::metadata(format!("/proc/{thread}/fd/{}", number as i32)).ok()?;
    if (opened.dev(), opened.ino()) != (device, inode) {
        return None;
    }
    match call {
        PREAD64 => Some(registers.r10..registers.r10.saturating_add(registers.rdx)),
        READ => {
            let information = fs::read_to_string(format!("/proc/{thread}/fdinfo/{number}")).ok()?;
            let position = information.lines().find_map(|it| it.strip_prefix("pos:"))?;
            let position: u64 = position.trim().parse().ok()?;
            Some(position..position.saturating_add(registers.rdx))
        }
        // Which parts are read is not known.
        _ => Some(0..len),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_of_a_file_are_seen() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        fs::write(&path, vec![1; 64 << 10]).unwrap();
        let file = File::open(&path).unwrap();
        let mut command = Command::new("dd");
        command.args(["bs=4096", "skip=3", "count=2", "of=/dev/null"]);
        command.arg(format!("if={}", path.display()));
        let reads = traced_reads(command, &file).unwrap();
        assert!(reads.contains(&(3 * 4096..4 * 4096)), "{reads:?}");
        assert!(reads.contains(&(4 * 4096..5 * 4096)), "{reads:?}");
        assert!(reads.iter().all(|it| it.start >= 3 * 4096), "{reads:?}");
    }
}
