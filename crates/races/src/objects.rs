//! Allocated memory that is not written yet, and what transactions promise to restore.

use powerfail_model::{EventIndex, PoolIndex, PoolOffset, ThreadIndex};
use powerfail_trace::annotation::{self, Annotation, allocation};
use rustc_hash::FxHashMap;

use powerfail_lint::ranges::PoolRange;
use powerfail_lint::ranges::{Cell, RangeMap};

/// The outermost transaction of a thread.
#[derive(Clone, Debug, Default)]
struct Transaction {
    /// What its rollback restores, or takes back.
    restored: RangeMap<()>,
    allocated: Vec<PoolRange>,
    freed: Vec<PoolRange>,
    is_aborted: bool,
}

/// Follows allocations and transactions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects {
    /// Allocated and not written since, with the mark of the allocation.
    pub(crate) uninitialised: RangeMap<EventIndex>,
    /// How long objects are that are reserved and not published, by pool and first byte.
    reserved: FxHashMap<(PoolIndex, PoolOffset), u64>,
    transactions: FxHashMap<ThreadIndex, Transaction>,
}

impl Objects {
    /// A mark. `allocation` is none where annotations want no findings about what is allocated. Whether its
    /// ranges are restored from now on if the transaction is not committed.
    pub(crate) fn mark(
        &mut self,
        allocation: Option<EventIndex>,
        thread: ThreadIndex,
        annotation: Annotation,
        value: u64,
        ranges: impl Iterator<Item = PoolRange>,
    ) -> bool {
        match annotation {
            Annotation::Allocate => self.allocate(allocation, value, ranges),
            Annotation::TransactionAllocate => {
                let ranges: Vec<PoolRange> = ranges.collect();
                self.allocate(allocation, value, ranges.iter().copied());
                let transaction = self.transactions.entry(thread).or_default();
                for range in ranges {
                    transaction.restored.insert(range, ());
                    transaction.allocated.push(range);
                }
                return true;
            }
            Annotation::TransactionAdd if value & annotation::add::NO_SNAPSHOT == 0 => {
                let transaction = self.transactions.entry(thread).or_default();
                ranges.for_each(|range| transaction.restored.insert(range, ()));
                return true;
            }
            Annotation::Free => {
                for mut range in ranges {
                    // Of an object that was only reserved the mark names the first byte.
                    if let Some(len) = self.reserved.remove(&(range.pool, range.offset)) {
                        range.len = len;
                    }
                    self.uninitialised.remove(range);
                }
            }
            Annotation::Publish => {
                for range in ranges {
                    self.reserved.remove(&(range.pool, range.offset));
                }
            }
            Annotation::TransactionFree => {
                let transaction = self.transactions.entry(thread).or_default();
                transaction.freed.extend(ranges);
            }
            Annotation::TransactionAbort => {
                let transaction = self.transactions.entry(thread).or_default();
                transaction.is_aborted = true;
            }
            Annotation::TransactionBegin => {
                self.transactions.remove(&thread);
            }
            Annotation::TransactionEnd => self.end(thread),
            _ => {}
        }
        false
    }

    fn allocate(
        &mut self,
        allocation: Option<EventIndex>,
        value: u64,
        ranges: impl Iterator<Item = PoolRange>,
    ) {
        let is_written = value & (allocation::ZEROED | allocation::WRITTEN) != 0;
        for range in ranges {
            if value & allocation::RESERVED != 0 {
                let first = (range.pool, range.offset);
                self.reserved.insert(first, range.len);
            }
            match allocation {
                Some(allocation) if !is_written => self.uninitialised.insert(range, allocation),
                _ => {
                    self.uninitialised.remove(range);
                }
            }
        }
    }

    /// A transaction ends: what it allocated or freed is gone, depending on how it ends.
    fn end(&mut self, thread: ThreadIndex) {
        let Some(transaction) = self.transactions.remove(&thread) else {
            return;
        };
        let gone = if transaction.is_aborted {
            transaction.allocated
        } else {
            transaction.freed
        };
        for range in gone {
            self.uninitialised.remove(range);
        }
    }

    /// The thread is gone, and whatever transaction it was in.
    pub(crate) fn end_thread(&mut self, thread: ThreadIndex) {
        self.transactions.remove(&thread);
    }

    /// The bytes of a line that the transaction of a thread restores.
    pub(crate) fn restored(&self, thread: ThreadIndex, cell: Cell) -> u64 {
        let transaction = self.transactions.get(&thread);
        transaction.map_or(0, |transaction| transaction.restored.mask(cell))
    }
}
