//! Which handler a signal runs. Faults and breakpoints come to the runtime first; what is not the runtime's goes to
//! the target's handler, which sees the state that it would have seen without the runtime.
//!
//! # Safety
//!
//! Handlers that are installed keep the rules of this crate (`lib.rs`). A handler of the target is called with what
//! the kernel has passed to ours, on a stack that has room for it. Blocks that are saved and restored belong to the
//! calling thread.
#![allow(unsafe_code, reason = "installs and calls handlers")]

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use powerfail_protocol::{SCRATCH_SLOTS, ThreadBlock};

use crate::host;
use crate::platform::frame::{Frame, Greg, Info};
use crate::platform::{handler_stacks, sys};
use crate::record::{faults, thread_private, threads};

pub(crate) const SIGTRAP: usize = 5;
pub(crate) const SIGBUS: usize = 7;
pub(crate) const SIGSEGV: usize = 11;
const SIGNALS: usize = 65;

const SA_SIGINFO: u64 = 4;
const SA_RESTORER: u64 = 0x0400_0000;
const SA_ONSTACK: u64 = 0x0800_0000;
const SIG_DFL: usize = 0;
const SIG_IGN: usize = 1;

/// Signals that must always reach us.
pub(crate) const OURS: u64 = 1 << (SIGTRAP - 1) | 1 << (SIGSEGV - 1);

/// The action that the target has set for a signal: what would run without the runtime.
struct AtomicTargetAction {
    handler: AtomicUsize,
    flags: AtomicU64,
    mask: AtomicU64,
}

static TARGET_ACTIONS: [AtomicTargetAction; SIGNALS] = [const {
    AtomicTargetAction {
        handler: AtomicUsize::new(SIG_DFL),
        flags: AtomicU64::new(0),
        mask: AtomicU64::new(0),
    }
}; SIGNALS];
static INSTALLED: AtomicBool = AtomicBool::new(false);
/// Whether the target has ever set a handler.
static HANDLED: AtomicBool = AtomicBool::new(false);

/// How the kernel describes the action of a signal.
#[repr(C)]
struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

core::arch::global_asm!(
    ".local powerfail_restore",
    "powerfail_restore:",
    "mov rax, 15",
    "syscall",
);

unsafe extern "C" {
    fn powerfail_restore();
}

fn set_action(signal: usize, handler: usize) {
    let action = KernelAction {
        handler,
        flags: SA_SIGINFO | SA_RESTORER | SA_ONSTACK,
        restorer: powerfail_restore as *const () as usize,
        mask: u64::MAX,
    };
    let arguments = [signal, &raw const action as usize, 0, 8, 0, 0];
    // SAFETY: the action is well-formed; the handler keeps the rules of this crate.
    unsafe { sys::call(sys::number::RT_SIGACTION, arguments) };
}

pub(crate) type Handler = extern "C" fn(i32, *mut c_void, *mut c_void);

/// Takes over breakpoints and faults, with handlers that keep the rules of this crate.
pub(crate) fn install_handlers(on_breakpoint: Handler, on_fault: Handler) {
    if INSTALLED.swap(true, Ordering::AcqRel) {
        return;
    }
    for signal in [SIGTRAP, SIGSEGV] {
        let mut old = KernelAction {
            handler: 0,
            flags: 0,
            restorer: 0,
            mask: 0,
        };
        let arguments = [signal, 0, &raw mut old as usize, 8, 0, 0];
        // SAFETY: the kernel writes one action, to this stack.
        unsafe { sys::call(sys::number::RT_SIGACTION, arguments) };
        // An action that the target has set before has a stand-in, and is known.
        if old.handler != stand_in as *const () as usize {
            set_target_action(
                signal,
                TargetAction {
                    handler: old.handler,
                    flags: old.flags,
                    mask: old.mask,
                },
            );
        }
    }
    set_action(SIGTRAP, on_breakpoint as *const () as usize);
    set_action(SIGSEGV, on_fault as *const () as usize);
    // The process that started the target may have blocked them.
    sys::unblock_signals(OURS);
}

/// Whether the signals that we need are ours.
pub(crate) fn are_installed() -> bool {
    INSTALLED.load(Ordering::Acquire)
}

/// Whether a handler of the target may run.
pub(crate) fn target_has_handlers() -> bool {
    HANDLED.load(Ordering::Relaxed)
}

/// The action that the target has set for a signal, as a value.
#[derive(Clone, Copy)]
pub(crate) struct TargetAction {
    pub(crate) handler: usize,
    pub(crate) flags: u64,
    pub(crate) mask: u64,
}

/// Remembers the action that the target sets for a signal; returns the one before.
pub(crate) fn set_target_action(signal: usize, wished: TargetAction) -> TargetAction {
    let before = target_action(signal);
    if wished.handler > SIG_IGN {
        HANDLED.store(true, Ordering::Relaxed);
    }
    let target_action = &TARGET_ACTIONS[signal];
    target_action.flags.store(wished.flags, Ordering::Relaxed);
    target_action.mask.store(wished.mask, Ordering::Relaxed);
    target_action
        .handler
        .store(wished.handler, Ordering::Release);
    before
}

/// The action that the target has set for a signal.
pub(crate) fn target_action(signal: usize) -> TargetAction {
    let target_action = &TARGET_ACTIONS[signal];
    TargetAction {
        handler: target_action.handler.load(Ordering::Acquire),
        flags: target_action.flags.load(Ordering::Relaxed),
        mask: target_action.mask.load(Ordering::Relaxed),
    }
}

/// A fault or breakpoint that is the target's own, or a signal that was sent by a process or thread.
pub(crate) fn deliver(signal: usize, info: *mut c_void, context: *mut c_void) {
    const SA_RESETHAND: u64 = 0x8000_0000;
    let frame = Frame::new(context);
    let is_fault = Info::new(info).is_fault();
    if is_fault && host::attached() {
        faults::show_as_of_target(&frame, &Info::new(info));
    }
    let wished = target_action(signal);
    if wished.handler <= SIG_IGN {
        if !is_fault && wished.handler == SIG_IGN {
            return;
        }
        // The default action, at the instruction that caused it.
        let action = KernelAction {
            handler: SIG_DFL,
            flags: 0,
            restorer: 0,
            mask: 0,
        };
        let arguments = [signal, &raw const action as usize, 0, 8, 0, 0];
        // SAFETY: the default action.
        unsafe { sys::call(sys::number::RT_SIGACTION, arguments) };
        if !is_fault {
            sys::raise(signal);
        } else if signal == SIGTRAP {
            frame.set(Greg::Rip, frame.get(Greg::Rip).wrapping_sub(1));
        }
        return;
    }
    if wished.flags & SA_RESETHAND != 0 {
        TARGET_ACTIONS[signal]
            .handler
            .store(SIG_DFL, Ordering::Release);
    }
    call_handler(signal, info, context, wished);
}

/// Stands in for every handler of the target: keeps what emitted code had in its slots.
pub(crate) extern "C" fn stand_in(signal: i32, info: *mut c_void, context: *mut c_void) {
    if host::attached() && signal as usize == SIGBUS && Info::new(info).is_fault() {
        faults::show_as_of_target(&Frame::new(context), &Info::new(info));
    }
    let wished = target_action(signal as usize);
    call_handler(signal as usize, info, context, wished);
}

fn call_handler(signal: usize, info: *mut c_void, context: *mut c_void, wished: TargetAction) {
    let was_masked = thread_private::set_masked(false);
    if host::attached() {
        faults::leave_store(&Frame::new(context));
    }
    if handler_stacks::must_move(context) {
        // SAFETY: the three are what the kernel passed to our handler for this signal, and nothing below is used
        // again.
        unsafe { handler_stacks::move_to_target(signal, info, context, wished) };
    }
    let frame = Frame::new(context);
    if OURS & 1 << (signal - 1) != 0 {
        sys::restore_signals(handler_stacks::mask_in_handler(signal, &frame, wished));
    } else {
        // The target may have waited with a mask that blocks ours, as in `sigsuspend`.
        sys::unblock_signals(OURS);
    }
    let block = threads::block();
    let kept = block.map(|block| Kept::save(block, &frame));
    // SAFETY: the handler is what the target gave for this signal; if it takes one argument only,
    // the others do not matter to it.
    unsafe {
        let handler: extern "C" fn(i32, *mut c_void, *mut c_void) =
            core::mem::transmute(wished.handler);
        handler(signal as i32, info, context);
    }
    thread_private::set_masked(was_masked);
    frame.set_signal_mask(frame.signal_mask() & !OURS);
    if let (Some(block), Some(kept)) = (block, kept) {
        kept.restore(block);
    }
}

/// What emitted code had in progress when a signal came.
pub(crate) struct Kept {
    scratch: [u64; SCRATCH_SLOTS],
    slow_stack_top: u64,
    /// Which of our signals the target believes to have blocked.
    blocked: u64,
}

impl Kept {
    pub(crate) fn save(block: *mut ThreadBlock, frame: &Frame) -> Self {
        // SAFETY: `block` is the block of the calling thread, and only that thread and its handlers use it.
        unsafe {
            let kept = Self {
                scratch: (*block).scratch,
                slow_stack_top: (*block).slow_stack_top,
                blocked: thread_private::own().map_or(0, |own| (*own).blocked),
            };
            (*block).signal_depth += 1;
            threads::read_clock(block);
            let (stack, top) = (frame.get(Greg::Rsp), kept.slow_stack_top);
            (*block).slow_stack_top = threads::slow_stack_below(stack, top);
            kept
        }
    }

    pub(crate) fn restore(self, block: *mut ThreadBlock) {
        // SAFETY: `block` is the block of the calling thread, and only that thread and its handlers use it.
        unsafe {
            (*block).signal_depth -= 1;
            (*block).slow_stack_top = self.slow_stack_top;
            (*block).scratch = self.scratch;
            // What was interrupted continues later than what the handler has recorded.
            threads::read_clock(block);
            if let Some(own) = thread_private::own() {
                (*own).blocked = self.blocked;
            }
        }
    }
}
