//! Signals: the faults of stores and the breakpoints of silent sites are ours; everything else goes
//! to the target's handlers, which see the state that they would have seen without us.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use powerfail_abi::{SCRATCH_SLOTS, Slot, ThreadBlock};

use crate::sites::{SITES, WINDOW};
use crate::{code, host, sys, system_calls, thread};

pub(crate) const SIGTRAP: usize = 5;
pub(crate) const SIGSEGV: usize = 11;
const SIGNALS: usize = 65;

const SA_SIGINFO: u64 = 4;
const SA_RESTORER: u64 = 0x0400_0000;
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
        flags: SA_SIGINFO | SA_RESTORER,
        restorer: powerfail_restore as *const () as usize,
        mask: u64::MAX,
    };
    let arguments = [signal, &raw const action as usize, 0, 8, 0, 0];
    // SAFETY: the action is well-formed; the handler keeps the rules of this crate.
    unsafe { sys::call(sys::number::RT_SIGACTION, arguments) };
}

/// Takes over the signals that we need. What the target had wished for them is kept.
pub(crate) fn install() {
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
        if old.handler > SIG_IGN && WISHES[signal].handler.load(Ordering::Relaxed) == SIG_DFL {
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
    // A thread that blocks our signals must not.
    let mask = sys::block_signals();
    sys::restore_signals(mask & !OURS);
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

/// Registers in the signal frame, in the order of the kernel.
#[derive(Clone, Copy)]
#[repr(usize)]
enum Greg {
    R8 = 0,
    R9 = 1,
    R10 = 2,
    Rdi = 8,
    Rsi = 9,
    Rbp = 10,
    Rdx = 12,
    Rax = 13,
    Rsp = 15,
    Rip = 16,
    Flags = 17,
    Error = 19,
}

const GREGS_AT: usize = 40;

/// The registers of the interrupted code.
struct Frame(*mut u64);

impl Frame {
    fn new(context: *mut c_void) -> Self {
        // SAFETY: the registers are at a fixed place in the context.
        Self(unsafe { context.cast::<u8>().add(GREGS_AT).cast() })
    }

    fn get(&self, register: Greg) -> u64 {
        // SAFETY: inside the context that the kernel gave.
        unsafe { *self.0.add(register as usize) }
    }

    fn set(&self, register: Greg, value: u64) {
        // SAFETY: inside the context that the kernel gave.
        unsafe { *self.0.add(register as usize) = value }
    }

    /// The signals that the interrupted code has blocked.
    fn signal_mask(&self) -> u64 {
        // Behind 23 registers come a pointer to the vector state and 8 reserved words.
        const MASK_WORD: usize = 23 + 1 + 8;
        // SAFETY: inside the context that the kernel gave.
        unsafe { *self.0.add(MASK_WORD) }
    }

    /// Sets a general-purpose register by its number in machine code.
    fn set_register(&self, number: u8, value: u64) {
        // rax rcx rdx rbx rsp rbp rsi rdi in the order of the kernel.
        const PLACES: [usize; 8] = [13, 14, 12, 11, 15, 10, 9, 8];
        let place = match number {
            0..8 => PLACES[usize::from(number)],
            _ => Greg::R8 as usize + usize::from(number - 8),
        };
        // SAFETY: inside the context that the kernel gave.
        unsafe { *self.0.add(place) = value };
    }
}

const SI_ADDR_AT: usize = 16;
/// Bit of the error code: the access was a write.
const WAS_WRITE: u64 = 2;

extern "C" fn on_fault(signal: i32, info: *mut c_void, context: *mut c_void) {
    let frame = Frame::new(context);
    // SAFETY: the kernel gives the address of a fault there.
    let address = unsafe { info.cast::<u8>().add(SI_ADDR_AT).cast::<u64>().read() };
    let instruction = frame.get(Greg::Rip);
    if WINDOW.contains(address) && frame.get(Greg::Error) & WAS_WRITE != 0 {
        let trampoline = SITES.with(|sites| {
            let sites = sites.as_mut()?;
            if sites.inside_trampoline(instruction).is_some() {
                return None;
            }
            match sites.trampoline_of(instruction) {
                Ok(trampoline) => Some(trampoline),
                Err(refused) => host::fatal(&refused.0),
            }
        });
        if let Some(trampoline) = trampoline {
            frame.set(Greg::Rip, trampoline);
            return;
        }
    }
    deliver(signal as usize, info, context);
}

extern "C" fn on_breakpoint(signal: i32, info: *mut c_void, context: *mut c_void) {
    let frame = Frame::new(context);
    let address = frame.get(Greg::Rip).wrapping_sub(1);
    if SITES.with(|sites| {
        sites
            .as_ref()
            .is_some_and(|sites| sites.is_system_call(address))
    }) {
        make_system_call(&frame, address);
        return;
    }
    let next = SITES.with(|sites| {
        let sites = sites.as_ref()?;
        // SAFETY: the instruction at this address was just executed.
        let byte = unsafe { code::view(address, 1)[0] };
        if byte != code::BREAKPOINT {
            // Somebody was patching, and is done.
            return Some(address);
        }
        sites.breakpoint(address)
    });
    match next {
        Some(next) => frame.set(Greg::Rip, next),
        None => deliver(signal as usize, info, context),
    }
}

/// Names the code that records are made for from here on; zeros for the code that calls us.
fn set_origin(pc: u64, rsp: u64, rbp: u64) {
    if let Some(block) = thread::block() {
        for (part, value) in [pc, rsp, rbp].into_iter().enumerate() {
            // SAFETY: the block is this thread's.
            unsafe { (*block).scratch[Slot::Origin(part as u8).index()] = value };
        }
    }
}

/// Makes the system call that a breakpoint stands for, with the signals that the target wants.
fn make_system_call(frame: &Frame, address: u64) {
    const SYSCALL_LEN: u64 = 2;
    let mask = frame.signal_mask() & !OURS;
    let own_mask = sys::block_signals();
    sys::restore_signals(mask);
    let arguments = [
        Greg::Rdi,
        Greg::Rsi,
        Greg::Rdx,
        Greg::R10,
        Greg::R8,
        Greg::R9,
    ]
    .map(|register| frame.get(register) as usize);
    set_origin(address, frame.get(Greg::Rsp), frame.get(Greg::Rbp));
    // SAFETY: what the target wanted to do.
    let result = unsafe { system_calls::perform(frame.get(Greg::Rax) as usize, arguments) };
    set_origin(0, 0, 0);
    sys::restore_signals(own_mask);
    frame.set(Greg::Rax, result as u64);
    frame.set(Greg::Rip, address + SYSCALL_LEN);
}

/// A fault or breakpoint that is the target's own.
fn deliver(signal: usize, info: *mut c_void, context: *mut c_void) {
    let frame = Frame::new(context);
    undo_trampoline(&frame);
    let wished = wish(signal);
    if wished.handler <= SIG_IGN {
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
        if signal == SIGTRAP {
            frame.set(Greg::Rip, frame.get(Greg::Rip).wrapping_sub(1));
        }
        return;
    }
    // The mask that the kernel would have set, but for what we need.
    sys::restore_signals(wished.mask & !OURS);
    call_handler(signal, info, context, wished);
}

/// If the target was interrupted in a trampoline: shows it the instruction and the registers that it
/// would have had.
fn undo_trampoline(frame: &Frame) {
    let Some(block) = thread::block() else { return };
    SITES.with(|sites| {
        let Some(sites) = sites.as_ref() else { return };
        let Some((site, slots)) = sites.inside_trampoline(frame.get(Greg::Rip)) else {
            return;
        };
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
    let wished = wish(signal as usize);
    call_handler(signal as usize, info, context, wished);
}

fn call_handler(signal: usize, info: *mut c_void, context: *mut c_void, wished: Wished) {
    let block = thread::block();
    let kept = block.map(|block| Kept::save(block, &Frame::new(context)));
    // SAFETY: the handler is what the target gave for this signal, in the form its flags say.
    unsafe {
        if wished.flags & SA_SIGINFO != 0 {
            let handler: extern "C" fn(i32, *mut c_void, *mut c_void) =
                core::mem::transmute(wished.handler);
            handler(signal as i32, info, context);
        } else {
            let handler: extern "C" fn(i32) = core::mem::transmute(wished.handler);
            handler(signal as i32);
        }
    }
    if let (Some(block), Some(kept)) = (block, kept) {
        kept.restore(block);
    }
}

/// What emitted code had in progress when a signal came.
struct Kept {
    scratch: [u64; SCRATCH_SLOTS],
    slow_stack_top: u64,
}

impl Kept {
    fn save(block: *mut ThreadBlock, frame: &Frame) -> Self {
        // SAFETY: the block is this thread's.
        unsafe {
            let kept = Self {
                scratch: (*block).scratch,
                slow_stack_top: (*block).slow_stack_top,
            };
            (*block).signal_depth += 1;
            let (stack, top) = (frame.get(Greg::Rsp), kept.slow_stack_top);
            (*block).slow_stack_top = thread::slow_stack_below(stack, top);
            kept
        }
    }

    fn restore(self, block: *mut ThreadBlock) {
        // SAFETY: the block is this thread's.
        unsafe {
            (*block).signal_depth -= 1;
            (*block).slow_stack_top = self.slow_stack_top;
            (*block).scratch = self.scratch;
        }
    }
}
