//! Operations on files of the trees of a recording.
//!
//! The system calls that change files come from three places: functions that the runtime stands in for
//! (`libc/file_calls.rs`), which cost least; breakpoints in functions of the C library, for calls that it makes itself, as
//! `fopen` and `fflush` do; and breakpoints in other code. All of them lead to [`calls::perform`].
//!
//! | file | subject |
//! | --- | --- |
//! | [`calls`] | what each system call does, and how it is made and recorded |
//! | [`writes`] | those that write bytes |
//! | [`descriptors`] | which file a descriptor is of, and whether it is one of a tree |
//! | [`places`] | which file a path names |
//! | [`trees`] | where the trees are |
//! | [`order`] | the lock under which all processes make their operations |
//! | [`emit`] | the records |

pub(crate) mod calls;
pub(crate) mod descriptors;
mod emit;
mod order;
mod places;
pub(crate) mod trees;
mod writes;
