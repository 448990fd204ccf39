//! Functions of the C library and system calls that the runtime stands in for, in every mode.
//!
//! | file | subject |
//! | --- | --- |
//! | [`interpose`] | functions of the C library that change mappings, signals, threads and processes |
//! | [`system_calls`] | system calls that transfer data, made by functions of the C library |
//! | [`raw_calls`] | system calls made with `syscall(2)` or with an instruction of the target |
//! | [`clone`] | threads and processes made with `clone` |
//! | [`synchronise`] | functions by which threads wait for each other |
//! | [`early`] | running before the constructors of other libraries |

pub(crate) mod clone;
pub(crate) mod early;
pub(crate) mod interpose;
pub(crate) mod raw_calls;
pub(crate) mod synchronise;
pub(crate) mod system_calls;
