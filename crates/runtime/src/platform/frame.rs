//! What the kernel leaves on the stack for a handler: the state of the interrupted code.
//!
//! # Safety
//!
//! Callers pass the context and the information that the kernel has passed to the handler that is running, and use
//! them only until that handler returns. All offsets lie inside of the two, as the ABI of the kernel for x86-64
//! defines them.
#![allow(unsafe_code, reason = "reads and writes the signal frame")]

use core::ffi::c_void;

/// Registers in the frame, in the order of the kernel.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(crate) enum Greg {
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
/// Behind the registers.
const VECTORS_WORD: usize = 23;
/// Behind the pointer to the vector state and 8 reserved words.
const MASK_WORD: usize = VECTORS_WORD + 1 + 8;

/// Length of the context that the kernel makes, up to and with the mask.
pub(crate) const CONTEXT_LEN: usize = GREGS_AT + 8 * (MASK_WORD + 1);

/// The registers of the interrupted code.
pub(crate) struct Frame(*mut u64);

impl Frame {
    pub(crate) fn new(context: *mut c_void) -> Self {
        // SAFETY: the registers are at a fixed place in the context.
        Self(unsafe { context.cast::<u8>().add(GREGS_AT).cast() })
    }

    fn word(&self, index: usize) -> u64 {
        // SAFETY: inside the context that the kernel gave.
        unsafe { *self.0.add(index) }
    }

    fn set_word(&self, index: usize, value: u64) {
        // SAFETY: inside the context that the kernel gave.
        unsafe { *self.0.add(index) = value }
    }

    pub(crate) fn get(&self, register: Greg) -> u64 {
        self.word(register as usize)
    }

    pub(crate) fn set(&self, register: Greg, value: u64) {
        self.set_word(register as usize, value);
    }

    /// The number and the arguments of a system call that the interrupted code is about to make.
    pub(crate) fn system_call(&self) -> (usize, [usize; 6]) {
        use Greg::{R8, R9, R10, Rax, Rdi, Rdx, Rsi};
        let arguments = [Rdi, Rsi, Rdx, R10, R8, R9].map(|register| self.get(register) as usize);
        (self.get(Rax) as usize, arguments)
    }

    /// Ends a system call with a result. The instruction at `address` is the `syscall`.
    pub(crate) fn finish_system_call(&self, address: u64, result: isize) {
        const SYSCALL_LEN: u64 = 2;
        self.set(Greg::Rax, result as u64);
        self.set(Greg::Rip, address + SYSCALL_LEN);
    }

    /// The signals that the interrupted code has blocked.
    pub(crate) fn signal_mask(&self) -> u64 {
        self.word(MASK_WORD)
    }

    /// The signals that will be blocked when the handler returns.
    pub(crate) fn set_signal_mask(&self, mask: u64) {
        self.set_word(MASK_WORD, mask);
    }

    /// Where the vector state is; zero if there is none.
    pub(crate) fn vectors(&self) -> u64 {
        self.word(VECTORS_WORD)
    }

    pub(crate) fn set_vectors(&self, address: u64) {
        self.set_word(VECTORS_WORD, address);
    }

    /// A general-purpose register by its number in machine code.
    pub(crate) fn register(&self, number: u8) -> u64 {
        self.word(place_of(number))
    }

    /// Sets a general-purpose register by its number in machine code.
    pub(crate) fn set_register(&self, number: u8, value: u64) {
        self.set_word(place_of(number), value);
    }
}

fn place_of(number: u8) -> usize {
    // rax rcx rdx rbx rsp rbp rsi rdi in the order of the kernel.
    const PLACES: [usize; 8] = [13, 14, 12, 11, 15, 10, 9, 8];
    match number {
        0..8 => PLACES[usize::from(number)],
        _ => Greg::R8 as usize + usize::from(number - 8),
    }
}

const CODE_AT: usize = 8;
const ADDRESS_AT: usize = 16;

/// What the kernel says about a signal.
pub(crate) struct Info(*mut u8);

impl Info {
    pub(crate) const LEN: usize = 128;

    pub(crate) fn new(info: *mut c_void) -> Self {
        Self(info.cast())
    }

    /// Whether an instruction caused it, not another process or thread.
    pub(crate) fn is_fault(&self) -> bool {
        // SAFETY: inside what the kernel gave.
        unsafe { self.0.add(CODE_AT).cast::<i32>().read() > 0 }
    }

    /// Why it was sent.
    pub(crate) fn code(&self) -> i32 {
        // SAFETY: inside what the kernel gave.
        unsafe { self.0.add(CODE_AT).cast::<i32>().read() }
    }

    /// The address of a fault.
    pub(crate) fn address(&self) -> u64 {
        // SAFETY: inside what the kernel gave.
        unsafe { self.0.add(ADDRESS_AT).cast::<u64>().read() }
    }

    pub(crate) fn set_address(&self, address: u64) {
        // SAFETY: inside what the kernel gave.
        unsafe { self.0.add(ADDRESS_AT).cast::<u64>().write(address) };
    }
}
