//! An oracle for the recorder: the same program, without the runtime, one instruction at a time.
//!
//! The target runs natively under ptrace. From the first mapping of a pool on, it is single-stepped: the operands of
//! each instruction say what it is about to store, flush or order, and memory after the step says what it stored.
//! Nothing here is shared with the runtime, the trampolines or the host: only the decoder (a library), and the model's
//! names for kinds.
//!
//! What is compared: every store, flush and fence, with kind, pool, offset, bytes, the instruction that did it (module
//! and offset) and its position in the order. The effects of the kernel are not compared: other tests check system
//! calls.
//!
//! Conventions where instructions and events do not correspond one to one:
//!
//! - A string operation is one run of bytes. The oracle sees an element at each step and the
//!   recorder writes pieces of up to a kilobyte, so neighbouring stores of one string instruction are
//!   joined on both sides; those of all other instructions are compared one by one.
//! - A masked store is one store for each run of bytes that its mask selects.
//! - A locked compare-and-swap that fails stores nothing and is a locked fence; without `lock` it
//!   writes back what it found, as the manual says, and is a store.
//! - A locked operation on memory outside pools is a fence if it completes something: if its thread has executed
//!   clflushopt, clwb or a non-temporal store on a pool since its last fence. One that leaves its memory as it is
//!   (`lock orq $0, (%rsp)`) is an mfence.
//! - A flush of memory outside pools is ignored.

mod effect;
mod event;
mod mappings;
mod process;
mod recorded;
mod run;

pub(crate) use recorded::recorded;
pub(crate) use run::{Observed, Part, observe};
