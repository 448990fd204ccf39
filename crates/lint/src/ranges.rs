//! A table from bytes of pools to values, by ranges. Knows which bytes of a line have which value.

use std::collections::BTreeMap;

use powerfail_model::{PoolIndex, PoolOffset};

use powerfail_trace::AnnotatedRange;

/// Bytes of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolRange {
    /// The pool.
    pub pool: PoolIndex,
    /// Its first byte.
    pub offset: PoolOffset,
    /// How many bytes.
    pub len: u64,
}

impl PoolRange {
    /// The range of a mark, if it is of a pool.
    pub fn of_mark(range: AnnotatedRange) -> Option<Self> {
        Some(Self {
            pool: range.pool?,
            offset: PoolOffset(range.offset),
            len: range.len,
        })
    }

    /// The byte after the last one.
    pub const fn end(&self) -> u64 {
        self.offset.0.saturating_add(self.len)
    }

    /// The part that begins at an offset or later, if there is one.
    pub(crate) fn after(self, offset: u64) -> Option<Self> {
        let offset = offset.max(self.offset.0);
        let len = self.end().checked_sub(offset).filter(|len| *len > 0)?;
        Some(Self {
            offset: PoolOffset(offset),
            len,
            ..self
        })
    }
}

/// Length of a line that reads are noted of.
pub const LINE_BYTES: u64 = 64;

/// A line of 64 bytes: its pool, and its offset divided by 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell {
    /// The pool.
    pub pool: PoolIndex,
    /// The number of the line in it.
    pub line: u64,
}

impl Cell {
    /// The line that holds a byte.
    pub const fn of(pool: PoolIndex, offset: PoolOffset) -> Self {
        let line = offset.0 / LINE_BYTES;
        Self { pool, line }
    }

    /// The offset of its first byte.
    pub const fn offset(self) -> u64 {
        self.line * LINE_BYTES
    }

    const fn end(self) -> u64 {
        self.offset().saturating_add(LINE_BYTES)
    }

    /// The bytes of a range that lie in this line.
    pub fn mask(self, start: u64, end: u64) -> u64 {
        let from = start.max(self.offset());
        let to = end.min(self.end());
        if from >= to {
            return 0;
        }
        let len = to - from;
        let ones = u64::MAX >> (LINE_BYTES - len);
        ones << (from - self.offset())
    }
}

impl PoolRange {
    /// The lines in which it lies, with its bytes in each.
    pub fn cells(self) -> impl Iterator<Item = (Cell, u64)> {
        let first = self.offset.0 / LINE_BYTES;
        let end = if self.len == 0 {
            first
        } else {
            (self.end() - 1) / LINE_BYTES + 1
        };
        (first..end).map(move |line| {
            let cell = Cell {
                pool: self.pool,
                line,
            };
            (cell, cell.mask(self.offset.0, self.end()))
        })
    }

    /// How many lines it touches.
    pub const fn cell_count(self) -> u64 {
        self.len / LINE_BYTES + 2
    }
}

/// Values of ranges that do not overlap.
#[derive(Clone, Debug)]
pub struct RangeMap<V> {
    /// By pool and first byte: the byte after the last one, and the value.
    ranges: BTreeMap<(PoolIndex, u64), (u64, V)>,
}

impl<V> Default for RangeMap<V> {
    fn default() -> Self {
        Self {
            ranges: BTreeMap::new(),
        }
    }
}

impl<V: Copy + PartialEq> RangeMap<V> {
    /// Whether no byte has a value.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Gives all bytes of `range` the value, whatever they had.
    pub fn insert(&mut self, range: PoolRange, value: V) {
        if range.len == 0 {
            return;
        }
        self.remove(range);
        let (mut start, mut end) = (range.offset.0, range.end());
        // Neighbours with the same value become one, so that many small pieces cost one entry.
        if let Some((&(pool, before), &(before_end, before_value))) =
            self.ranges.range(..(range.pool, start)).next_back()
            && pool == range.pool
            && before_end == start
            && before_value == value
        {
            self.ranges.remove(&(pool, before));
            start = before;
        }
        if let Some(&(after_end, after_value)) = self.ranges.get(&(range.pool, end))
            && after_value == value
        {
            self.ranges.remove(&(range.pool, end));
            end = after_end;
        }
        self.ranges.insert((range.pool, start), (end, value));
    }

    /// Takes the values of all bytes of `range` away. Whether there were any.
    pub fn remove(&mut self, range: PoolRange) -> bool {
        let (start, end) = (range.offset.0, range.end());
        let mut any = false;
        while let Some((&(pool, from), &(to, value))) =
            self.ranges.range(..(range.pool, end)).next_back()
        {
            if pool != range.pool || to <= start {
                break;
            }
            any = true;
            self.ranges.remove(&(pool, from));
            if to > end {
                self.ranges.insert((pool, end), (to, value));
            }
            if from < start {
                self.ranges.insert((pool, from), (start, value));
                break;
            }
        }
        any
    }

    /// The ranges that touch `range`, downwards.
    pub fn overlapping(&self, range: PoolRange) -> impl Iterator<Item = (PoolRange, V)> {
        self.ranges
            .range(..(range.pool, range.end()))
            .rev()
            .take_while(move |&(&(pool, _), &(to, _))| {
                pool == range.pool && to > range.offset.0 && range.len > 0
            })
            .map(|(&(pool, from), &(to, value))| {
                let found = PoolRange {
                    pool,
                    offset: PoolOffset(from),
                    len: to - from,
                };
                (found, value)
            })
    }

    /// The bytes of a line that have values, range by range, downwards.
    pub fn in_cell(&self, cell: Cell) -> impl Iterator<Item = (u64, V)> {
        let whole = PoolRange {
            pool: cell.pool,
            offset: PoolOffset(cell.offset()),
            len: LINE_BYTES,
        };
        self.overlapping(whole)
            .map(move |(range, value)| (cell.mask(range.offset.0, range.end()), value))
    }

    /// The bytes of a line that have a value.
    pub fn mask(&self, cell: Cell) -> u64 {
        self.in_cell(cell).fold(0, |all, (mask, _)| all | mask)
    }

    /// All ranges by pool and offset.
    pub fn iter(&self) -> impl Iterator<Item = (PoolRange, V)> {
        self.ranges.iter().map(|(&(pool, from), &(to, value))| {
            let range = PoolRange {
                pool,
                offset: PoolOffset(from),
                len: to - from,
            };
            (range, value)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(offset: u64, len: u64) -> PoolRange {
        PoolRange {
            pool: PoolIndex(1),
            offset: PoolOffset(offset),
            len,
        }
    }

    fn content(map: &RangeMap<u8>) -> Vec<(u64, u64, u8)> {
        map.iter()
            .map(|(range, value)| (range.offset.0, range.end(), value))
            .collect()
    }

    #[test]
    fn a_later_range_cuts_those_before_it() {
        let mut map = RangeMap::default();
        map.insert(range(0, 100), 1);
        map.insert(range(40, 20), 2);
        map.insert(range(90, 20), 3);
        assert_eq!(
            content(&map),
            [(0, 40, 1), (40, 60, 2), (60, 90, 1), (90, 110, 3)]
        );
        assert!(map.remove(range(30, 65)));
        assert_eq!(content(&map), [(0, 30, 1), (95, 110, 3)]);
        assert!(!map.remove(range(30, 65)));
    }

    #[test]
    fn neighbours_with_one_value_are_one_range() {
        let mut map = RangeMap::default();
        for offset in [0, 16, 8] {
            map.insert(range(offset, 8), 1);
        }
        assert_eq!(content(&map), [(0, 24, 1)]);
    }

    #[test]
    fn lines_have_the_bytes_of_their_ranges() {
        let mut map = RangeMap::default();
        map.insert(range(60, 8), 1);
        map.insert(range(70, 200), 2);
        let cell = |line| Cell {
            pool: PoolIndex(1),
            line,
        };
        assert_eq!(map.mask(cell(0)), 0xf << 60);
        assert_eq!(map.mask(cell(1)), !0x30);
        assert_eq!(map.mask(cell(2)), u64::MAX);
        assert_eq!(map.in_cell(cell(1)).count(), 2);
        let cells: Vec<(u64, u64)> = range(60, 8)
            .cells()
            .map(|(cell, mask)| (cell.line, mask))
            .collect();
        assert_eq!(cells, [(0, 0xf << 60), (1, 0xf)]);
    }
}
