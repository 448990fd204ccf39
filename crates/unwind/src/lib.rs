//! Finds the caller of a function: the part of `.eh_frame` that a call stack needs.
//!
//! A [`Description`] is one entry of the table with the common part it refers to; [`row_at`] runs its
//! program up to an address and gives the [`Row`] that holds there: where the frame of the caller
//! begins, and where on the stack the return address and the caller's RBP are.
//!
//! Made for a process in which nothing may be allocated and nothing may panic: everything works on
//! slices that the caller has found. Registers other than RSP and RBP are not followed; a function
//! whose frame is found by another one has no row, and the stack ends there. Compiled code does
//! that for a few instructions at the beginning of functions that realign their stack.
//!
//! [`python_line`] does the same for the interpreter of Python: from an instruction of a function to its line.
//!
//! # Why not gimli
//!
//! gimli's `read-core` feature could read the same tables without an allocator, with storage of one's own. It is not
//! used in the target for two reasons. It keeps the rules of all registers, in rows that are copied whenever a state is
//! saved; a call stack needs where the frame begins and two places on the stack. And its code unwraps what its own
//! invariants guarantee, so that nothing can panic would rest on another crate's internals, where here it can be read
//! off the code: each read is checked, and a malformed table just ends the call stack. The tests compare this crate with
//! gimli for every function of real libraries, at every change of its rules.

#![no_std]

mod cursor;
mod description;
mod program;
mod python;

pub use description::{Description, cie_distance};
pub use program::{Cfa, Row, row_at};
pub use python::python_line;

/// Number of RBP in unwind tables.
pub const RBP: u64 = 6;
/// Number of RSP in unwind tables.
pub const RSP: u64 = 7;
/// Number of the return address in unwind tables.
pub const RETURN_ADDRESS: u64 = 16;
