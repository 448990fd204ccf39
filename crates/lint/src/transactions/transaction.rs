//! One outermost transaction of a thread.

use crate::ranges::PoolRange;
use crate::ranges::RangeMap;
use crate::tally::Seen;

/// A range that was added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Add {
    pub(crate) seen: Seen,
    pub(crate) range: PoolRange,
}

/// Why bytes are part of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cover {
    pub(crate) seen: Seen,
    pub(crate) is_allocation: bool,
    /// The commit does not flush them.
    pub(crate) no_flush: bool,
    /// Rolling back does not restore them.
    pub(crate) no_snapshot: bool,
}

impl Cover {
    /// Whether another cover of the same bytes adds nothing.
    pub(crate) const fn does_all_of(self, other: Self) -> bool {
        (!self.no_flush || other.no_flush) && (!self.no_snapshot || other.no_snapshot)
    }
}

/// What is known about one outermost transaction.
#[derive(Debug)]
pub(crate) struct Transaction {
    /// Where it begins.
    pub(crate) begin: Seen,
    /// Where it is about to be committed.
    pub(crate) commit: Option<Seen>,
    /// It is being committed or rolled back: what is stored now is not a part of it.
    pub(crate) is_over: bool,
    pub(crate) is_aborted: bool,
    /// What was added, or allocated by it.
    covered: RangeMap<()>,
    /// By whom first: places in `covers`.
    owners: RangeMap<u32>,
    covers: Vec<Cover>,
    /// What was allocated by others means since it began, and reserved objects that it will publish.
    pub(crate) fresh: RangeMap<()>,
    /// What the user has stored to.
    pub(crate) stored: RangeMap<()>,
    /// Adds of something new.
    pub(crate) adds: Vec<Add>,
    pub(crate) allocated: Vec<PoolRange>,
    pub(crate) freed: Vec<PoolRange>,
}

impl Transaction {
    pub(crate) fn new(begin: Seen) -> Self {
        Self {
            begin,
            commit: None,
            is_over: false,
            is_aborted: false,
            covered: RangeMap::default(),
            owners: RangeMap::default(),
            covers: Vec::new(),
            fresh: RangeMap::default(),
            stored: RangeMap::default(),
            adds: Vec::new(),
            allocated: Vec::new(),
            freed: Vec::new(),
        }
    }

    /// Makes a range part of the transaction. Gives whose its first byte was, if all of it was there already.
    pub(crate) fn cover(&mut self, range: PoolRange, cover: Cover) -> Option<Cover> {
        let number = self.covers.len() as u32;
        let mut is_new = false;
        let owners = &mut self.owners;
        each_gap(&self.covered, range, |gap| {
            is_new = true;
            owners.insert(gap, number);
        });
        if is_new {
            self.covers.push(cover);
            self.covered.insert(range, ());
            return None;
        }
        let first = PoolRange { len: 1, ..range };
        let (_, owner) = self.owners.overlapping(first).next()?;
        Some(self.covers[owner as usize])
    }

    /// A range is no longer part of the transaction.
    pub(crate) fn uncover(&mut self, range: PoolRange) {
        self.covered.remove(range);
        self.owners.remove(range);
    }

    /// Whether the transaction covers all bytes, or they need no cover.
    pub(crate) fn takes_care_of(&self, range: PoolRange, reserved: &RangeMap<u64>) -> bool {
        let mut does = true;
        each_gap(&self.covered, range, |gap| {
            if does {
                each_gap(&self.fresh, gap, |rest| {
                    does &= is_within(reserved, rest);
                });
            }
        });
        does
    }

    /// Whether an object was allocated by this transaction.
    pub(crate) fn has_allocated(&self, object: PoolRange) -> bool {
        let is_it = |it: &PoolRange| it.pool == object.pool && it.offset == object.offset;
        self.allocated.iter().any(is_it)
    }

    /// The user has stored something.
    pub(crate) fn store(&mut self, range: PoolRange) {
        if !is_within(&self.stored, range) {
            self.stored.insert(range, ());
        }
    }
}

/// Whether one range of a table contains all bytes.
pub(crate) fn is_within<V: Copy + PartialEq>(table: &RangeMap<V>, range: PoolRange) -> bool {
    let first = table.overlapping(range).next();
    first.is_some_and(|(found, _)| found.offset <= range.offset && found.end() >= range.end())
}

/// Shows the parts of a range that are not in a table, downwards.
fn each_gap<V: Copy + PartialEq>(
    table: &RangeMap<V>,
    range: PoolRange,
    mut show: impl FnMut(PoolRange),
) {
    let mut end = range.end();
    let mut show_between = |start: u64, end: u64| {
        if start < end {
            show(PoolRange {
                pool: range.pool,
                offset: powerfail_model::PoolOffset(start),
                len: end - start,
            });
        }
    };
    for (found, _) in table.overlapping(range) {
        show_between(found.end(), end);
        end = found.offset.0;
    }
    show_between(range.offset.0, end);
}

#[cfg(test)]
mod tests {
    use powerfail_model::{PoolIndex, PoolOffset};
    use powerfail_trace::StackId;

    use super::{Cover, Transaction, each_gap};
    use crate::ranges::PoolRange;
    use crate::ranges::RangeMap;
    use crate::tally::Seen;

    fn range(offset: u64, len: u64) -> PoolRange {
        PoolRange {
            pool: PoolIndex(0),
            offset: PoolOffset(offset),
            len,
        }
    }

    fn seen(event: u64) -> Seen {
        Seen {
            event,
            stack: StackId::NONE,
            user: StackId::NONE,
        }
    }

    fn cover(event: u64) -> Cover {
        Cover {
            seen: seen(event),
            is_allocation: false,
            no_flush: false,
            no_snapshot: false,
        }
    }

    #[test]
    fn gaps_are_what_is_left() {
        let mut table = RangeMap::default();
        table.insert(range(10, 10), ());
        table.insert(range(30, 10), ());
        let gaps = |of: PoolRange| {
            let mut gaps = Vec::new();
            each_gap(&table, of, |gap| gaps.push((gap.offset.0, gap.end())));
            gaps
        };
        assert_eq!(gaps(range(0, 50)), [(40, 50), (20, 30), (0, 10)]);
        assert_eq!(gaps(range(12, 20)), [(20, 30)]);
        assert_eq!(gaps(range(12, 4)), []);
        assert_eq!(gaps(range(50, 4)), [(50, 54)]);
    }

    #[test]
    fn a_range_is_covered_by_all_that_were_added() {
        let mut transaction = Transaction::new(seen(0));
        let nothing = RangeMap::default();
        assert_eq!(transaction.cover(range(0, 8), cover(1)), None);
        assert_eq!(transaction.cover(range(16, 8), cover(2)), None);
        assert!(!transaction.takes_care_of(range(0, 24), &nothing));
        assert_eq!(transaction.cover(range(8, 8), cover(3)), None);
        assert!(transaction.takes_care_of(range(0, 24), &nothing));
        let again = transaction.cover(range(8, 16), cover(4));
        assert_eq!(again.map(|cover| cover.seen.event), Some(3));
    }

    #[test]
    fn memory_that_was_not_in_use_needs_no_cover() {
        let mut transaction = Transaction::new(seen(0));
        let mut reserved = RangeMap::default();
        transaction.cover(range(0, 8), cover(1));
        transaction.fresh.insert(range(8, 8), ());
        reserved.insert(range(16, 8), 5);
        assert!(transaction.takes_care_of(range(0, 24), &reserved));
        assert!(!transaction.takes_care_of(range(0, 25), &reserved));
    }

    #[test]
    fn ten_thousand_pieces_become_one() {
        let mut transaction = Transaction::new(seen(0));
        for piece in 0..10_000 {
            transaction.cover(range(piece * 16, 8), cover(piece));
        }
        assert_eq!(transaction.cover(range(0, 160_000), cover(1)), None);
        assert_eq!(transaction.covered.iter().count(), 1);
    }
}
