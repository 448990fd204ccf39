//! Transactions: where they begin and end, and what is added to them.
//!
//! # Safety
//!
//! The functions have the contracts and the signatures of the headers of libpmemobj 1.12, and pass on what they
//! got. What is known of a thread lies in its private memory.
#![allow(unsafe_code, reason = "stands in for functions of libpmemobj")]

use core::ffi::{c_int, c_void};

use powerfail_protocol::mark::{self, add};

use super::call::{Call, leave, leave_range, observed, original, pass_on, thread};
use super::object::{FLAG_NO_FLUSH, FLAG_NO_SNAPSHOT, Oid, address_of};
use crate::record::append;

/// The stage in which the target does its work.
const STAGE_WORK: c_int = 1;

#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn pmemobj_tx_begin() {
    pass_on!(begins)
}

extern "C" fn begins(pool: u64) -> extern "C" fn() {
    if let Some(thread) = thread() {
        // SAFETY: `thread` gives private memory of the calling thread, which no handler of ours changes.
        unsafe {
            (*thread).transactions += 1;
            let code = if (*thread).transactions == 1 {
                (*thread).pool = pool;
                mark::TRANSACTION_BEGIN
            } else {
                mark::NESTED_BEGIN
            };
            append::append_mark_with_stack([code.into(), 0]);
        }
    }
    original!(pmemobj_tx_begin as extern "C" fn())
}

/// What has to be said before a commit or an abort.
fn about_to(code: u32) {
    if let Some(thread) = thread() {
        // SAFETY: `thread` gives private memory of the calling thread, which no handler of ours changes.
        let (transactions, calls) = unsafe { ((*thread).transactions, (*thread).calls) };
        // The commit of a transaction inside of another one makes nothing durable; its abort undoes both.
        let matters = transactions == 1 || transactions > 1 && code == mark::TRANSACTION_ABORT;
        if calls == 0 && matters {
            append::append_mark_with_stack([code.into(), 0]);
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn pmemobj_tx_commit() {
    about_to(mark::TRANSACTION_COMMIT);
    let call = Call::enter(const { mark::function("pmemobj_tx_commit") });
    original!(pmemobj_tx_commit as extern "C" fn())();
    call.leave();
}

#[unsafe(no_mangle)]
extern "C" fn pmemobj_tx_abort(error: c_int) {
    about_to(mark::TRANSACTION_ABORT);
    let call = Call::enter(const { mark::function("pmemobj_tx_abort") });
    original!(pmemobj_tx_abort as extern "C" fn(c_int))(error);
    call.leave();
}

/// Goes from stage to stage: what follows the target's work is the commit.
#[unsafe(no_mangle)]
extern "C" fn pmemobj_tx_process() {
    let original = original!(pmemobj_tx_process as extern "C" fn());
    if thread().is_none() || original!(pmemobj_tx_stage as extern "C" fn() -> c_int)() != STAGE_WORK
    {
        original();
        return;
    }
    about_to(mark::TRANSACTION_COMMIT);
    let call = Call::enter(const { mark::function("pmemobj_tx_commit") });
    original();
    call.leave();
}

#[unsafe(no_mangle)]
extern "C" fn pmemobj_tx_end() -> c_int {
    let call = Call::enter(const { mark::function("pmemobj_tx_end") });
    let failed = original!(pmemobj_tx_end as extern "C" fn() -> c_int)();
    call.leave();
    if let Some(thread) = thread() {
        // SAFETY: `thread` gives private memory of the calling thread, which no handler of ours changes.
        unsafe {
            (*thread).transactions = (*thread).transactions.saturating_sub(1);
            if failed != 0 {
                // Of a failure inside of the library this is the first word.
                leave(mark::TRANSACTION_ABORT);
            }
            leave(if (*thread).transactions == 0 {
                mark::TRANSACTION_END
            } else {
                mark::NESTED_END
            });
        }
    }
    failed
}

fn added(done: c_int, address: Option<u64>, len: usize, flags: u64) {
    if let (0, Some(address)) = (done, address) {
        let mut value = 0;
        if flags & FLAG_NO_SNAPSHOT != 0 {
            value |= add::NO_SNAPSHOT;
        }
        if flags & FLAG_NO_FLUSH != 0 {
            value |= add::NO_FLUSH;
        }
        leave_range(mark::TRANSACTION_ADD, value, address, len as u64);
    }
}

observed!(
    fn pmemobj_tx_add_range(object: Oid, offset: u64, len: usize) -> c_int,
    |done| {
        let start = address_of(object).map(|start| start + offset);
        added(done, start, len, 0);
    }
);

observed!(
    fn pmemobj_tx_add_range_direct(address: *const c_void, len: usize) -> c_int,
    |done| {
        added(done, Some(address as u64), len, 0);
    }
);

observed!(
    fn pmemobj_tx_xadd_range(object: Oid, offset: u64, len: usize, flags: u64) -> c_int,
    |done| {
        let start = address_of(object).map(|start| start + offset);
        added(done, start, len, flags);
    }
);

observed!(
    fn pmemobj_tx_xadd_range_direct(address: *const c_void, len: usize, flags: u64) -> c_int,
    |done| {
        added(done, Some(address as u64), len, flags);
    }
);
