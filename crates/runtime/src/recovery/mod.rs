//! The runtime in a *recovery*. For lazy exploration it decides what the recovery observes of lines that a crash has
//! left open, for races it notes which instructions read watched bytes, for eager exploration it only makes the
//! snapshot from which executions are forked. So the room is named after the process, and not after one of the three.
//!
//! [`powerfail_protocol::explore`] says what is shared with the oracle and how a recovery lives. In short:
//! the process stops before it first touches a pool, executions are forked from there, and in a lazy
//! execution each load from an open line is a choice.
//!
//! # How a load is seen
//!
//! Pages with open lines have no access rights where the recovery sees them; their content, the *truth*,
//! is elsewhere ([`state`] says where). A load faults; [`access`] says which bytes the instruction reads
//! and writes; [`choose`] decides what it observes, and may branch; [`step`] shows the page, lets the
//! instruction run alone, and hides the page again. What the kernel reads and writes comes through
//! [`pool_calls`]: system calls of the C library have breakpoints.
//!
//! Pages with bytes whose first read is to be noted ([`read_notes`]) are hidden in the same way, until all of them
//! are read or overwritten. What the recovery says of its reads by annotations is in [`attention`].
//!
//! An instruction that has met such a page gets a trampoline ([`hot_sites`]), which goes to the truth by itself
//! where nothing is to be decided ([`access_table`]).
//!
//! # One at a time
//!
//! All of this is done under one lock, the [`turn`], which is held while an instruction runs alone. Other threads would
//! see a page that is shown: where there are any, [`among_threads`] sends the instruction to the truth instead.

mod access;
mod access_table;
mod among_threads;
mod arithmetic;
mod attention;
pub(crate) mod breakpoints;
mod choose;
pub(crate) mod fork;
mod found_functions;
mod hot_sites;
mod load_stacks;
mod lock_owners;
mod log;
mod mappings;
mod open_lines;
mod oracle_messages;
mod ordering;
mod own_files;
mod pages;
pub(crate) mod paths;
pub(crate) mod pool_addresses;
pub(crate) mod pool_calls;
mod read_notes;
mod registers;
mod shared_file;
mod simple_accesses;
mod slow_sites;
mod snapshot;
mod state;
mod step;
mod string_functions;
mod string_instructions;
mod transfer;
mod turn;

use core::sync::atomic::{AtomicBool, Ordering};

use powerfail_protocol::explore::{RecoveryMessageKind, RefusalKind, flag};

use crate::libc::execute;
use crate::platform::{signals, sys};
use crate::record::threads;

pub(crate) use attention::{Bytes, annotation};
pub(crate) use breakpoints::loaded_code;
pub(crate) use fork::{after_fork, before_fork};
pub(crate) use own_files::{map_file, open_file, synced};
pub(crate) use pool_calls::perform;

static ACTIVE: AtomicBool = AtomicBool::new(false);

/// Whether this process is a recovery that is explored.
pub(crate) fn is_active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

/// Whether loads from open lines are choices, or what is read or done to pools is noted.
fn is_lazy() -> bool {
    is_active() && shared_file::control().flags & (flag::LAZY | flag::LOG | flag::NOTES) != 0
}

fn has_flag(bit: u32) -> bool {
    shared_file::control().flags & bit != 0
}

/// Attaches to the oracle, if there is one that explores.
pub(crate) fn start() -> bool {
    if !shared_file::attach() {
        return false;
    }
    ACTIVE.store(true, Ordering::Relaxed);
    execute::remember_variables();
    threads::attach_unrecorded();
    signals::install_handlers(breakpoints::on_breakpoint, step::on_fault);
    load_stacks::begin();
    snapshot::begin();
    breakpoints::watch_paths();
    true
}

/// A second thread is about to be made.
pub(crate) fn expect_company() {
    turn::take(state::State::expect_company);
}

/// Something worth knowing.
pub(crate) fn warn(sentence: &str) {
    oracle_messages::send(RecoveryMessageKind::Warning, [0; 3], sentence);
}

/// Ends a recovery that did something that cannot be explored, and tells the oracle why.
pub(crate) fn refuse(reason: &str) -> ! {
    refuse_as(RefusalKind::NotExplorable, reason)
}

/// Ends a recovery that did something impossible while it has a private view of the pools. If it has
/// one now, the oracle can execute it again on the files themselves; if not, it cannot be explored.
pub(crate) fn refuse_private(reason: &str) -> ! {
    let kind = if has_flag(flag::PRIVATE) {
        RefusalKind::NotForkable
    } else {
        RefusalKind::NotExplorable
    };
    refuse_as(kind, reason)
}

fn refuse_as(kind: RefusalKind, reason: &str) -> ! {
    let words = [sys::getpid().into(), kind as u64, 0];
    oracle_messages::send(RecoveryMessageKind::Refused, words, reason);
    sys::exit_group(125)
}
