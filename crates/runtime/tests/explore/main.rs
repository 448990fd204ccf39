//! Explore mode, with the test in the role of the oracle: what recoveries observe, completely.
//!
//! # Safety
//!
//! The file that is shared with a recovery is accessed by pointers, at the offsets that the protocol defines.
#![allow(unsafe_code)]
#![allow(
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    clippy::mut_from_ref
)]

mod branches;
mod hot;
mod loads;
mod made_up;
mod notes;
mod orders;
mod software;
mod system_calls;
mod threads;
mod zygote;

use zygote::{Outcome, Table, Zygote};

/// The output of all executions, by both engines, which must agree.
fn outputs(table: &Table, mode: &str) -> Vec<String> {
    let forked = Zygote::fork_all(table, mode).unwrap();
    let mut sorted = forked.clone();
    sorted.sort();
    let mut repeated = Zygote::reexecute_all(table, mode).unwrap();
    repeated.sort();
    assert_eq!(sorted, repeated);
    let fine = |outcome: &Outcome| outcome.end == Ok(0);
    assert!(forked.iter().all(fine), "{forked:?}");
    forked.into_iter().map(|outcome| outcome.output).collect()
}
