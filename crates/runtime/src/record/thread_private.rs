//! What a thread has for itself beside its block: in its private memory, which no other thread and
//! no other process touches.
//!
//! # Safety
//!
//! A GS base is zero or leads to a block whose private memory is mapped, of the fixed length and layout. `begin` is
//! called once for each, before anything reads it; afterwards only the thread itself and its handlers use it.
#![allow(unsafe_code, reason = "keeps a structure in private memory")]

use crate::record::threads;

/// Distance of all this from the beginning of the private memory, behind the shield.
const AT: u64 = 4096;
/// Distance of the two buffers.
const BUFFERS_AT: u64 = 8192;
/// Length of each of the buffers: more than `xsave` of any processor takes.
pub(crate) const BUFFER_LEN: usize = 32 * 1024;
/// Up to where the private memory is used here.
pub(crate) const LEN: u64 = BUFFERS_AT + 2 * BUFFER_LEN as u64;

/// An alternate stack for handlers, as the target gave it.
#[derive(Clone, Copy)]
pub(crate) struct AlternateStack {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) flags: u32,
}

impl AlternateStack {
    /// What `sigaltstack` calls none.
    pub(crate) const DISABLED: u32 = 2;

    /// Whether there is one, and an address is in it.
    pub(crate) fn contains(&self, address: u64) -> bool {
        self.is_enabled() && address.wrapping_sub(self.start) <= self.len
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.len > 0 && self.flags & Self::DISABLED == 0
    }
}

/// An instruction that is being run on a buffer.
#[derive(Clone, Copy)]
pub(crate) struct Running {
    /// The instruction; zero if none is.
    pub(crate) site: u64,
    /// Where it writes, as the target sees it.
    pub(crate) address: u64,
    /// What the target had in the register that holds the address of the buffer.
    pub(crate) pointer: u64,
    /// The signals that the target had blocked.
    pub(crate) mask: u64,
    /// Whether this is the second time.
    pub(crate) again: bool,
}

/// Where the thread is in libpmemobj.
#[derive(Clone, Copy, Default)]
pub(crate) struct Pmdk {
    /// Transactions around it.
    pub(crate) transactions: u64,
    /// Where the pool of the outermost one is.
    pub(crate) pool: u64,
    /// Calls around it.
    pub(crate) calls: u64,
    /// The function of the outermost one.
    pub(crate) function: u64,
}

/// The state. Zeros are a good beginning.
pub(crate) struct ThreadPrivate {
    pub(crate) alternate: AlternateStack,
    /// Which of our signals the target believes to have blocked.
    pub(crate) blocked: u64,
    pub(crate) running: Running,
    pub(crate) pmdk: Pmdk,
    /// Transactions around it that it has begun by client requests.
    pub(crate) requested_transactions: u64,
    /// All signals are blocked wherever code of ours runs on the thread now.
    is_masked: bool,
}

/// Whether all signals of the calling thread are known to be blocked.
pub(crate) fn is_masked() -> bool {
    // SAFETY: the state of the calling thread.
    own().is_some_and(|own| unsafe { (*own).is_masked })
}

/// Says whether all signals are blocked from now on, wherever code of ours runs on the calling thread; what was said
/// before.
pub(crate) fn set_masked(is_masked: bool) -> bool {
    // SAFETY: the state of the calling thread.
    own().is_some_and(|own| unsafe { core::mem::replace(&mut (*own).is_masked, is_masked) })
}

/// That of the calling thread, if it is or was recorded. Handlers change it, so it is reached by
/// pointer.
pub(crate) fn own() -> Option<*mut ThreadPrivate> {
    threads::private().map(|private| (private + AT) as *mut ThreadPrivate)
}

/// One of the two buffers of the calling thread, aligned for everything.
pub(crate) fn buffer(second: bool) -> Option<*mut u8> {
    let at = BUFFERS_AT + if second { BUFFER_LEN as u64 } else { 0 };
    threads::private().map(|private| (private + at) as *mut u8)
}

/// Makes the state of a new thread.
///
/// # Safety
/// The private memory is that of the calling thread, and mapped.
pub(crate) unsafe fn begin(private: u64) {
    // SAFETY: by the contract `private` is the start of a new thread's private memory, which nothing else refers to
    // yet.
    unsafe {
        ((private + AT) as *mut ThreadPrivate).write(ThreadPrivate {
            alternate: AlternateStack {
                start: 0,
                len: 0,
                flags: AlternateStack::DISABLED,
            },
            blocked: 0,
            running: Running {
                site: 0,
                address: 0,
                pointer: 0,
                mask: 0,
                again: false,
            },
            pmdk: Pmdk::default(),
            requested_transactions: 0,
            is_masked: false,
        });
    }
}
