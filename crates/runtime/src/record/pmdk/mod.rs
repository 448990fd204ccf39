//! What the target tells PMDK: calls of libpmemobj leave marks.
//!
//! The functions of the library are replaced by ones that leave marks and pass on. Each call is marked
//! where it begins and ends (`LIBRARY_ENTER` and `LIBRARY_LEAVE` of [`powerfail_protocol::mark`]); what it did to memory (added
//! to a transaction, allocated, freed) follows its end, with the ranges. What the library does inside of a
//! call, through its own public functions or in callbacks of the target's, leaves no marks of its own.
//!
//! A target that has none of these libraries never calls these functions. The arguments are those of the
//! headers of libpmemobj 1.12, which has had one version of each symbol since its first release.

mod actions;
mod atomic;
mod call;
mod lists;
mod object;
mod open_close;
mod persist;
mod transactional;
mod transactions;

pub(crate) use call::prepare;
