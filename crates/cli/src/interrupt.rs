//! Ctrl-C and SIGTERM while recoveries run: everything is ended and removed, then powerfail ends.
//!
//! # Safety
//!
//! The handler stores to an atomic and nothing else.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn handler(signal: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
    // The second time is meant.
    // SAFETY: setting the default action is allowed in a handler.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// From now on an interruption is noted instead of ending the process at once.
pub(crate) fn watch() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler keeps to what the module's header says; what was ignored stays ignored.
        unsafe {
            let before = libc::signal(signal, libc::SIG_IGN);
            if before != libc::SIG_IGN {
                libc::signal(signal, handler as *const () as libc::sighandler_t);
            }
        }
    }
}

/// What was noted so far was no interruption.
pub(crate) fn forget() {
    INTERRUPTED.store(false, Ordering::Relaxed);
    watch();
}

/// Whether to stop.
pub(crate) fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

extern "C" fn nothing(_signal: libc::c_int) {}

/// From now on Ctrl-C is for the program that runs in the foreground: a debugger. A handler and not
/// "ignore", which the program would inherit.
pub(crate) fn leave_to_child() {
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGINT, nothing as *const () as libc::sighandler_t) };
}
