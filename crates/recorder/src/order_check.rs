//! Checks the order of stores: a store that several threads may race with has recorded what it found, and that must be what
//! the stores before it in the trace have left.
//!
//! Replaying the trace shows only what the last store to a byte was. This shows a wrong order that a later store hides.
//!
//! A fixed number of lines is remembered, those that were stored to last: stores that race are close to each other.

use powerfail_model::{PoolIndex, PoolOffset};

/// How many lines are remembered.
const LINES: usize = 1 << 14;
const LINE_LEN: usize = 64;

/// What the trace says that a line holds.
#[derive(Clone, Copy, Debug)]
struct Line {
    pool: PoolIndex,
    number: u64,
    /// A bit for each byte that is known.
    known: u64,
    bytes: [u8; LINE_LEN],
}

/// A byte that a store found otherwise than the trace explains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contradiction {
    pub(crate) pool: PoolIndex,
    pub(crate) offset: PoolOffset,
    /// What the stores before have left there, according to the trace.
    pub(crate) traced: u8,
    /// What the store found.
    pub(crate) found: u8,
}

/// The state of the check.
#[derive(Debug, Default)]
pub(crate) struct OrderCheck {
    /// Empty until a store has recorded what it found.
    lines: Vec<Option<Line>>,
    first: Option<Contradiction>,
    count: u64,
}

impl OrderCheck {
    /// The first contradiction, and how many bytes contradicted the trace in total.
    pub(crate) fn result(&self) -> Option<(Contradiction, u64)> {
        Some((self.first?, self.count))
    }

    /// The next store in the trace, with what it found, if that was recorded.
    pub(crate) fn store(
        &mut self,
        pool: PoolIndex,
        offset: PoolOffset,
        bytes: &[u8],
        found: Option<&[u8]>,
    ) {
        if let Some(found) = found {
            self.find(pool, offset, found);
        }
        self.each_line(offset, bytes.len(), |check, number, at, range| {
            if let Some(line) = check.line(pool, number, found.is_some()) {
                for (place, byte) in (at..).zip(&bytes[range]) {
                    line.bytes[place] = *byte;
                    line.known |= 1 << place;
                }
            }
        });
    }

    /// The next operation in the trace found these bytes.
    pub(crate) fn find(&mut self, pool: PoolIndex, offset: PoolOffset, found: &[u8]) {
        self.each_line(offset, found.len(), |check, number, at, range| {
            let Some(line) = check.line(pool, number, false).copied() else {
                return;
            };
            for (place, byte) in (at..).zip(&found[range]) {
                if line.known & 1 << place != 0 && line.bytes[place] != *byte {
                    check.count += 1;
                    check.first.get_or_insert(Contradiction {
                        pool,
                        offset: PoolOffset(number * LINE_LEN as u64 + place as u64),
                        traced: line.bytes[place],
                        found: *byte,
                    });
                }
            }
        });
    }

    /// A pool has a new length: what is beyond it is not what was stored there.
    pub(crate) fn resize(&mut self) {
        self.lines.fill(None);
    }

    /// Calls `visit` for each line of a range: its number, the first byte in it, and the part of the range in it.
    fn each_line(
        &mut self,
        offset: PoolOffset,
        len: usize,
        mut visit: impl FnMut(&mut Self, u64, usize, std::ops::Range<usize>),
    ) {
        let mut done = 0;
        while done < len {
            let offset = offset.0 + done as u64;
            let (number, at) = (offset / LINE_LEN as u64, offset as usize % LINE_LEN);
            let end = len.min(done + LINE_LEN - at);
            visit(self, number, at, done..end);
            done = end;
        }
    }

    /// A line, if it is remembered or is to be.
    fn line(&mut self, pool: PoolIndex, number: u64, remember: bool) -> Option<&mut Line> {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        if self.lines.is_empty() {
            if !remember {
                return None;
            }
            self.lines.resize(LINES, None);
        }
        let mixed = (number ^ u64::from(pool.0) << 48).wrapping_mul(FACTOR);
        let place = &mut self.lines[(mixed >> 32) as usize % LINES];
        let is_it = |line: &Line| (line.pool, line.number) == (pool, number);
        if !place.as_ref().is_some_and(is_it) {
            if !remember {
                return None;
            }
            *place = Some(Line {
                pool,
                number,
                known: 0,
                bytes: [0; LINE_LEN],
            });
        }
        place.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::{Contradiction, OrderCheck};
    use powerfail_model::{PoolIndex, PoolOffset};

    const POOL: PoolIndex = PoolIndex(3);

    #[test]
    fn a_hidden_wrong_order_is_found() {
        // In truth 1, 2, 3. The last store hides that the first two are the wrong way round.
        let mut check = OrderCheck::default();
        check.store(POOL, PoolOffset(100), &[2], Some(&[1]));
        check.store(POOL, PoolOffset(100), &[1], Some(&[0]));
        check.store(POOL, PoolOffset(100), &[3], Some(&[2]));
        let first = Contradiction {
            pool: POOL,
            offset: PoolOffset(100),
            traced: 2,
            found: 0,
        };
        assert_eq!(check.result(), Some((first, 2)));
    }

    #[test]
    fn the_real_order_of_overlapping_stores_is_no_contradiction() {
        let mut check = OrderCheck::default();
        check.store(POOL, PoolOffset(60), &[1; 8], Some(&[0; 8]));
        // Nothing is known of what it found.
        check.store(POOL, PoolOffset(62), &[2; 4], None);
        check.find(POOL, PoolOffset(61), &[1, 2, 2]);
        check.store(POOL, PoolOffset(65), &[3, 4], Some(&[2, 1]));
        check.find(POOL, PoolOffset(60), &[1, 1, 2, 2, 2, 3, 4, 1, 77]);
        // Another pool, and a line of which nothing is remembered.
        check.store(PoolIndex(4), PoolOffset(60), &[9; 8], Some(&[5; 8]));
        check.store(POOL, PoolOffset(4096), &[9; 8], Some(&[6; 8]));
        assert_eq!(check.result(), None);
        check.resize();
        check.find(POOL, PoolOffset(60), &[0; 8]);
        assert_eq!(check.result(), None);
    }
}
