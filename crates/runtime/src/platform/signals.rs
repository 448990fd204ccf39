//! Signals: the faults of stores and the breakpoints of silent sites are ours; everything else goes
//! to the target's handlers, which see the state that they would have seen without us.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use powerfail_protocol::{SCRATCH_SLOTS, Slot, ThreadBlock};

use crate::host;
use crate::libc::{early, raw_calls};
use crate::patching::code;
use crate::platform::frame::{Frame, Greg, Info};
use crate::platform::{handler_stacks, sys};
use crate::record::emulate::{self, Emulated};
use crate::record::sites::{SITES, WINDOW};
use crate::record::{append, call_stacks, pools, thread_private, threads};

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

/// What the target wants to happen at a signal.
struct Wish {
    handler: AtomicUsize,
    flags: AtomicU64,
    mask: AtomicU64,
}

static WISHES: [Wish; SIGNALS] = [const {
    Wish {
        handler: AtomicUsize::new(SIG_DFL),
        flags: AtomicU64::new(0),
        mask: AtomicU64::new(0),
    }
}; SIGNALS];
static INSTALLED: AtomicBool = AtomicBool::new(false);

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

/// Takes over the signals that we need. What the target had wished for them is kept.
pub(crate) fn install() {
    install_handlers(on_breakpoint, on_fault);
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
        // What the target gave before has a stand-in, and its wish is known.
        if old.handler != stand_in as *const () as usize {
            set_wish(
                signal,
                Wished {
                    handler: old.handler,
                    flags: old.flags,
                    mask: old.mask,
                },
            );
        }
    }
    set_action(SIGTRAP, on_breakpoint as *const () as usize);
    set_action(SIGSEGV, on_fault as *const () as usize);
    // A mask may be inherited from whoever started the target.
    sys::unblock_signals(OURS);
}

/// Whether the signals that we need are ours.
pub(crate) fn are_installed() -> bool {
    INSTALLED.load(Ordering::Acquire)
}

/// What the target wishes for a signal, as a value.
#[derive(Clone, Copy)]
pub(crate) struct Wished {
    pub(crate) handler: usize,
    pub(crate) flags: u64,
    pub(crate) mask: u64,
}

/// Remembers a wish; gives the one of before.
pub(crate) fn set_wish(signal: usize, wished: Wished) -> Wished {
    let before = wish(signal);
    let wish = &WISHES[signal];
    wish.flags.store(wished.flags, Ordering::Relaxed);
    wish.mask.store(wished.mask, Ordering::Relaxed);
    wish.handler.store(wished.handler, Ordering::Release);
    before
}

/// What the target wishes.
pub(crate) fn wish(signal: usize) -> Wished {
    let wish = &WISHES[signal];
    Wished {
        handler: wish.handler.load(Ordering::Acquire),
        flags: wish.flags.load(Ordering::Relaxed),
        mask: wish.mask.load(Ordering::Relaxed),
    }
}

/// Bit of the error code: the access was a write.
const WAS_WRITE: u64 = 2;

/// How a store to a pool that faulted goes on.
enum Way {
    Trampoline(u64),
    Emulation(Emulated),
}

fn way_of(instruction: u64) -> Option<Way> {
    SITES.with(|sites| {
        let sites = sites.as_mut()?;
        if sites.inside_trampoline(instruction).is_some() {
            return None;
        }
        if let Some(emulated) = sites.emulation_of(instruction) {
            return Some(Way::Emulation(emulated));
        }
        match sites.trampoline_of(instruction) {
            Ok(trampoline) => Some(Way::Trampoline(trampoline)),
            Err(refused) => host::fatal(&refused.0),
        }
    })
}

extern "C" fn on_fault(signal: i32, info: *mut c_void, context: *mut c_void) {
    let frame = Frame::new(context);
    let fault = Info::new(info);
    let address = fault.address();
    let is_write = fault.is_fault() && frame.get(Greg::Error) & WAS_WRITE != 0;
    if is_write && WINDOW.contains(address) && !pools::is_other(address) {
        match way_of(frame.get(Greg::Rip)) {
            Some(Way::Trampoline(trampoline)) => {
                frame.set(Greg::Rip, trampoline);
                return;
            }
            Some(Way::Emulation(emulated)) => {
                emulate::begin(&frame, &emulated);
                return;
            }
            None => {}
        }
    }
    if fault.is_fault() && go_to_other_memory(&frame, address) {
        return;
    }
    deliver(signal as usize, info, context);
}

/// The address in the window that an address in the alias stands for.
fn seen_address(address: u64) -> Option<u64> {
    let seen = address.wrapping_sub(WINDOW.alias_delta);
    WINDOW.contains(seen).then_some(seen)
}

/// A trampoline wrote to the alias of something in the window that is no pool and has none: lets
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
        deliver(signal as usize, info, context);
        return;
    }
    let address = frame.get(Greg::Rip).wrapping_sub(1);
    if let Some(next) = early::at_breakpoint(address) {
        frame.set(Greg::Rip, next);
        return;
    }
    let found = SITES.with(|sites| {
        let sites = sites.as_ref()?;
        if sites.is_system_call(address) {
            return Some(Breakpoint::SystemCall);
        }
        if let Some(emulated) = sites.emulated_at(address) {
            return Some(Breakpoint::Emulation(emulated));
        }
        // SAFETY: the instruction at this address was just executed.
        let byte = unsafe { code::view(address, 1)[0] };
        if byte != code::BREAKPOINT {
            // Somebody was patching, and is done.
            return Some(Breakpoint::At(address));
        }
        sites.breakpoint(address).map(Breakpoint::At)
    });
    match found {
        Some(Breakpoint::SystemCall) => make_system_call(&frame, address),
        Some(Breakpoint::Emulation(emulated)) => emulate::go_on(&frame, &emulated),
        Some(Breakpoint::At(next)) => frame.set(Greg::Rip, next),
        None => deliver(signal as usize, info, context),
    }
}

/// Makes the system call that a breakpoint stands for, with the signals that the target wants.
fn make_system_call(frame: &Frame, address: u64) {
    let mask = frame.signal_mask() & !OURS;
    let own_mask = sys::block_signals();
    sys::restore_signals(mask);
    let (number, arguments) = frame.system_call();
    call_stacks::set_origin(address, frame);
    // SAFETY: what the target wanted to do.
    let result = unsafe { raw_calls::perform(number, arguments) };
    call_stacks::clear_origin();
    sys::restore_signals(own_mask);
    match result {
        Some(result) => frame.finish_system_call(address, result),
        None => {
            let copy = SITES.with(|sites| sites.as_mut()?.system_call_copy(address));
            match copy {
                Some(copy) => frame.set(Greg::Rip, copy),
                None => host::fatal("there is no place for a copy of a system call"),
            }
        }
    }
}

/// A fault or breakpoint that is the target's own, or a signal that somebody sent.
pub(crate) fn deliver(signal: usize, info: *mut c_void, context: *mut c_void) {
    const SA_RESETHAND: u64 = 0x8000_0000;
    let frame = Frame::new(context);
    let is_fault = Info::new(info).is_fault();
    if is_fault && host::attached() {
        show_fault(&frame, &Info::new(info));
    }
    let wished = wish(signal);
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
        WISHES[signal].handler.store(SIG_DFL, Ordering::Release);
    }
    call_handler(signal, info, context, wished);
}

/// Shows a fault in code of ours as the fault of the instruction that it stands for.
fn show_fault(frame: &Frame, fault: &Info) {
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
        if sites.is_at_work(at) {
            append::void_last();
        }
        for slot in slots {
            // SAFETY: the block is this thread's.
            let value = unsafe { (*block).scratch[slot.index()] };
            match slot {
                Slot::Register(number) => frame.set_register(number, value),
                Slot::Flags => {
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

/// Stands in for every handler of the target: keeps what emitted code had in its slots.
pub(crate) extern "C" fn stand_in(signal: i32, info: *mut c_void, context: *mut c_void) {
    if host::attached() && signal as usize == SIGBUS && Info::new(info).is_fault() {
        show_fault(&Frame::new(context), &Info::new(info));
    }
    let wished = wish(signal as usize);
    call_handler(signal as usize, info, context, wished);
}

fn call_handler(signal: usize, info: *mut c_void, context: *mut c_void, wished: Wished) {
    if handler_stacks::must_move(context) {
        // SAFETY: what the kernel gave us.
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
        // SAFETY: the block is this thread's.
        unsafe {
            let kept = Self {
                scratch: (*block).scratch,
                slow_stack_top: (*block).slow_stack_top,
                blocked: thread_private::own().map_or(0, |own| (*own).blocked),
            };
            (*block).signal_depth += 1;
            let (stack, top) = (frame.get(Greg::Rsp), kept.slow_stack_top);
            (*block).slow_stack_top = threads::slow_stack_below(stack, top);
            kept
        }
    }

    pub(crate) fn restore(self, block: *mut ThreadBlock) {
        // SAFETY: the block is this thread's.
        unsafe {
            (*block).signal_depth -= 1;
            (*block).slow_stack_top = self.slow_stack_top;
            (*block).scratch = self.scratch;
            if let Some(own) = thread_private::own() {
                (*own).blocked = self.blocked;
            }
        }
    }
}
