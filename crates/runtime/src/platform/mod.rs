//! The machine and the kernel below everything else: raw system calls, memory of our own, locks, signals.
//!
//! | file | subject |
//! | --- | --- |
//! | [`sys`] | raw system calls and single instructions |
//! | [`number`] | the numbers of system calls |
//! | [`memcpy`] | `memcpy`, `memmove` and `memset` that are never patched |
//! | [`allocator`] | the runtime's allocator |
//! | [`lock`] | a lock that is safe in signal handlers |
//! | [`maps`] | `/proc/self/maps` |
//! | [`map_lines`] | the lines of that file |
//! | [`descriptor`] | descriptors of ours that the target may close |
//! | [`frame`] | the saved registers and the signal information that a handler receives |
//! | [`iovec`] | buffers in several parts, as system calls take them |
//! | [`signals`] | which handler a signal runs, ours or the target's |
//! | [`handler_stacks`] | the alternate stack that our handlers run on |

pub(crate) mod allocator;
pub(crate) mod descriptor;
pub(crate) mod frame;
pub(crate) mod handler_stacks;
pub(crate) mod iovec;
pub(crate) mod lock;
mod map_lines;
pub(crate) mod maps;
pub(crate) mod memcpy;
pub(crate) mod number;
pub(crate) mod signals;
pub(crate) mod sys;
