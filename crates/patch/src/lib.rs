//! From an instruction that stores, flushes or fences to code that records it.
//!
//! Three steps, each a pure function of bytes and addresses:
//!
//! 1. [`Classifier`]: what does this instruction do to memory, and can it be recorded?
//! 2. [`tactic`]: how can a jump to a trampoline take its place, and where must that lie?
//! 3. [`Emitter`]: the trampoline's code.
//!
//! A few instructions have no trampoline; [`Redirected`] is how they are run at the fault instead. [`Displaced`] is how any
//! access is run at its fault on bytes that lie elsewhere, where other threads must not see the page meanwhile.
//!
//! [`AccessEmitter`] makes trampolines of another kind, for the exploration of recoveries: they record
//! nothing, and send loads and stores of a pool to where its bytes are.
//!
//! The crate makes no system call, reads no memory but the slices that it is given, and does not
//! write code: the caller applies the edits, with the protocol for code that other threads may
//! be executing. It runs in fault handlers of foreign processes: [`Classifier`] and [`Emitter`]
//! allocate when they are made (which also builds the tables of the decoder and the encoder) and,
//! except to make an error's text, not afterwards.
//!
//! What the code that [`Emitter`] produces expects of its surroundings is in [`powerfail_protocol`].

mod assembler;
mod classify;
mod displace;
mod emit;
mod encode;
mod flow;
#[cfg(test)]
mod mapped_code;
mod quick;
mod redirect;
mod sweep;
pub mod tactic;
mod variant;

pub use classify::{
    Action, Classifier, MAX_INSTRUCTION_LEN, MAX_SITE_LEN, Means, Refusal, Scanned, Site, Store,
    StoreForm,
};
pub use displace::{Displaced, Pointers};
pub use emit::{
    AccessEmitter, AccessError, AccessSettings, AccessTrampoline, EmitError, Emitter,
    EmitterSettings, Interruption, KeptStates, LOADS_MOVE, LockedFences, LockedWork,
    MAX_ACCESS_LEN, MAX_RELOCATED_LEN, MAX_TRAMPOLINE_LEN, RepeatedWork, STORES_MOVE, StateMap,
    Trampoline, Turns, UNREAD_SHIFT, VolatileFlushes, WaysOut, WorkForm,
};
pub use flow::flags_are_dead;
pub use redirect::Redirected;
