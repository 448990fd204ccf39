//! The semantics once more, written from `tests/litmus/README.md` alone and as plainly as possible:
//! whole histories, no reductions. It shares no code with the model and serves as its judge.

#[allow(dead_code, reason = "each test uses one of the two")]
pub(crate) mod program;
#[allow(dead_code, reason = "each test uses one of the two")]
pub(crate) mod trace;
