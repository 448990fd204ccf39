//! `sigaction`, `signal`, signal masks and `sigaltstack`.
//!
//! The target may set and read what it likes; what the kernel gets is such that the signals of the runtime always
//! reach the runtime (`platform/signals.rs`).
//!
//! # Safety
//!
//! The functions have the contracts of the C functions: pointers are null or valid. The signal mask of the target
//! is kept in private memory of the calling thread.
#![allow(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{c_int, c_void};

use crate::host;
use crate::platform::frame::Frame;
use crate::platform::handler_stacks::StackDescription;
use crate::platform::signals::TargetAction;
use crate::platform::{handler_stacks, signals, sys};
use crate::record::thread_private;

use super::interpose::{is_watched, original, result};

/// `struct sigaction` of the C library.
#[repr(C)]
struct Action {
    handler: usize,
    mask: [u64; 16],
    flags: c_int,
    restorer: usize,
}

const SA_SIGINFO: c_int = 4;
const SA_ONSTACK: c_int = 0x0800_0000;

impl Action {
    const NONE: Self = Self {
        handler: 0,
        mask: [0; 16],
        flags: 0,
        restorer: 0,
    };

    /// What the target had wished, as it gave it.
    fn wished(wished: TargetAction) -> Self {
        let mut mask = [0; 16];
        mask[0] = wished.mask;
        Self {
            handler: wished.handler,
            mask,
            flags: wished.flags as c_int,
            restorer: 0,
        }
    }

    /// The action that the kernel gets in its place.
    fn stand_in(&self) -> Self {
        let is_function = self.handler > 1;
        let mut mask = self.mask;
        mask[0] &= !signals::OURS;
        if is_function && self.flags & SA_ONSTACK != 0 {
            // On our stack first: no other handler may come in between.
            mask[0] = u64::MAX;
        }
        Self {
            handler: if is_function {
                STAND_IN as *const () as usize
            } else {
                self.handler
            },
            mask,
            flags: if is_function {
                self.flags | SA_SIGINFO
            } else {
                self.flags
            },
            restorer: self.restorer,
        }
    }
}

const STAND_IN: extern "C" fn(c_int, *mut c_void, *mut c_void) = signals::stand_in;

#[unsafe(no_mangle)]
extern "C" fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    type Sigaction = extern "C" fn(c_int, *const Action, *mut Action) -> c_int;
    let set = original!("sigaction" as Sigaction);
    let number = signal as usize;
    if !is_watched() || !(1..65).contains(&number) {
        return set(signal, new, old);
    }
    let is_ours = signals::OURS & 1 << (number - 1) != 0 && signals::are_installed();
    // SAFETY: the target gives a valid action or none.
    let wanted = unsafe { new.as_ref() };
    let wished = signals::target_action(number);
    let mut before = Action::wished(wished);
    if let Some(wanted) = wanted
        && (is_ours || wanted.handler > 1)
    {
        // Before a stand-in for it can run.
        signals::set_target_action(number, target_action_of(wanted));
    }
    if !is_ours {
        let stand_in = wanted.map(Action::stand_in);
        let new = stand_in
            .as_ref()
            .map_or(core::ptr::null(), core::ptr::from_ref);
        let mut known = Action::NONE;
        let done = set(signal, new, &raw mut known);
        if done != 0 {
            return done;
        }
        if known.handler != STAND_IN as *const () as usize {
            before = known;
        }
    }
    if !old.is_null() {
        // SAFETY: the target gives a place for an action.
        unsafe { old.write(before) };
    }
    0
}

fn target_action_of(action: &Action) -> TargetAction {
    TargetAction {
        handler: action.handler,
        flags: action.flags as u64,
        mask: action.mask[0],
    }
}

#[unsafe(no_mangle)]
extern "C" fn signal(number: c_int, handler: usize) -> usize {
    const SA_RESTART: c_int = 0x1000_0000;
    const SIG_ERR: usize = usize::MAX;
    let new = Action {
        handler,
        mask: [0; 16],
        flags: SA_RESTART,
        restorer: 0,
    };
    let mut old = Action::NONE;
    if sigaction(number, &raw const new, &raw mut old) == 0 {
        old.handler
    } else {
        SIG_ERR
    }
}

type MaskFunction = extern "C" fn(c_int, *const u64, *mut u64) -> c_int;

fn change_mask(change: MaskFunction, how: c_int, set: *const u64, old: *mut u64) -> c_int {
    const BLOCK: c_int = 0;
    const UNBLOCK: c_int = 1;
    let own = if is_watched() {
        thread_private::own()
    } else {
        None
    };
    let Some(own) = own else {
        return change(how, set, old);
    };
    // SAFETY: the state is this thread's; a signal set of the C library has 16 words.
    unsafe {
        let before = (*own).blocked;
        let (done, blocked) = if set.is_null() {
            (change(how, set, old), before)
        } else {
            let mut copy = set.cast::<[u64; 16]>().read();
            let ours = copy[0] & signals::OURS;
            copy[0] &= !signals::OURS;
            let blocked = match how {
                BLOCK => before | ours,
                UNBLOCK => before & !ours,
                _ => ours,
            };
            (change(how, copy.as_ptr(), old), blocked)
        };
        if done == 0 {
            (*own).blocked = blocked;
            if !old.is_null() {
                *old = *old & !signals::OURS | before;
            }
        }
        done
    }
}

#[unsafe(no_mangle)]
extern "C" fn sigprocmask(how: c_int, set: *const u64, old: *mut u64) -> c_int {
    change_mask(original!("sigprocmask" as MaskFunction), how, set, old)
}

#[unsafe(no_mangle)]
extern "C" fn pthread_sigmask(how: c_int, set: *const u64, old: *mut u64) -> c_int {
    change_mask(original!("pthread_sigmask" as MaskFunction), how, set, old)
}

#[unsafe(no_mangle)]
extern "C" fn sigaltstack(new: *const StackDescription, old: *mut StackDescription) -> c_int {
    if is_watched() {
        // SAFETY: by the contract of `sigaltstack` both pointers are null or point to a `stack_t`.
        if let Some(done) = unsafe { handler_stacks::exchange(new, old) } {
            return result(done) as c_int;
        }
    }
    let arguments = [new as usize, old as usize, 0, 0, 0, 0];
    // SAFETY: the arguments are those of the target's call, and the kernel checks both addresses.
    result(unsafe { sys::call(sys::number::SIGALTSTACK, arguments) }) as c_int
}

/// `struct sigaction` of the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// `rt_sigaction`, made with an instruction of the target's own.
///
/// # Safety
/// The arguments are those of the target.
pub(crate) unsafe fn raw_action(arguments: [usize; 6]) -> Option<isize> {
    let [number, new, old, ..] = arguments;
    if !(1..65).contains(&number) || !signals::are_installed() {
        return None;
    }
    let is_ours = signals::OURS & 1 << (number - 1) != 0;
    // SAFETY: by the contract the target gives a valid action or none.
    let wanted = unsafe { (new as *const KernelAction).as_ref() };
    let wished = signals::target_action(number);
    let mut before = KernelAction {
        handler: wished.handler,
        flags: wished.flags,
        restorer: 0,
        mask: wished.mask,
    };
    if let Some(wanted) = wanted
        && (is_ours || wanted.handler > 1)
        && host::owns_memory()
    {
        // Before a stand-in for it can run.
        let wished = TargetAction {
            handler: wanted.handler,
            flags: wanted.flags,
            mask: wanted.mask,
        };
        signals::set_target_action(number, wished);
    }
    if !is_ours {
        let stand_in = wanted.map(|wanted| {
            let mut mask = [0; 16];
            mask[0] = wanted.mask;
            let action = Action {
                handler: wanted.handler,
                mask,
                flags: wanted.flags as c_int,
                restorer: wanted.restorer,
            };
            let stand_in = action.stand_in();
            KernelAction {
                handler: stand_in.handler,
                flags: wanted.flags | u64::from(stand_in.flags.cast_unsigned()),
                restorer: stand_in.restorer,
                mask: stand_in.mask[0],
            }
        });
        let new = stand_in
            .as_ref()
            .map_or(0, |it| core::ptr::from_ref(it) as usize);
        let mut known = before;
        let arguments = [number, new, &raw mut known as usize, size_of::<u64>(), 0, 0];
        // SAFETY: the kernel reads one action and writes one, both of this stack.
        let done = unsafe { sys::call(sys::number::RT_SIGACTION, arguments) };
        if done != 0 {
            return Some(done);
        }
        if known.handler != STAND_IN as *const () as usize {
            before = known;
        }
    }
    if old != 0 {
        // SAFETY: by the contract the target gives a place for an action.
        unsafe { (old as *mut KernelAction).write(before) };
    }
    Some(0)
}

/// `rt_sigprocmask`, made with an instruction of the target's own: changes the mask that holds when the handler that
/// runs now returns to `frame`.
///
/// # Safety
/// The arguments are those of the target, which was interrupted at `frame`.
pub(crate) unsafe fn raw_mask(frame: &Frame, arguments: [usize; 6]) -> Option<isize> {
    const BLOCK: usize = 0;
    const UNBLOCK: usize = 1;
    const SET: usize = 2;
    const EINVAL: isize = 22;
    let [how, set, old, ..] = arguments;
    let own = thread_private::own()?;
    // SAFETY: by the contract both pointers are null or point to a set of 64 signals; the state is this thread's.
    unsafe {
        let before = frame.signal_mask() & !signals::OURS | (*own).blocked;
        if let Some(set) = (set as *const u64).as_ref() {
            let blocked = match how {
                BLOCK => before | *set,
                UNBLOCK => before & !*set,
                SET => *set,
                _ => return Some(-EINVAL),
            };
            (*own).blocked = blocked & signals::OURS;
            frame.set_signal_mask(blocked & !signals::OURS);
        }
        if let Some(old) = (old as *mut u64).as_mut() {
            *old = before;
        }
    }
    Some(0)
}
