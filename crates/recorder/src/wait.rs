//! Waits for the target and reports the resources that it used.
//!
//! # Safety
//!
//! `wait4` writes to the two places it is given, which are locals of the caller.

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

use powerfail_trace::recording::TargetStatus;
use rustix::process::Pid;

/// How a target ended and what it used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    pub(crate) status: TargetStatus,
    /// Of itself and of children that it waited for.
    pub(crate) cpu_time: Duration,
}

/// Waits for a child, or only checks it.
pub(crate) fn wait_for(pid: Pid, block: bool) -> io::Result<Option<Exit>> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    let flags = if block { 0 } else { libc::WNOHANG };
    let result = loop {
        // SAFETY: both pointers are to locals of the right types.
        let result = unsafe {
            libc::wait4(
                pid.as_raw_nonzero().get(),
                &raw mut status,
                flags,
                usage.as_mut_ptr(),
            )
        };
        if result >= 0 {
            break result;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    };
    if result == 0 {
        return Ok(None);
    }
    // SAFETY: zeroed is a valid value of it, and the call may have written a better one.
    let usage = unsafe { usage.assume_init() };
    let duration = |time: libc::timeval| {
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        Duration::from_secs(seconds)
            + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
    };
    let status = if libc::WIFSIGNALED(status) {
        TargetStatus::Killed(libc::WTERMSIG(status))
    } else {
        TargetStatus::Exited(libc::WEXITSTATUS(status))
    };
    Ok(Some(Exit {
        status,
        cpu_time: duration(usage.ru_utime) + duration(usage.ru_stime),
    }))
}
