//! The model compared with a second implementation of the semantics, written from `tests/litmus/README.md` alone and
//! as plainly as possible: whole histories, no reductions. The naive modules share no code with the model and serve as
//! its reference.

mod files;
mod naive_files;
mod naive_program;
mod naive_trace;
mod program;
mod trace;
