//! Starts a command at the price of `posix_spawn`: the child shares the zygote's memory, which waits,
//! until it executes.
//!
//! # Safety
//!
//! The child runs on a stack of its own, while its parent is suspended by the kernel (`CLONE_VFORK`). Until
//! it executes it makes system calls, reads what it was given and writes one number into it: it
//! allocates nothing, takes no lock and unwinds nothing.

#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr;

use crate::plan::Limits;
use crate::zygote::signal_filter::SignalFilter;

const STACK_BYTES: usize = 64 << 10;

/// An array of strings for `execve`.
#[derive(Debug)]
pub(crate) struct CStrings {
    _strings: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl CStrings {
    pub(crate) fn new(strings: Vec<CString>) -> Self {
        let pointers = strings.iter().map(|it| it.as_ptr());
        Self {
            pointers: pointers.chain([ptr::null()]).collect(),
            _strings: strings,
        }
    }
}

/// A command to start.
#[derive(Debug)]
pub(crate) struct Start<'a> {
    pub(crate) program: &'a CString,
    pub(crate) words: &'a CStrings,
    pub(crate) environment: &'a CStrings,
    pub(crate) input: RawFd,
    pub(crate) output: RawFd,
    pub(crate) errors: RawFd,
    pub(crate) limits: Limits,
    /// Whether it stops for its parent as soon as it is executed.
    pub(crate) traced: bool,
    /// Whether it dies with its parent.
    pub(crate) dies_with_parent: bool,
    /// Descriptors that it inherits, and the numbers that they get.
    pub(crate) inherited: &'a [(RawFd, RawFd)],
    /// Whether its libraries lie in the middle of the address space instead of at its top, as in a
    /// recording: there is room on both sides then for code that is jumped to.
    pub(crate) libraries_low: bool,
    /// Ends it when it signals what it must not.
    pub(crate) filter: &'a SignalFilter,
}

/// The stack of children, one after another.
#[derive(Debug)]
pub(crate) struct ChildStack(Box<[MaybeUninit<u128>]>);

impl ChildStack {
    pub(crate) fn new() -> Self {
        Self(Box::new_uninit_slice(STACK_BYTES / size_of::<u128>()))
    }
}

struct Shared<'a> {
    start: &'a Start<'a>,
    parent: i32,
    errno: c_int,
}

/// Starts a command and returns its process id; the error is that of executing it.
pub(crate) fn start(start: &Start<'_>, stack: &mut ChildStack) -> io::Result<i32> {
    let mut shared = Shared {
        start,
        // SAFETY: no arguments, no effect.
        parent: unsafe { libc::getpid() },
        errno: 0,
    };
    let top = stack.0.as_mut_ptr_range().end.cast::<c_void>();
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack is 16-byte aligned, is used by one child at a time, and outlives it, as does
    // `shared`: this thread continues only when the child has executed or ended.
    let pid = unsafe { libc::clone(child, top, flags, (&raw mut shared).cast()) };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the child wrote it, if at all, before this thread continued; the compiler must not assume
    // that it is still 0.
    let errno = unsafe { (&raw const shared.errno).read_volatile() };
    if errno != 0 {
        super::system::wait(pid, true)?;
        return Err(io::Error::from_raw_os_error(errno));
    }
    Ok(pid)
}

extern "C" fn child(argument: *mut c_void) -> c_int {
    let shared = argument.cast::<Shared<'_>>();
    // SAFETY: `start` passed a pointer to its local, and waits.
    let (start, parent) = unsafe { ((*shared).start, (*shared).parent) };
    let errno = execute(start, parent);
    // SAFETY: `start` waits until this process has ended, so the pointer is still to its local.
    unsafe {
        (&raw mut (*shared).errno).write_volatile(errno);
        libc::_exit(127)
    }
}

/// Returns only if it fails.
fn execute(start: &Start<'_>, parent: i32) -> c_int {
    // SAFETY: system calls on numbers, on locals and on strings that the parent keeps.
    unsafe {
        libc::setsid();
        for (from, to) in [(start.input, 0), (start.output, 1), (start.errors, 2)] {
            if libc::dup2(from, to) < 0 {
                return *libc::__errno_location();
            }
        }
        for (from, to) in start.inherited {
            // The duplicate does not close on exec.
            if libc::dup2(*from, *to) < 0 {
                return *libc::__errno_location();
            }
        }
        if start.libraries_low {
            let personality = libc::personality(0xffff_ffff);
            let low = (personality | libc::ADDR_COMPAT_LAYOUT).cast_unsigned();
            if personality < 0 || libc::personality(u64::from(low)) < 0 {
                return *libc::__errno_location();
            }
        }
        if start.dies_with_parent {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            // The kernel sends no signal if the parent died before the line above.
            if libc::getppid() != parent {
                return libc::EINTR;
            }
        }
        let limits = [
            (libc::RLIMIT_AS, start.limits.memory_bytes),
            (libc::RLIMIT_FSIZE, start.limits.file_bytes),
        ];
        for (resource, limit) in limits {
            if let Some(limit) = limit {
                let limit = libc::rlimit {
                    rlim_cur: limit,
                    rlim_max: limit,
                };
                if libc::setrlimit(resource, &raw const limit) < 0 {
                    return *libc::__errno_location();
                }
            }
        }
        // Rust ignores this signal, and the child would inherit that.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let mut none = MaybeUninit::<libc::sigset_t>::zeroed();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
        install(&start.filter.program());
        if start.traced && libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) < 0 {
            return *libc::__errno_location();
        }
        libc::execve(
            start.program.as_ptr(),
            start.words.pointers.as_ptr(),
            start.environment.pointers.as_ptr(),
        );
        *libc::__errno_location()
    }
}

/// Installs a filter for this process and what it executes. Where the kernel has no filters, there is none.
///
/// # Safety
///
/// The program is one that the caller keeps until the call returns.
unsafe fn install(program: &libc::sock_fprog) {
    // SAFETY: system calls on numbers, and on a program that the kernel copies.
    unsafe {
        let set = || {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW,
                ptr::from_ref(program),
            )
        };
        if set() != 0 {
            // Without rights of its own, a process may filter only what gains none either.
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            set();
        }
    }
}
