//! Breakpoints: at system calls of the C library, and behind an instruction that runs alone.
//!
//! # Safety
//!
//! `on_breakpoint` is called by the kernel only. The state is used only while this thread has the turn.
#![allow(unsafe_code, reason = "handles breakpoints")]

use core::ffi::c_void;
use std::collections::BTreeSet;

use powerfail_patch::Classifier;

use crate::libc::{interpose, system_calls};
use crate::patching::code;
use crate::platform::frame::{Frame, Greg, Info};
use crate::platform::lock::Lock;
use crate::platform::signals::{self, OURS};

use super::pool_calls::{self, Call};
use super::{load_stacks, lock_owners, ordering, step, string_functions, turn};

/// Functions of the C library that take a path.
pub(crate) const PATH_FUNCTIONS: [&str; 30] = [
    "open64\0",
    "openat64\0",
    "open\0",
    "openat\0",
    "creat64\0",
    "stat64\0",
    "lstat64\0",
    "fstatat64\0",
    "statx\0",
    "access\0",
    "euidaccess\0",
    "faccessat\0",
    "truncate64\0",
    "unlink\0",
    "unlinkat\0",
    "remove\0",
    "rename\0",
    "renameat\0",
    "renameat2\0",
    "readlink\0",
    "chmod\0",
    "chown\0",
    "__xstat64\0",
    "link\0",
    "linkat\0",
    "symlink\0",
    "symlinkat\0",
    "mkdir\0",
    "mkdirat\0",
    "rmdir\0",
];

/// Others that read from descriptors, or from memory.
///
/// What the C library does with all signals blocked must not be here: a breakpoint would end the process.
const FURTHER_FUNCTIONS: [&str; 4] = [
    "__read_nocancel\0",
    "__pread64_nocancel\0",
    "process_vm_readv\0",
    "process_vm_writev\0",
];

/// Where breakpoints stand for system calls.
static SYSTEM_CALLS: Lock<BTreeSet<u64>> = Lock::new(BTreeSet::new());

/// In a copy of the recovery that it has made itself.
pub(super) fn reset_after_fork() {
    SYSTEM_CALLS.reset_after_fork();
}

/// Puts breakpoints at all system calls that could concern a pool.
pub(super) fn watch_paths() {
    load_stacks::prepare();
    let names = PATH_FUNCTIONS
        .iter()
        .chain(&FURTHER_FUNCTIONS)
        .chain(&system_calls::FUNCTIONS);
    let mut classifier = Classifier::new();
    for name in names {
        let Some(address) = interpose::maybe_find(name) else {
            continue;
        };
        let Some((from, to)) = load_stacks::function_at(address) else {
            continue;
        };
        // SAFETY: functions of loaded modules are readable.
        let bytes = unsafe { code::view(from, to - from) };
        let mut found = Vec::new();
        classifier.scan(bytes, from, |scanned| {
            if scanned.is_system_call {
                found.push(scanned.address);
            }
        });
        for address in found {
            if SYSTEM_CALLS.with(|calls| calls.insert(address)) {
                code::replace(core::iter::once((address, &[code::BREAKPOINT][..])));
            }
        }
    }
    // The descriptor would be one that the recovery does not expect.
    code::reset_after_fork();
    string_functions::find_functions();
    lock_owners::find_functions();
}

/// Code was loaded or unloaded.
pub(crate) fn loaded_code() {
    load_stacks::prepare();
    ordering::prepare();
}

pub(super) extern "C" fn on_breakpoint(signal: i32, info: *mut c_void, context: *mut c_void) {
    const TRACE: i32 = 2;
    let frame = Frame::new(context);
    let what = Info::new(info);
    if !what.is_fault() {
        signals::deliver(signal as usize, info, context);
        return;
    }
    if what.code() == TRACE && step::runs_alone() {
        // SAFETY: who runs an instruction alone has the turn.
        let state = unsafe { turn::state() };
        state.end_step(&frame, true);
        let rearm = core::mem::take(&mut state.step.rearm);
        ordering::rearm(rearm);
        turn::leave();
        return;
    }
    let address = frame.get(Greg::Rip).wrapping_sub(1);
    if SYSTEM_CALLS.with(|calls| calls.contains(&address)) {
        make_system_call(&frame, address);
    } else if !ordering::at_breakpoint(&frame, address) {
        signals::deliver(signal as usize, info, context);
    }
}

/// Makes the system call that a breakpoint stands for.
fn make_system_call(frame: &Frame, address: u64) {
    let (number, arguments) = frame.system_call();
    let call = Call {
        number,
        arguments,
        code: step::registers_of(frame, address),
        mask: Some(frame.signal_mask() & !OURS),
    };
    let result = match pool_calls::perform_call(&call) {
        Some(result) => result,
        None => call.make(),
    };
    frame.finish_system_call(address, result);
}
