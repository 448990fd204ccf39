//! System calls for which no library has a safe form.
//!
//! # Safety
//!
//! All are plain calls on numbers and on locals of the right types. `fork` is safe because a zygote has
//! one thread.

#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::time::Duration;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// Forks; `None` in the child.
pub(crate) fn fork() -> io::Result<Option<i32>> {
    // SAFETY: there is one thread, so the child's memory is consistent.
    let pid = check(unsafe { libc::fork() })?;
    Ok((pid != 0).then_some(pid))
}

/// The result of [`wait`].
pub(crate) enum Waited {
    /// A child and its status.
    Child(i32, i32),
    /// There are children, but none has changed.
    Nothing,
    /// There are no children.
    NoChildren,
}

/// Waits for a child (or any, with -1) or a tracee.
pub(crate) fn wait(pid: i32, block: bool) -> io::Result<Waited> {
    let mut status = 0;
    let flags = libc::__WALL | if block { 0 } else { libc::WNOHANG };
    loop {
        // SAFETY: the pointer is to a local.
        match check(unsafe { libc::waitpid(pid, &raw mut status, flags) }) {
            Ok(0) => return Ok(Waited::Nothing),
            Ok(child) => return Ok(Waited::Child(child, status)),
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::ECHILD) => return Ok(Waited::NoChildren),
                _ => return Err(error),
            },
        }
    }
}

/// The processor time of all children that were waited for, with that of their children.
pub(crate) fn time_of_children() -> Duration {
    let mut used = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call fills a local of the type that it fills; zeroed is a valid value of it.
    let used = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, used.as_mut_ptr());
        used.assume_init()
    };
    let time = |it: libc::timeval| {
        let seconds = Duration::from_secs(it.tv_sec.unsigned_abs());
        seconds + Duration::from_micros(it.tv_usec.unsigned_abs())
    };
    time(used.ru_utime) + time(used.ru_stime)
}

/// Whether a tracee has stopped. Takes note of nothing else.
pub(crate) fn has_stopped(thread: i32) -> bool {
    let mut information = MaybeUninit::<libc::siginfo_t>::zeroed();
    let flags = libc::WSTOPPED | libc::WNOHANG | libc::__WALL;
    // SAFETY: the call fills a local of the type that it fills; zeroed is a valid value of it.
    unsafe {
        let id = thread.cast_unsigned();
        let result = libc::waitid(libc::P_PID, id, information.as_mut_ptr(), flags);
        result == 0 && information.assume_init().si_pid() != 0
    }
}

/// The process group of a process; 0 if it has none that is visible here: its leader may be outside of the process namespace.
pub(crate) fn process_group(pid: i32) -> i32 {
    // SAFETY: a number only.
    unsafe { libc::getpgid(pid) }.max(0)
}

/// Sends a signal to a process, a group (negative) or all processes (-1). Errors mean that they have ended.
pub(crate) fn kill(pid: i32, signal: i32) {
    // SAFETY: no pointers.
    unsafe {
        libc::kill(pid, signal);
    }
}

/// A descriptor that becomes readable when a child changes.
pub(crate) fn child_signals() -> io::Result<OwnedFd> {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is a local, and is initialised by the first call.
    let descriptor = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
        check(libc::sigprocmask(
            libc::SIG_BLOCK,
            set.as_ptr(),
            ptr::null_mut(),
        ))?;
        check(libc::signalfd(
            -1,
            set.as_ptr(),
            libc::SFD_CLOEXEC | libc::SFD_NONBLOCK,
        ))?
    };
    // SAFETY: just made.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Leaves the namespaces of the parent for new ones.
pub(crate) fn unshare(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: no pointers; there is one thread.
    check(unsafe { libc::unshare(flags) }).map(drop)
}

/// Attributes of mounts, by their values in `linux/mount.h`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MountAttributes(u64);

impl MountAttributes {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const READ_ONLY: Self = Self(0x1);
    pub(crate) const NO_DEVICES: Self = Self(0x4);

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Sets and clears attributes of a mount and, if `deep`, of all mounts below it.
pub(crate) fn change_mounts(
    path: &Path,
    set: MountAttributes,
    clear: MountAttributes,
    deep: bool,
) -> io::Result<()> {
    const RECURSIVE: libc::c_int = 0x8000;
    // `struct mount_attr`: set, clear, propagation, user namespace.
    let attributes = [set.0, clear.0, 0, 0];
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path and the attributes are locals, of which the length is passed.
    let changed = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            if deep { RECURSIVE } else { 0 },
            attributes.as_ptr(),
            size_of_val(&attributes),
        )
    };
    if changed != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Disables address randomisation for programs that are executed from now on.
pub(crate) fn fix_addresses() {
    // SAFETY: no pointers.
    unsafe {
        let personality = libc::personality(0xffff_ffff);
        if personality >= 0 {
            let fixed = (personality | libc::ADDR_NO_RANDOMIZE).cast_unsigned();
            libc::personality(u64::from(fixed));
        }
    }
}

/// Makes this process the parent of descendants that lose theirs.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) }).map(drop)
}

/// Makes this process die with its parent.
pub(crate) fn die_with_parent() -> io::Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) }).map(drop)
}

/// Disables core dumps. A limit of one byte, unlike zero, also disables a handler behind a pipe.
pub(crate) fn forbid_core_dumps() {
    let limit = libc::rlimit {
        rlim_cur: 1,
        rlim_max: 1,
    };
    // SAFETY: the pointer is to a local. Failing is harmless.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const limit);
    }
}

/// Marks all descriptors beyond the standard ones as close-on-exec.
pub(crate) fn close_all_on_exec() {
    // SAFETY: no pointers, and nothing is closed now.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3_u32,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        );
    }
}

/// Duplicates a descriptor out of the range of the standard ones and puts `/dev/null` in its place.
pub(crate) fn move_away(descriptor: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: numbers and a constant string; the descriptor that is given away was just made.
    unsafe {
        let moved = check(libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 3))?;
        let nothing = check(libc::open(
            c"/dev/null".as_ptr(),
            libc::O_RDWR | libc::O_CLOEXEC,
        ))?;
        check(libc::dup2(nothing, descriptor))?;
        if nothing != descriptor {
            libc::close(nothing);
        }
        Ok(OwnedFd::from_raw_fd(moved))
    }
}

/// Closes a descriptor in a process that never uses it again, and never returns to its owner.
pub(crate) fn close_number(descriptor: RawFd) {
    // SAFETY: the caller does nothing but wait and exit from here on, so the number is not used again.
    unsafe {
        libc::close(descriptor);
    }
}
