//! Transactions of libpmemobj: what was added or allocated, and what was stored.
//!
//! The marks of a trace say where transactions begin and end and what is added to them; pmemcheck's client
//! requests say the same with the same codes. The rules:
//!
//! - **PF0304**: a store of the user's in a transaction, to a pool of libpmemobj, of which a byte is neither
//!   added to the transaction nor allocated in it. What was allocated otherwise since the transaction began,
//!   or is only reserved, was not in use before, so nothing has to be restored.
//! - **PF0506**: an add all of whose bytes are part of the transaction already.
//! - **PF0507**: an add to a transaction that is committed, of which no byte was stored to in that transaction.
//!   Freeing an object counts as a store to it.
//!
//! A transaction inside of another one is a part of it. What the library does inside of its own functions is
//! its own business, with the exception of those that copy for their caller.
//!
//! A step costs the logarithm of the number of ranges in a transaction: each of its tables joins what
//! touches, so whatever is looked through once is one range afterwards.

mod transaction;

use powerfail_model::{PoolIndex, PoolOffset};
use powerfail_protocol::mark;
use powerfail_trace::StackId;
use powerfail_trace::annotation;
use rustc_hash::FxHashMap;

use crate::ranges::PoolRange;
use crate::ranges::RangeMap;
use crate::tally::{Calls, Seen};

pub(crate) use transaction::{Add, Cover, Transaction, is_within};

/// How many occurrences of a store are kept, so that a crash can be tried at one that matters.
const STORES_MAX: usize = 8;

/// Everything that is known of transactions.
#[derive(Debug, Default)]
pub(crate) struct Transactions {
    threads: Vec<ThreadState>,
    /// Whether a pool is one of libpmemobj, by its number.
    pools: Vec<bool>,
    /// What is reserved and not published, with the mark that says so.
    pub(crate) reserved: RangeMap<u64>,
    /// What needs no transaction, as the program says.
    pub(crate) ignored: RangeMap<()>,
    /// The objects that are allocated, with the mark that says so.
    pub(crate) objects: RangeMap<u64>,
    /// Adds, useless if all of it was there already.
    pub(crate) duplicates: Calls,
    /// Adds to committed transactions, useless if nothing was stored there.
    pub(crate) unused: Calls,
    /// What the first useless add of a place has to do with, by the event of the add.
    pub(crate) partners: FxHashMap<u64, Partner>,
    /// Events of stores that were not added, by the user's frame.
    pub(crate) stores: FxHashMap<StackId, Vec<u64>>,
}

/// Another event that has a part in a useless add.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Partner {
    /// The bytes were added before.
    Add(Seen),
    /// They were allocated in the transaction.
    Allocation(Seen),
    /// The commit before which nothing was stored.
    Commit(Seen),
}

/// A thread.
#[derive(Debug, Default)]
pub(crate) struct ThreadState {
    /// The function of the library in which it is.
    pub(crate) call: Option<u64>,
    pub(crate) transaction: Option<Transaction>,
}

impl ThreadState {
    /// Whether what the thread stores is its own business, as far as marks say.
    pub(crate) fn stores_for_user(&self) -> bool {
        self.call.is_none_or(mark::stores_for_caller)
    }
}

impl Transactions {
    #[inline]
    pub(crate) fn thread(&mut self, thread: u32) -> &mut ThreadState {
        let slot = thread as usize;
        if slot >= self.threads.len() {
            self.threads.resize_with(slot + 1, ThreadState::default);
        }
        &mut self.threads[slot]
    }

    /// A thread, and what is reserved.
    #[inline]
    pub(crate) fn thread_and_reserved(
        &mut self,
        thread: u32,
    ) -> (&mut ThreadState, &RangeMap<u64>) {
        self.thread(thread);
        (&mut self.threads[thread as usize], &self.reserved)
    }

    pub(crate) fn is_known(&self, pool: PoolIndex) -> bool {
        self.pools.get(pool.0 as usize) == Some(&true)
    }

    /// Whether the program has said that a store needs no transaction.
    pub(crate) fn is_ignored(&self, pool: PoolIndex, offset: PoolOffset, len: usize) -> bool {
        let len = len as u64;
        !self.ignored.is_empty() && is_within(&self.ignored, PoolRange { pool, offset, len })
    }

    pub(crate) fn know(&mut self, pool: PoolIndex) {
        let slot = pool.0 as usize;
        if slot >= self.pools.len() {
            self.pools.resize(slot + 1, false);
        }
        self.pools[slot] = true;
    }

    /// An object is allocated, or reserved.
    pub(crate) fn allocate(&mut self, thread: u32, event: u64, value: u64, range: PoolRange) {
        self.objects.insert(range, event);
        if value & annotation::allocation::RESERVED != 0 {
            self.reserved.insert(range, event);
        } else if let Some(transaction) = &mut self.thread(thread).transaction {
            transaction.fresh.insert(range, ());
        }
    }

    /// An object is freed; of one that was only reserved its first byte is named. Gives all of that one: it has
    /// never been there.
    pub(crate) fn free(&mut self, range: PoolRange) -> Option<PoolRange> {
        let reserved = take_whole(&mut self.reserved, range);
        self.objects.remove(reserved.unwrap_or(range));
        reserved
    }

    /// A reserved object becomes a real one.
    pub(crate) fn publish(&mut self, thread: u32, range: PoolRange) {
        if let Some(object) = take_whole(&mut self.reserved, range)
            && let Some(transaction) = &mut self.thread(thread).transaction
        {
            transaction.fresh.insert(object, ());
        }
    }

    /// A store to what was not added.
    pub(crate) fn note_store(&mut self, user: StackId, event: u64) {
        let events = self.stores.entry(user).or_default();
        if events.len() < STORES_MAX {
            events.push(event);
        }
    }

    /// An add was useless: remembers with what it has to do, for the first one of a place.
    pub(crate) fn note_partner(&mut self, calls: &Calls, add: Seen, partner: Partner) {
        let first = calls.0.get(&add.user).and_then(|uses| uses.first);
        if first.is_some_and(|first| first.event == add.event) {
            self.partners.insert(add.event, partner);
        }
    }

    /// Nothing that was found until now is of interest.
    pub(crate) fn forget(&mut self) {
        self.duplicates = Calls::default();
        self.unused = Calls::default();
        self.partners.clear();
        self.stores.clear();
        for state in &mut self.threads {
            if let Some(transaction) = &mut state.transaction {
                transaction.adds.clear();
            }
        }
    }

    /// The transaction of a thread has ended. Gives what has never been there, because it was rolled back.
    pub(crate) fn end(&mut self, thread: u32) -> Vec<PoolRange> {
        let Some(transaction) = self.thread(thread).transaction.take() else {
            return Vec::new();
        };
        let gone = if transaction.is_aborted {
            &transaction.allocated
        } else {
            &transaction.freed
        };
        for range in gone {
            self.objects.remove(*range);
        }
        let mut unused = std::mem::take(&mut self.unused);
        for add in &transaction.adds {
            let is_used = transaction.stored.overlapping(add.range).next().is_some();
            if transaction.is_aborted && !is_used {
                // What it would have stored is unknown.
                continue;
            }
            unused.add(add.seen, !is_used);
            if let (false, Some(commit)) = (is_used, transaction.commit) {
                self.note_partner(&unused, add.seen, Partner::Commit(commit));
            }
        }
        self.unused = unused;
        if transaction.is_aborted {
            transaction.allocated
        } else {
            Vec::new()
        }
    }
}

/// Takes out the whole range that a byte lies in.
fn take_whole(ranges: &mut RangeMap<u64>, byte: PoolRange) -> Option<PoolRange> {
    let (whole, _) = ranges.overlapping(byte).next()?;
    ranges.remove(whole);
    Some(whole)
}
