//! Small programs, explored exhaustively: every interleaving, every order in which the entries of
//! the store buffers leave, every moment of the crash.
//!
//! This is the level at which the semantics is stated (`tests/litmus/README.md`); the trace level
//! is checked against it. It is meant for litmus tests, not for real programs.

mod ops;
mod search;
mod state;

pub use ops::{CrashMoment, NonTemporal, Op, Operand, Program, RegisterId, ThreadCode, VariableId};
pub use search::{Outcomes, TooManyStates, crash_states, outcomes};
