//! Cross-failure analysis: which reads after a failure are not safe, whatever they happen to return.
//!
//! This is the part that runs nothing. A [`Shadow`] passes over the records of a trace, and knows at each
//! failure point, of each byte of persistent memory, whether it is durable, committed, initialised, and who
//! wrote it. [`Shadow::watches`] says which reads of recovery are worth noting there, [`Shadow::judge`] what
//! a noted read is.
//!
//! The rules are those of `XFDetector` (Liu et al., ASPLOS 2020, sections 3 and 5.4); `docs/reference/races-rules.md`
//! states them. Deviations, and choices where the paper is silent:
//!
//! 1. When a store is durable is decided by [`powerfail_model::Frontier`], which knows threads, domains and
//!    atomicity, and not by the state machine of figure 9.
//! 2. "Persisted before" of formula (3) means just that: a store that a fence followed, but no flush, was not
//!    persisted before what came after the fence, although the time stamps of the paper say so.
//! 3. Stores to a commit variable between two ordering points are one commit write: a pointer of 16 bytes
//!    is stored by two instructions.
//! 4. What was durable before a commit variable was named counts as unmodified.
//! 5. Where a byte is neither durable nor consistent, only the race is reported, as in figure 11.
//!
//! Where to start reading: `shadow.rs`. `cells.rs` holds what is known of stores, `commits.rs` of commit
//! variables, `objects.rs` of allocations and transactions.

mod candidates;
mod cells;
mod commits;
mod judgement;
mod objects;
mod options;
mod shadow;

pub use candidates::{Candidate, Candidates, OrderedStore};
pub use judgement::{ByteWatch, Judgement, NotDurable, Persistence};
pub use options::{CommitError, CommitVariable, ShadowOptions};
pub use powerfail_lint::ranges::PoolRange;
pub use shadow::Shadow;
