//! Watches the processes of a run for the signal that ends one of them, and takes its stack then.
//!
//! # Safety
//!
//! `ptrace` is called on stopped tracees, with numbers and with locals of the types that it fills.

#![allow(unsafe_code)]

use std::collections::HashSet;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::ptr;

use crate::denied::DeniedAccess;
use crate::file_use::FileUse;
use crate::verdict::Backtrace;
use crate::zygote::denial_log::DenialLog;
use crate::zygote::stack;
use crate::zygote::use_log::UseLog;

const OPTIONS: libc::c_int = libc::PTRACE_O_EXITKILL
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACESYSGOOD;
/// How the kernel marks a stop at a system call.
const SYSTEM_CALL: i32 = libc::SIGTRAP | 0x80;

/// Traces processes and threads from their first stop.
#[derive(Debug, Default)]
pub(crate) struct Tracer {
    /// Commands that have not stopped for the first time, when they are executed.
    expected: HashSet<i32>,
    known: HashSet<i32>,
    /// The process that a fatal signal was for, and its stack.
    crashes: Vec<(i32, Backtrace)>,
    log: CallLog,
}

/// What system calls are watched for.
#[derive(Debug, Default)]
enum CallLog {
    #[default]
    Nothing,
    Denials(DenialLog),
    Uses(UseLog),
}

impl Tracer {
    /// A tracer that also notes what is denied: by mounts, or by rules for paths.
    pub(crate) fn of_denials(has_rules: bool) -> Self {
        Self {
            log: CallLog::Denials(DenialLog::new(has_rules)),
            ..Self::default()
        }
    }

    /// A tracer that also notes what is read of files below these directories, and written to them.
    pub(crate) fn of_uses(roots: Vec<PathBuf>) -> Self {
        Self {
            log: CallLog::Uses(UseLog::of(roots)),
            ..Self::default()
        }
    }

    /// What was denied so far, and how often.
    pub(crate) fn take_denied(&mut self) -> Vec<(DeniedAccess, u64)> {
        match &mut self.log {
            CallLog::Denials(log) => log.take(),
            CallLog::Nothing | CallLog::Uses(_) => Vec::new(),
        }
    }

    /// What was used so far, if that is noted.
    pub(crate) fn take_uses(&mut self) -> Vec<FileUse> {
        match &mut self.log {
            CallLog::Uses(log) => log.take(),
            CallLog::Nothing | CallLog::Denials(_) => Vec::new(),
        }
    }

    /// Expects the first stop of a command that was started.
    pub(crate) fn expect(&mut self, pid: i32) {
        self.expected.insert(pid);
    }

    /// Where the process crashed, or else where the last of its descendants that crashed did.
    pub(crate) fn crash(&self, pid: i32) -> Option<Backtrace> {
        let own = self.crashes.iter().rfind(|(process, _)| *process == pid);
        own.or(self.crashes.last()).map(|(_, stack)| stack.clone())
    }

    /// Handles the stop of a tracee, and lets it continue.
    pub(crate) fn stopped(&mut self, pid: i32, status: i32) {
        let signal = libc::WSTOPSIG(status);
        if signal == SYSTEM_CALL {
            match &mut self.log {
                CallLog::Nothing => {}
                CallLog::Denials(log) => log.stopped(pid),
                CallLog::Uses(log) => log.stopped(pid),
            }
            self.resume(pid, 0);
        } else if self.expected.remove(&pid) {
            self.known.insert(pid);
            set_options(pid);
            self.resume(pid, 0);
        } else if status >> 16 != 0 {
            // An event: a new child, which is traced too, or an exec.
            self.resume(pid, 0);
        } else if self.known.insert(pid) && signal == libc::SIGSTOP {
            // The first stop of a new child.
            self.resume(pid, 0);
        } else if !is_delivery(pid) {
            self.resume(pid, 0);
        } else {
            if is_fatal(pid, signal)
                && let Some(stack) = stack::of_stopped_thread(pid)
            {
                self.crashes.push((process_of(pid), stack));
            }
            self.resume(pid, signal);
        }
    }

    /// Lets a tracee run on, to its next system call if those count.
    fn resume(&self, pid: i32, signal: i32) {
        let request = match self.log {
            CallLog::Nothing => libc::PTRACE_CONT,
            CallLog::Denials(_) | CallLog::Uses(_) => libc::PTRACE_SYSCALL,
        };
        resume(request, pid, signal);
    }
}

/// Lets a tracee continue to its end.
pub(crate) fn let_go(pid: i32) {
    resume(libc::PTRACE_CONT, pid, libc::SIGKILL);
}

/// The registers of a stopped tracee.
pub(crate) fn registers(thread: i32) -> Option<libc::user_regs_struct> {
    let mut registers = MaybeUninit::<libc::user_regs_struct>::zeroed();
    let nothing = ptr::null_mut::<libc::c_void>();
    // SAFETY: the call fills a local of the type that it fills; zeroed is a valid value of it.
    unsafe {
        let result = libc::ptrace(
            libc::PTRACE_GETREGS,
            thread,
            nothing,
            registers.as_mut_ptr(),
        );
        (result == 0).then(|| registers.assume_init())
    }
}

/// Attaches to a thread and asks it to stop.
pub(crate) fn interrupt(thread: i32) -> io::Result<()> {
    let nothing = ptr::null_mut::<libc::c_void>();
    // SAFETY: numbers only.
    let result = unsafe {
        match libc::ptrace(libc::PTRACE_SEIZE, thread, nothing, nothing) {
            0 => libc::ptrace(libc::PTRACE_INTERRUPT, thread, nothing, nothing),
            failed => failed,
        }
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Lets a thread run on that was stopped by [`interrupt`].
pub(crate) fn detach(thread: i32) {
    let nothing = ptr::null_mut::<libc::c_void>();
    // SAFETY: numbers only. An error means that the thread has ended, or has not stopped; then it stays attached.
    unsafe {
        libc::ptrace(libc::PTRACE_DETACH, thread, nothing, nothing);
    }
}

/// Whether a process handles signals that timers send.
pub(crate) fn handles_timers(thread: i32) -> bool {
    let timers = [libc::SIGALRM, libc::SIGVTALRM, libc::SIGPROF];
    let caught = status_field(thread, "SigCgt:");
    let caught = caught.and_then(|mask| u64::from_str_radix(&mask, 16).ok());
    caught.is_none_or(|mask| timers.iter().any(|signal| mask & (1 << (signal - 1)) != 0))
}

fn set_options(pid: i32) {
    let nothing = ptr::null_mut::<libc::c_void>();
    // SAFETY: numbers only.
    unsafe {
        libc::ptrace(
            libc::PTRACE_SETOPTIONS,
            pid,
            nothing,
            libc::c_long::from(OPTIONS),
        );
    }
}

fn resume(request: libc::c_uint, pid: i32, signal: i32) {
    let nothing = ptr::null_mut::<libc::c_void>();
    // SAFETY: numbers only. An error means that the process has ended.
    unsafe {
        libc::ptrace(request, pid, nothing, libc::c_long::from(signal));
    }
}

/// Whether a stop is for a signal that is to be delivered: other stops have no information about one.
fn is_delivery(pid: i32) -> bool {
    let mut information = MaybeUninit::<libc::siginfo_t>::zeroed();
    let nothing = ptr::null_mut::<libc::c_void>();
    // SAFETY: the call fills a local of the type that it fills.
    unsafe {
        libc::ptrace(
            libc::PTRACE_GETSIGINFO,
            pid,
            nothing,
            information.as_mut_ptr(),
        ) == 0
    }
}

/// Whether a signal ends the process: it is neither handled nor ignored, nor harmless by default.
fn is_fatal(thread: i32, signal: i32) -> bool {
    let harmless = [
        libc::SIGCHLD,
        libc::SIGCONT,
        libc::SIGSTOP,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
        libc::SIGURG,
        libc::SIGWINCH,
    ];
    if harmless.contains(&signal) {
        return false;
    }
    let masks = ["SigIgn:", "SigCgt:"].map(|field| status_field(thread, field));
    masks.into_iter().flatten().all(|mask| {
        u64::from_str_radix(&mask, 16).is_ok_and(|mask| mask & (1 << (signal - 1)) == 0)
    })
}

/// The process of a thread.
fn process_of(thread: i32) -> i32 {
    let process = status_field(thread, "Tgid:").and_then(|it| it.parse().ok());
    process.unwrap_or(thread)
}

fn status_field(thread: i32, field: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(field))?;
    Some(value.trim().into())
}
