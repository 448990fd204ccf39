//! Passes interrupts on to the target instead of dying of them, so that the trace is still finished.
//!
//! An interrupt from the terminal goes to the whole foreground process group, which includes the target, and is
//! not passed on. Signals that powerfail was started to ignore stay ignored.
//!
//! # Safety
//!
//! The handler only adds to atomics. Handlers are exchanged under a lock, and the old ones come back
//! with the last [`Forwarder`].

#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::Signal;

const SIGNALS: [libc::c_int; 2] = [libc::SIGINT, libc::SIGTERM];

/// How many of each signal came so far: all, and those that the target did not receive itself.
static ARRIVED: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];
static TO_FORWARD: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];

struct Installed {
    users: usize,
    before: Vec<(libc::c_int, libc::sigaction)>,
}

static INSTALLED: Mutex<Installed> = Mutex::new(Installed {
    users: 0,
    before: Vec::new(),
});

extern "C" fn handler(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    let Some(place) = SIGNALS.iter().position(|known| *known == signal) else {
        return;
    };
    ARRIVED[place].fetch_add(1, Ordering::Relaxed);
    // SAFETY: the kernel gives a handler with SA_SIGINFO a valid pointer.
    let from_terminal = unsafe { (*info).si_code } == libc::SI_KERNEL;
    if !from_terminal {
        TO_FORWARD[place].fetch_add(1, Ordering::Relaxed);
    }
}

/// While it lives, interrupts do not end powerfail.
#[derive(Debug)]
pub(crate) struct Forwarder {
    catches: bool,
    arrived: [u32; 2],
    forwarded: [u32; 2],
}

impl Forwarder {
    /// Begins to catch interrupts, unless the caller handles them.
    pub(crate) fn new(catches: bool) -> Self {
        if !catches {
            return Self {
                catches,
                arrived: [0; 2],
                forwarded: [0; 2],
            };
        }
        let mut installed = INSTALLED
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if installed.users == 0 {
            for signal in SIGNALS {
                if let Some(before) = exchange(signal) {
                    installed.before.push((signal, before));
                }
            }
        }
        installed.users += 1;
        let count =
            |counts: &[AtomicU32; 2]| counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        Self {
            catches,
            arrived: count(&ARRIVED),
            forwarded: count(&TO_FORWARD),
        }
    }

    /// The signals to pass on that came since the last call.
    pub(crate) fn pending(&mut self) -> impl Iterator<Item = Signal> + use<> {
        let mut found = Vec::new();
        if !self.catches {
            return found.into_iter();
        }
        for (place, signal) in [Signal::INT, Signal::TERM].into_iter().enumerate() {
            let now = TO_FORWARD[place].load(Ordering::Relaxed);
            if now != self.forwarded[place] {
                self.forwarded[place] = now;
                found.push(signal);
            }
        }
        found.into_iter()
    }

    /// Whether any signal came since the last call.
    pub(crate) fn interrupted(&mut self) -> bool {
        if !self.catches {
            return false;
        }
        let now = ARRIVED
            .each_ref()
            .map(|count| count.load(Ordering::Relaxed));
        std::mem::replace(&mut self.arrived, now) != now
    }
}

/// Installs the handler, unless the signal is ignored. Returns the previous handler.
fn exchange(signal: libc::c_int) -> Option<libc::sigaction> {
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with a null pointer the call only writes what is installed to a local of its type.
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
        if !self.catches {
            return;
        }
        let mut installed = INSTALLED
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        installed.users -= 1;
        if installed.users == 0 {
            for (signal, before) in installed.before.drain(..) {
                // SAFETY: restores what the call above found.
                unsafe {
                    libc::sigaction(signal, &raw const before, ptr::null_mut());
                }
            }
        }
    }
}
