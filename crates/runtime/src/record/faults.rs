//! Faults and breakpoints in a recording: stores to pools, sites that never fault, and system calls.
//!
//! What is none of these goes to the target's handler ([`signals::deliver`]), which sees the instruction and the
//! registers that it would have seen without the runtime ([`show_as_of_target`]).
//!
//! # Safety
//!
//! `on_fault` and `on_breakpoint` are called by the kernel only. Frames are those that it passed; blocks are those
//! of the calling thread.
#![allow(unsafe_code, reason = "handles faults and breakpoints")]

use core::ffi::c_void;

use powerfail_patch::Interruption;
use powerfail_protocol::{ScratchSlot, ThreadBlock};

use crate::host;
use crate::libc::{early, raw_calls, signal_actions};
use crate::patching::code;
use crate::platform::frame::{Frame, Greg, Info};
use crate::platform::handler_stacks;
use crate::platform::number::{EXECVE, EXECVEAT, RT_SIGPROCMASK};
use crate::platform::signals::{self, OURS};
use crate::platform::sys;
use crate::record::emulate::{self, Emulated};
use crate::record::sites::SITES;
use crate::record::window::window;
use crate::record::{append, call_stacks, pools, store_locks, threads};

/// Takes over the signals that we need. What the target had wished for them is kept.
pub(crate) fn install() {
    signals::install_handlers(on_breakpoint, on_fault);
}

/// Bit of the error code: the access was a write.
const WAS_WRITE: u64 = 2;

/// How a store to a pool continues after its fault.
enum Continuation {
    Trampoline(u64),
    Emulation(Emulated),
}

fn continuation_of(instruction: u64) -> Option<Continuation> {
    SITES.with(|sites| {
        let sites = sites.as_mut()?;
        if sites.inside_trampoline(instruction).is_some() {
            return None;
        }
        if let Some(emulated) = sites.emulation_of(instruction) {
            return Some(Continuation::Emulation(emulated));
        }
        match sites.trampoline_of(instruction) {
            Ok(trampoline) => Some(Continuation::Trampoline(trampoline)),
            Err(refused) => host::fatal(&refused.0),
        }
    })
}

extern "C" fn on_fault(signal: i32, info: *mut c_void, context: *mut c_void) {
    let frame = Frame::new(context);
    let fault = Info::new(info);
    let address = fault.address();
    let is_write = fault.is_fault() && frame.get(Greg::Error) & WAS_WRITE != 0;
    if is_write && window().contains(address) && !pools::is_other(address) {
        match continuation_of(frame.get(Greg::Rip)) {
            Some(Continuation::Trampoline(trampoline)) => {
                frame.set(Greg::Rip, trampoline);
                return;
            }
            Some(Continuation::Emulation(emulated)) => {
                emulate::begin(&frame, &emulated);
                return;
            }
            None => {}
        }
    }
    if fault.is_fault() && go_to_other_memory(&frame, address) {
        return;
    }
    signals::deliver(signal as usize, info, context);
}

/// The address in the window that an address in the alias stands for.
fn seen_address(address: u64) -> Option<u64> {
    let seen = address.wrapping_sub(window().alias_delta);
    window().contains(seen).then_some(seen)
}

/// A trampoline wrote to the alias of something in the window that is not a pool and has none: lets
/// the instruction itself do it.
fn go_to_other_memory(frame: &Frame, address: u64) -> bool {
    if !seen_address(address).is_some_and(pools::is_other) {
        return false;
    }
    undo_trampoline(frame);
    let original = SITES.with(|sites| {
        sites
            .as_mut()
            .and_then(|sites| sites.original_at(frame.get(Greg::Rip)))
    });
    if let Some(original) = original {
        frame.set(Greg::Rip, original);
    }
    original.is_some()
}

/// What a breakpoint is.
enum Breakpoint {
    SystemCall,
    Emulation(Emulated),
    /// Go on there.
    At(u64),
}

extern "C" fn on_breakpoint(signal: i32, info: *mut c_void, context: *mut c_void) {
    let frame = Frame::new(context);
    if !Info::new(info).is_fault() {
        signals::deliver(signal as usize, info, context);
        return;
    }
    let address = frame.get(Greg::Rip).wrapping_sub(1);
    if let Some(next) = early::at_breakpoint(address) {
        frame.set(Greg::Rip, next);
        return;
    }
    let found = SITES.with(|sites| {
        let sites = sites.as_mut()?;
        if sites.is_system_call(address) {
            return Some(Breakpoint::SystemCall);
        }
        if let Some(emulated) = sites.emulated_at(address) {
            return Some(Breakpoint::Emulation(emulated));
        }
        // SAFETY: the instruction at this address was just executed.
        let byte = unsafe { code::view(address, 1)[0] };
        if byte != code::BREAKPOINT {
            // Another thread was patching, and is done.
            return Some(Breakpoint::At(address));
        }
        let woken = sites.wake(address);
        woken
            .or_else(|| sites.breakpoint(address))
            .map(Breakpoint::At)
    });
    match found {
        Some(Breakpoint::SystemCall) => make_system_call(&frame, address),
        Some(Breakpoint::Emulation(emulated)) => emulate::go_on(&frame, &emulated),
        Some(Breakpoint::At(next)) => frame.set(Greg::Rip, next),
        None => signals::deliver(signal as usize, info, context),
    }
}

/// Makes the system call that a breakpoint stands for, with the signals that the target wants.
///
/// This runs on our stack, and so would a handler of the target that interrupts it. A target whose handlers have a stack
/// of their own may insist on it, as Go does: its signals wait until the call is made.
fn make_system_call(frame: &Frame, address: u64) {
    let (number, arguments) = frame.system_call();
    let executes = matches!(number, EXECVE | EXECVEAT);
    let mask = if handler_stacks::target_has_one() && !executes {
        !OURS
    } else {
        frame.signal_mask() & !OURS
    };
    let own_mask = sys::block_signals();
    sys::restore_signals(mask);
    call_stacks::set_origin(address, frame);
    // SAFETY: the registers are those of a `syscall` instruction that the target was about to execute.
    let result = unsafe {
        match number {
            RT_SIGPROCMASK => signal_actions::raw_mask(frame, arguments),
            _ => raw_calls::perform(number, arguments),
        }
    };
    call_stacks::clear_origin();
    sys::restore_signals(own_mask);
    match result {
        Some(result) => frame.finish_system_call(address, result),
        None => {
            let copy = SITES.with(|sites| sites.as_mut()?.system_call_copy(address));
            match copy {
                Some(copy) => frame.set(Greg::Rip, copy),
                None => host::fatal(&format!(
                    "no memory near {address:#x} for a copy of a system call"
                )),
            }
        }
    }
}

/// Shows a fault in code of ours as the fault of the instruction that it stands for.
pub(crate) fn show_as_of_target(frame: &Frame, fault: &Info) {
    let instruction = frame.get(Greg::Rip);
    let emulated = SITES.with(|sites| sites.as_ref()?.emulated_at(instruction));
    match emulated {
        Some(emulated) => emulate::undo(frame, &emulated),
        None => undo_trampoline(frame),
    }
    if let Some(seen) = seen_address(fault.address()) {
        fault.set_address(seen);
    }
}

/// A handler of the target is about to run, which may store to the same bytes, wait for another thread, or never return. If
/// the thread was in the middle of a store, the store is undone or completed, and the store locks are given back.
pub(crate) fn leave_store(frame: &Frame) {
    const ZERO_FLAG: u64 = 0x40;
    let Some(block) = threads::block() else {
        return;
    };
    let Some(record) = store_locks::held_record(block) else {
        return leave_unlocked_store(block, frame);
    };
    let at = frame.get(Greg::Rip);
    let found = SITES.with(|sites| sites.as_ref()?.locked_work_at(at));
    let Some((start, work)) = found.filter(|(_, work)| frame.register(work.record) == record)
    else {
        return;
    };
    let has_zero_flag = frame.get(Greg::Flags) & ZERO_FLAG != 0;
    match work.interrupted_at((at - start) as usize, has_zero_flag) {
        Interruption::Undo => return undo_trampoline(frame),
        Interruption::Complete => append::complete(block, record),
        Interruption::Done => {}
    }
    store_locks::release(block, record);
    frame.set(Greg::Rip, start + work.released_at as u64);
}

/// A store without a lock whose record already says that it was made, or is about to say what it was before the handler. A
/// repeated one may have been made in part, and is completed; any other has not been made, and begins again.
fn leave_unlocked_store(block: *mut ThreadBlock, frame: &Frame) {
    let at = frame.get(Greg::Rip);
    let repeated = SITES.with(|sites| sites.as_ref()?.repeated_work_at(at));
    if let Some((start, work)) = repeated {
        append::complete(block, frame.register(work.record));
        frame.set(Greg::Rip, start + work.done_at as u64);
    } else if SITES.with(|sites| sites.as_ref().is_some_and(|sites| sites.is_committed(at))) {
        undo_trampoline(frame);
    }
}

/// If the target was interrupted in a trampoline: shows it the instruction and the registers that it
/// would have had.
fn undo_trampoline(frame: &Frame) {
    let Some(block) = threads::block() else {
        return;
    };
    SITES.with(|sites| {
        let Some(sites) = sites.as_ref() else { return };
        let at = frame.get(Greg::Rip);
        let Some((site, slots)) = sites.inside_trampoline(at) else {
            return;
        };
        if let Some(record) = store_locks::held_record(block) {
            append::void(block, record);
            store_locks::release(block, record);
        } else if sites.is_committed(at) || sites.is_at_work(at) {
            append::void_last();
        }
        for slot in slots {
            // SAFETY: the block is this thread's.
            let value = unsafe { (*block).scratch[slot.index()] };
            match slot {
                ScratchSlot::Register(number) => frame.set_register(number, value),
                ScratchSlot::Flags => {
                    const STATUS: u64 = 0xd5;
                    const OVERFLOW: u64 = 1 << 11;
                    let kept = frame.get(Greg::Flags) & !(STATUS | OVERFLOW);
                    let overflow = if value & 1 != 0 { OVERFLOW } else { 0 };
                    frame.set(Greg::Flags, kept | (value >> 8) & STATUS | overflow);
                }
                _ => {}
            }
        }
        frame.set(Greg::Rip, site);
    });
}
