//! What marks and stores mean for transactions; see `crate::transactions`.

use powerfail_finding::Code;
use powerfail_model::Place;
use powerfail_trace::annotation::{AnnotatedRange, Annotation, add, allocation};

use super::{Moment, Pass};
use crate::attribution::User;
use crate::ranges::PoolRange;
use crate::tally::Seen;
use crate::transactions::{Add, Cover, Partner, Transaction};

impl Pass<'_> {
    pub(super) fn transaction_mark(
        &mut self,
        now: Moment,
        annotation: Annotation,
        value: u64,
        payload: &[u8],
    ) {
        let state = self.transactions.thread(now.thread);
        match annotation {
            Annotation::LibraryEnter => state.call = Some(value),
            Annotation::LibraryLeave => state.call = None,
            // Client requests of the library itself repeat what is said of its functions.
            _ if state.call.is_some() => {}
            // The second of two is the client request of a library whose function is marked, too.
            Annotation::TransactionBegin
                if state.transaction.as_ref().is_none_or(|it| it.is_over) =>
            {
                let begin = Seen::new(now.event, now.stack, self.users.of_store(now.stack));
                state.transaction = Some(Transaction::new(begin));
            }
            Annotation::TransactionCommit => {
                let user = self.users.of_store(now.stack);
                if let Some(transaction) = &mut state.transaction {
                    transaction.is_over = true;
                    transaction.commit = Some(Seen::new(now.event, now.stack, user));
                }
            }
            Annotation::TransactionAbort => {
                if let Some(transaction) = &mut state.transaction {
                    transaction.is_over = true;
                    transaction.is_aborted = true;
                }
            }
            Annotation::TransactionEnd => {
                for range in self.transactions.end(now.thread) {
                    self.forget_stores(range);
                }
            }
            _ if annotation.has_ranges() => {
                for range in AnnotatedRange::all(payload).filter_map(PoolRange::of_mark) {
                    self.transaction_range(now, annotation, value, range);
                }
            }
            _ => {}
        }
    }

    fn transaction_range(
        &mut self,
        now: Moment,
        annotation: Annotation,
        value: u64,
        range: PoolRange,
    ) {
        match annotation {
            Annotation::Open => self.transactions.know(range.pool),
            Annotation::TransactionAdd => self.add(now, value, range),
            Annotation::TransactionAllocate => {
                self.transactions.know(range.pool);
                self.transactions.objects.insert(range, now.event);
                let seen = Seen::new(now.event, now.stack, self.users.of_store(now.stack));
                let cover = Cover {
                    seen,
                    is_allocation: true,
                    no_flush: value & allocation::NO_FLUSH != 0,
                    no_snapshot: false,
                };
                if let Some(transaction) = &mut self.transactions.thread(now.thread).transaction {
                    transaction.cover(range, cover);
                    transaction.allocated.push(range);
                }
            }
            Annotation::TransactionFree => {
                if let Some(transaction) = &mut self.transactions.thread(now.thread).transaction {
                    transaction.store(range);
                    if !transaction.has_allocated(range) {
                        transaction.freed.push(range);
                        return;
                    }
                    // It is never visible, however the transaction ends.
                    self.transactions.objects.remove(range);
                    self.forget_stores(range);
                }
            }
            Annotation::Allocate => {
                self.transactions
                    .allocate(now.thread, now.event, value, range);
            }
            Annotation::Free => {
                if let Some(cancelled) = self.transactions.free(range) {
                    self.forget_stores(cancelled);
                }
            }
            Annotation::Publish => self.transactions.publish(now.thread, range),
            _ => {}
        }
    }

    fn add(&mut self, now: Moment, value: u64, range: PoolRange) {
        self.transactions.know(range.pool);
        let user = self.users.of_store(now.stack);
        let Some(transaction) = &mut self.transactions.thread(now.thread).transaction else {
            return;
        };
        let seen = Seen::new(now.event, now.stack, user);
        let cover = Cover {
            seen,
            is_allocation: false,
            no_flush: value & add::NO_FLUSH != 0,
            no_snapshot: value & add::NO_SNAPSHOT != 0,
        };
        let before = transaction.cover(range, cover);
        let before = before.filter(|before| before.does_all_of(cover));
        if !user.is_attributed() || now.silent {
            return;
        }
        if before.is_none() {
            transaction.adds.push(Add { seen, range });
        }
        let mut duplicates = std::mem::take(&mut self.transactions.duplicates);
        duplicates.add(seen, before.is_some());
        if let Some(before) = before {
            let partner = if before.is_allocation {
                Partner::Allocation(before.seen)
            } else {
                Partner::Add(before.seen)
            };
            self.transactions.note_partner(&duplicates, seen, partner);
        }
        self.transactions.duplicates = duplicates;
    }

    pub(super) fn transaction_store(&mut self, now: Moment, at: Place, len: usize, user: User) {
        let is_known = self.transactions.is_known(at.pool)
            && !self.transactions.is_ignored(at.pool, at.offset, len);
        let (state, reserved) = self.transactions.thread_and_reserved(now.thread);
        let stores_for_user = state.stores_for_user();
        let in_call = state.call.is_some();
        let Some(transaction) = &mut state.transaction else {
            return;
        };
        if transaction.is_over || !stores_for_user || len == 0 {
            return;
        }
        let range = PoolRange {
            pool: at.pool,
            offset: at.offset,
            len: len as u64,
        };
        transaction.store(range);
        if !is_known
            || now.silent
            || !user.is_attributed()
            || transaction.takes_care_of(range, reserved)
            || (!in_call && self.users.is_in_library(now.stack))
        {
            return;
        }
        let places = [Seen::new(now.event, now.stack, user), transaction.begin];
        self.tallies.add(Code::StoreNotAdded, &places);
        self.transactions.note_store(places[0].user, now.event);
    }
}
