//! Ctrl-C, SIGTERM and SIGHUP: the one place that installs handlers for them.
//!
//! - [`watch`] notes an interruption instead of ending the process, so that everything can be ended and removed
//!   first. A second one kills the process.
//! - A `Forwarder` lives as long as a recording. It passes interruptions on to the target, so that the trace is
//!   still finished. A signal from the terminal goes to the whole foreground process group, of which the target is
//!   a member: it is not passed on.
//!
//! Signals that powerfail was started to ignore stay ignored.
//!
//! # Safety
//!
//! The handler stores to atomics and calls `signal`, which is allowed in a handler, as `send` is, which that of [`type_into`] calls. Handlers are exchanged under a
//! lock, and those that a forwarder has replaced come back with the last one.

#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::os::fd::IntoRawFd as _;
use std::os::unix::net::UnixStream;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};

use rustix::process::Signal;

/// The signals that a forwarder passes on.
const FORWARDED: [libc::c_int; 2] = [libc::SIGINT, libc::SIGTERM];
/// The signals that are noted.
const WATCHED: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// How many of each came so far: all, and those that the target did not get by itself.
static ARRIVED: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];
static TO_FORWARD: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];

/// How many of them the last forwarder has seen. What came later is for the next one.
static SEEN: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];

/// How many forwarders there are.
static FORWARDERS: AtomicUsize = AtomicUsize::new(0);

/// The handlers that forwarders have replaced.
static REPLACED: Mutex<Vec<(libc::c_int, libc::sigaction)>> = Mutex::new(Vec::new());

extern "C" fn handler(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    INTERRUPTED.store(true, Ordering::Relaxed);
    let place = FORWARDED.iter().position(|known| *known == signal);
    if let Some(place) = place {
        ARRIVED[place].fetch_add(1, Ordering::Relaxed);
        // SAFETY: the kernel gives a handler with SA_SIGINFO a valid pointer.
        let from_terminal = unsafe { (*info).si_code } == libc::SI_KERNEL;
        if !from_terminal {
            TO_FORWARD[place].fetch_add(1, Ordering::Relaxed);
        }
    }
    if place.is_none() || FORWARDERS.load(Ordering::Relaxed) == 0 {
        // A second one kills the process.
        // SAFETY: setting the default action is allowed in a handler.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// From now on an interruption is noted instead of ending the process at once.
pub fn watch() {
    for signal in WATCHED {
        install(signal);
    }
}

/// Whether an interruption was noted.
pub fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

extern "C" fn nothing(_signal: libc::c_int) {}

/// From now on Ctrl-C is for the program that runs in the foreground: a debugger. A handler that does nothing is
/// installed, because the program would inherit an ignored signal.
pub fn leave_to_child() {
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGINT, nothing as *const () as libc::sighandler_t) };
}

/// The terminal of a guest.
static TERMINAL: AtomicI32 = AtomicI32::new(-1);

extern "C" fn type_it(_signal: libc::c_int) {
    static CTRL_C: u8 = 3;
    let terminal = TERMINAL.load(Ordering::Relaxed);
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: a handler may send, and it leaves the number of the last error as it was. The socket stays open.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        libc::send(terminal, (&raw const CTRL_C).cast(), 1, flags);
        *errno = before;
    }
}

/// From now on Ctrl-C is typed into the terminal of a guest, which is behind this socket.
pub fn type_into(terminal: UnixStream) {
    TERMINAL.store(terminal.into_raw_fd(), Ordering::Relaxed);
    // SAFETY: the handler only sends.
    unsafe { libc::signal(libc::SIGINT, type_it as *const () as libc::sighandler_t) };
}

/// Passes interruptions on to the target of a recording while it lives.
#[derive(Debug)]
pub(crate) struct Forwarder {
    is_active: bool,
    arrived: [u32; 2],
    forwarded: [u32; 2],
    /// Signals that came before there was a target: it gets them all, those from the terminal too.
    early: [bool; 2],
}

impl Forwarder {
    /// Begins to catch interruptions, unless signals are not to be forwarded.
    pub(crate) fn new(is_active: bool) -> Self {
        let mut forwarder = Self {
            is_active,
            arrived: [0; 2],
            forwarded: [0; 2],
            early: [false; 2],
        };
        if !is_active {
            return forwarder;
        }
        let mut replaced = REPLACED
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if FORWARDERS.fetch_add(1, Ordering::Relaxed) == 0 {
            let before = FORWARDED
                .into_iter()
                .filter_map(|signal| Some((signal, install(signal)?)));
            replaced.extend(before);
            forwarder.arrived = counts(&SEEN);
        } else {
            forwarder.arrived = counts(&ARRIVED);
        }
        forwarder
    }

    /// The target was started: it gets what has come until now, and from now on what does not reach it by itself.
    pub(crate) fn target_started(&mut self) {
        self.forwarded = counts(&TO_FORWARD);
        let now = counts(&ARRIVED);
        self.early = [0, 1].map(|place| self.is_active && now[place] != self.arrived[place]);
    }

    /// The signals to pass on that came since the last call.
    pub(crate) fn pending(&mut self) -> impl Iterator<Item = Signal> + use<> {
        let mut pending = Vec::new();
        if !self.is_active {
            return pending.into_iter();
        }
        for (place, signal) in [Signal::INT, Signal::TERM].into_iter().enumerate() {
            let now = TO_FORWARD[place].load(Ordering::Relaxed);
            if std::mem::take(&mut self.early[place]) || now != self.forwarded[place] {
                self.forwarded[place] = now;
                pending.push(signal);
            }
        }
        pending.into_iter()
    }

    /// Whether any came, from the terminal or not, since the last call.
    pub(crate) fn interrupted(&mut self) -> bool {
        if !self.is_active {
            return false;
        }
        let now = counts(&ARRIVED);
        std::mem::replace(&mut self.arrived, now) != now
    }
}

fn counts(counters: &[AtomicU32; 2]) -> [u32; 2] {
    counters
        .each_ref()
        .map(|counter| counter.load(Ordering::Relaxed))
}

/// Installs the handler, unless the signal is ignored. Returns the action that it replaces.
fn install(signal: libc::c_int) -> Option<libc::sigaction> {
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with a null pointer the call only writes the present action to a local of its type.
    let before = unsafe {
        if libc::sigaction(signal, ptr::null(), before.as_mut_ptr()) != 0 {
            return None;
        }
        before.assume_init()
    };
    if before.sa_sigaction == libc::SIG_IGN {
        return None;
    }
    // SAFETY: all-zero is a valid `sigaction`; the handler has the signature that SA_SIGINFO asks for.
    unsafe {
        let mut ours = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        ours.sa_sigaction = handler as extern "C" fn(_, _, _) as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        (libc::sigaction(signal, &raw const ours, ptr::null_mut()) == 0).then_some(before)
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        if !self.is_active {
            return;
        }
        let mut replaced = REPLACED
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if FORWARDERS.fetch_sub(1, Ordering::Relaxed) == 1 {
            for (seen, arrived) in SEEN.iter().zip(&ARRIVED) {
                seen.store(arrived.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            for (signal, before) in replaced.drain(..) {
                // SAFETY: restores the action that `install` has found.
                unsafe {
                    libc::sigaction(signal, &raw const before, ptr::null_mut());
                }
            }
        }
    }
}
