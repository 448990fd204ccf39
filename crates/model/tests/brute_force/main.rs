//! The model against the semantics once more, written from `tests/litmus/README.md` alone and as
//! plainly as possible: whole histories, no reductions. The naive modules share no code with the
//! model and serve as its judges.

mod naive_program;
mod naive_trace;
mod program;
mod trace;
