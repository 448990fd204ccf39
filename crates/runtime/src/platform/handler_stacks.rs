//! The stacks of handlers.
//!
//! Our handlers run on a stack of our own, which is what the kernel knows as the alternate one: so
//! they run when a stack has overflowed, however small an alternate stack the target has. What the
//! target gives to `sigaltstack` is remembered, and its handlers run where they would.
//!
//! To let a handler of the target run on its stack, the frame of the kernel is moved there, so that
//! nothing is left on ours: the handler may return, jump out, or be interrupted by ours again.
//!
//! # Safety
//!
//! Callers pass what the kernel has passed to the handler that is running. A frame is moved to a stack that the
//! target itself has named, below everything that is in use there; private memory belongs to the calling thread.
#![allow(unsafe_code, reason = "moves signal frames between stacks")]

use core::ffi::c_void;

use crate::platform::frame::{CONTEXT_LEN, Frame, Greg, Info};
use crate::platform::signals::{Kept, OURS, TargetAction};
use crate::platform::sys;
use crate::record::thread_private::{self, AlternateStack};
use crate::record::threads;
use crate::recovery;

const SA_ONSTACK: u64 = 0x0800_0000;
const SA_NODEFER: u64 = 0x4000_0000;
const RED_ZONE: u64 = 128;
const EPERM: isize = 1;
const EINVAL: isize = 22;
const ENOMEM: isize = 12;

/// `stack_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct StackDescription {
    start: u64,
    flags: u32,
    padding: u32,
    len: u64,
}

/// Handlers of the calling thread that ask for it run on this stack from now on.
pub(crate) fn use_own(start: u64, len: u64) {
    let stack = StackDescription {
        start,
        flags: 0,
        padding: 0,
        len,
    };
    let arguments = [&raw const stack as usize, 0, 0, 0, 0, 0];
    // SAFETY: the stack is the thread's own, and lives as long as the thread.
    unsafe { sys::call(sys::number::SIGALTSTACK, arguments) };
}

/// What `sigaltstack` does for the target. `None` if the thread is not ours to answer for.
///
/// # Safety
/// The pointers are what the target gave.
pub(crate) unsafe fn exchange(
    new: *const StackDescription,
    old: *mut StackDescription,
) -> Option<isize> {
    const ON_STACK: u32 = 1;
    const LEN_MIN: u64 = 2048;
    let own = thread_private::own()?;
    let here = &raw const own as u64;
    // SAFETY: by the contract both pointers are null or point to a `stack_t`; `own` is only used by this thread.
    unsafe {
        let before = (*own).alternate;
        let is_on_it = before.contains(here);
        if !new.is_null() {
            let wanted = *new;
            let flags = wanted.flags & 0xff;
            if is_on_it {
                return Some(-EPERM);
            }
            if flags & !(AlternateStack::DISABLED | ON_STACK) != 0 {
                return Some(-EINVAL);
            }
            let is_disabled = flags & AlternateStack::DISABLED != 0;
            if !is_disabled && wanted.len < LEN_MIN {
                return Some(-ENOMEM);
            }
            (*own).alternate = AlternateStack {
                start: if is_disabled { 0 } else { wanted.start },
                len: if is_disabled { 0 } else { wanted.len },
                flags: flags & AlternateStack::DISABLED,
            };
        }
        if !old.is_null() {
            *old = StackDescription {
                start: before.start,
                flags: before.flags | if is_on_it { ON_STACK } else { 0 },
                padding: 0,
                len: before.len,
            };
        }
    }
    Some(0)
}

/// Whether the target has given the calling thread a stack for handlers.
pub(crate) fn target_has_one() -> bool {
    // SAFETY: the state is this thread's.
    thread_private::own().is_some_and(|own| unsafe { (*own).alternate }.is_enabled())
}

/// The signals that are blocked while a handler of the target runs.
pub(crate) fn mask_in_handler(signal: usize, frame: &Frame, wished: TargetAction) -> u64 {
    let itself = if wished.flags & SA_NODEFER == 0 {
        1 << (signal - 1)
    } else {
        0
    };
    (frame.signal_mask() | wished.mask | itself) & !OURS
}

/// What lies above a frame that was moved.
#[repr(C)]
struct Above {
    kept: Option<Kept>,
    mask: u64,
}

/// A frame as the kernel makes it: return address, context, information.
const FRAME_LEN: usize = 8 + CONTEXT_LEN + Info::LEN;

core::arch::global_asm!(
    ".local powerfail_return",
    "powerfail_return:",
    // The stack pointer is that of the context, and what is below it is free.
    "mov rdi, rsp",
    "call {after}",
    "mov rax, 15",
    "syscall",
    after = sym after_handler,
);

unsafe extern "C" {
    fn powerfail_return();
}

/// A handler of the target has returned to a frame that was moved.
extern "C" fn after_handler(context: *mut c_void) {
    let frame = Frame::new(context);
    frame.set_signal_mask(frame.signal_mask() & !OURS);
    // SAFETY: `move_to_target` has left it there.
    let above = unsafe {
        context
            .cast::<u8>()
            .add(FRAME_LEN - 8)
            .cast::<Above>()
            .read()
    };
    if let (Some(block), Some(kept)) = (threads::block(), above.kept) {
        kept.restore(block);
    }
}

/// Whether a handler of the target must not run where ours does.
pub(crate) fn must_move(context: *mut c_void) -> bool {
    // What was interrupted on our stack continues there: below it is our own frame.
    threads::is_on_own_stack(context as u64)
        && !threads::is_on_own_stack(Frame::new(context).get(Greg::Rsp))
        && (threads::block().is_some() || recovery::is_active())
}

/// Length of the vector state of a frame.
///
/// # Safety
/// The kernel made it.
unsafe fn vectors_len(vectors: u64) -> usize {
    const LEGACY_LEN: usize = 512;
    const MAGIC_AT: u64 = 464;
    const MAGIC: u32 = 0x4650_5853;
    // SAFETY: by the contract the kernel has written the legacy part of the state there, and with the magic word its
    // length.
    unsafe {
        if ((vectors + MAGIC_AT) as *const u32).read() == MAGIC {
            ((vectors + MAGIC_AT + 4) as *const u32).read() as usize
        } else {
            LEGACY_LEN
        }
    }
}

/// Runs a handler of the target on the stack where it would run without us, and continues from there.
/// Everything is blocked until then. If that stack cannot be written, the target is ended by the
/// fault here, as the kernel would have ended it.
///
/// # Safety
/// Signal, information and context are those of the handler of ours that calls; `must_move` holds.
pub(crate) unsafe fn move_to_target(
    signal: usize,
    info: *mut c_void,
    context: *mut c_void,
    wished: TargetAction,
) -> ! {
    const LINE: u64 = 64;
    let frame = Frame::new(context);
    let mask = mask_in_handler(signal, &frame, wished);
    let interrupted = frame.get(Greg::Rsp);
    // SAFETY: the state is this thread's; the stack belongs to the target and is free below what was
    // interrupted, or unused.
    unsafe {
        let alternate = thread_private::own().map(|own| (*own).alternate);
        let alternate = alternate.filter(|stack| {
            stack.is_enabled() && wished.flags & SA_ONSTACK != 0 && !stack.contains(interrupted)
        });
        let top = alternate.map_or(interrupted - RED_ZONE, |stack| stack.start + stack.len);
        let vectors = frame.vectors();
        let mut below = top;
        if vectors != 0 {
            let len = vectors_len(vectors);
            below = (top - len as u64) / LINE * LINE;
            core::ptr::copy_nonoverlapping(vectors as *const u8, below as *mut u8, len);
            frame.set_vectors(below);
        }
        // At the beginning of a function the stack is not aligned, by the return address.
        let start = (below - (FRAME_LEN + size_of::<Above>()) as u64) / 16 * 16 - 8;
        let new_context = start + 8;
        let new_info = new_context + CONTEXT_LEN as u64;
        (start as *mut u64).write(powerfail_return as *const () as u64);
        core::ptr::copy_nonoverlapping(context.cast::<u8>(), new_context as *mut u8, CONTEXT_LEN);
        core::ptr::copy_nonoverlapping(info.cast::<u8>(), new_info as *mut u8, Info::LEN);
        let above = (start + FRAME_LEN as u64) as *mut Above;
        above.write(Above {
            kept: threads::block().map(|block| Kept::save(block, &frame)),
            mask,
        });
        core::arch::asm!(
            "mov rsp, r8",
            "syscall",
            "mov rdi, r12",
            "mov rsi, r13",
            "mov rdx, r14",
            "xor eax, eax",
            "jmp r15",
            in("rax") sys::number::RT_SIGPROCMASK,
            in("rdi") sys::SIG_SETMASK,
            in("rsi") &raw const (*above).mask,
            in("rdx") 0,
            in("r10") 8,
            in("r8") start,
            in("r12") signal,
            in("r13") new_info,
            in("r14") new_context,
            in("r15") wished.handler,
            options(noreturn)
        );
    }
}
