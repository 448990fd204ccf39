//! What the target does with its input: the words that it compares, seeks and splits at, the numbers and formats that
//! it reads.
//!
//! [`functions`] stands in for the functions of the C library that do this, [`notes`] says what is noted of their
//! arguments, and [`early`] does their work before the dynamic linker can.
//!
//! Notes are made only in executions that the host wants to learn from ([`powerfail_protocol::fuzz::flag::OBSERVE`]).
//! Everywhere else each of these functions is one jump to the original.

mod early;
mod functions;
mod notes;

pub(crate) use functions::{begin_execution, start};
