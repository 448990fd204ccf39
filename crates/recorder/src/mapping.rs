//! Where and when the pools are mapped in the address space of one process.
//!
//! Messages about mappings have no stamp, and a host that is behind learns of an unmapping before it
//! has translated the stores that came earlier. So mappings are kept with the time for which they
//! hold: from the moment at which the host learned of one, which is before its thread may use it, to
//! the moment at which it learned of its end, which is after the last use.

use powerfail_model::{PoolIndex, PoolOffset};

use crate::clock::Stamp;

/// A part of a pool in an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapping {
    address: u64,
    len_bytes: u64,
    pool: PoolIndex,
    /// Of the byte at `address`.
    offset: u64,
    from: Stamp,
    until: Stamp,
}

impl Mapping {
    const fn covers(&self, address: u64) -> bool {
        address.wrapping_sub(self.address) < self.len_bytes
    }

    fn holds_at(&self, stamp: Stamp) -> bool {
        self.from <= stamp && stamp < self.until
    }

    fn is_ended(&self) -> bool {
        self.until != Stamp::MAX
    }
}

/// A range of addresses that lies in one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) pool: PoolIndex,
    pub(crate) offset: PoolOffset,
    /// Distance from the beginning of the requested range.
    pub(crate) start: u64,
    pub(crate) len_bytes: u64,
}

/// Where the pools are in one address space.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mappings {
    /// Oldest first.
    mappings: Vec<Mapping>,
}

/// Ended mappings are kept until there are this many.
const ENDED_MAX: usize = 64;

impl Mappings {
    /// Adds a mapping of a part of a pool, which replaces mappings at the same addresses.
    pub(crate) fn map(
        &mut self,
        address: u64,
        len_bytes: u64,
        pool: PoolIndex,
        offset: u64,
        now: Stamp,
    ) {
        self.unmap(address, len_bytes, now);
        let until = Stamp::MAX;
        self.mappings.push(Mapping {
            address,
            len_bytes,
            pool,
            offset,
            from: now,
            until,
        });
    }

    /// From then on, the part at one address is also mapped at another, and may be longer there.
    pub(crate) fn copy(&mut self, from: u64, to: u64, len_bytes: u64, then: Stamp) {
        if let Some((pool, offset)) = self.at(then, from) {
            self.map(to, len_bytes, pool, offset.0, then);
        }
    }

    /// Nothing is mapped there from now on.
    pub(crate) fn unmap(&mut self, address: u64, len_bytes: u64, now: Stamp) {
        let end = address.saturating_add(len_bytes);
        for index in 0..self.mappings.len() {
            let whole = self.mappings[index];
            let whole_end = whole.address + whole.len_bytes;
            let (from, to) = (whole.address.max(address), whole_end.min(end));
            if whole.is_ended() || from >= to {
                continue;
            }
            let part = |from: u64, to: u64, until| Mapping {
                address: from,
                len_bytes: to - from,
                offset: whole.offset + (from - whole.address),
                until,
                ..whole
            };
            self.mappings[index] = part(from, to, now);
            if whole.address < from {
                self.mappings.push(part(whole.address, from, Stamp::MAX));
            }
            if to < whole_end {
                self.mappings.push(part(to, whole_end, Stamp::MAX));
            }
        }
    }

    /// Forgets what ended before `done`, if there is much of it.
    pub(crate) fn forget(&mut self, done: Stamp) {
        if self
            .mappings
            .iter()
            .filter(|mapping| mapping.is_ended())
            .count()
            > ENDED_MAX
        {
            self.mappings.retain(|mapping| mapping.until > done);
        }
    }

    /// The pool that had an address at a moment.
    pub(crate) fn at(&self, stamp: Stamp, address: u64) -> Option<(PoolIndex, PoolOffset)> {
        let mapping = self.find(stamp, address)?;
        Some((
            mapping.pool,
            PoolOffset(mapping.offset + (address - mapping.address)),
        ))
    }

    fn find(&self, stamp: Stamp, address: u64) -> Option<&Mapping> {
        let mut last = None;
        for mapping in self.mappings.iter().rev() {
            if mapping.covers(address) {
                if mapping.holds_at(stamp) {
                    return Some(mapping);
                }
                last = last.or(Some(mapping));
            }
        }
        // The host may learn of an end late, but the store certainly happened.
        last
    }

    /// The parts of a range of addresses that lay in pools at a moment.
    pub(crate) fn pieces(&self, stamp: Stamp, address: u64, len_bytes: u64) -> Pieces<'_> {
        Pieces {
            mappings: self,
            stamp,
            address,
            len_bytes,
            start: 0,
        }
    }

    /// The next address at which a mapping begins.
    fn next_begin(&self, stamp: Stamp, after: u64) -> Option<u64> {
        let later = self
            .mappings
            .iter()
            .filter(|mapping| mapping.holds_at(stamp));
        later
            .map(|mapping| mapping.address)
            .filter(|address| *address > after)
            .min()
    }
}

/// Iterator over the parts of a range of addresses that lie in pools.
#[derive(Clone, Debug)]
pub(crate) struct Pieces<'a> {
    mappings: &'a Mappings,
    stamp: Stamp,
    address: u64,
    len_bytes: u64,
    start: u64,
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        while self.start < self.len_bytes {
            let at = self.address.checked_add(self.start)?;
            let rest = self.len_bytes - self.start;
            if let Some(mapping) = self.mappings.find(self.stamp, at) {
                let inside = at - mapping.address;
                let len_bytes = rest.min(mapping.len_bytes - inside);
                let start = self.start;
                self.start += len_bytes;
                let offset = PoolOffset(mapping.offset + inside);
                return Some(Piece {
                    pool: mapping.pool,
                    offset,
                    start,
                    len_bytes,
                });
            }
            let next = self.mappings.next_begin(self.stamp, at)?;
            self.start += next - at;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{ENDED_MAX, Mappings, Piece};
    use crate::clock::Stamp;
    use powerfail_model::{PoolIndex, PoolOffset};

    fn pieces(
        mappings: &Mappings,
        stamp: u64,
        address: u64,
        len_bytes: u64,
    ) -> Vec<(u32, u64, u64, u64)> {
        let flat = |piece: Piece| (piece.pool.0, piece.offset.0, piece.start, piece.len_bytes);
        mappings
            .pieces(Stamp(stamp), address, len_bytes)
            .map(flat)
            .collect()
    }

    #[test]
    fn a_range_over_two_pools_and_a_gap() {
        let mut mappings = Mappings::default();
        mappings.map(0x1000, 0x1000, PoolIndex(0), 0, Stamp(1));
        mappings.map(0x2000, 0x1000, PoolIndex(1), 0x4000, Stamp(1));
        mappings.map(0x4000, 0x1000, PoolIndex(0), 0x1000, Stamp(1));
        assert_eq!(
            pieces(&mappings, 5, 0x1ffc, 8),
            [(0, 0xffc, 0, 4), (1, 0x4000, 4, 4)]
        );
        assert_eq!(
            pieces(&mappings, 5, 0x2ff0, 0x1020),
            [(1, 0x4ff0, 0, 0x10), (0, 0x1000, 0x1010, 0x10)]
        );
        assert_eq!(pieces(&mappings, 5, 0xff8, 16), [(0, 0, 8, 8)]);
        assert_eq!(pieces(&mappings, 5, 0x5000, 8), []);
        assert_eq!(
            mappings.at(Stamp(5), 0x4001),
            Some((PoolIndex(0), PoolOffset(0x1001)))
        );
    }

    #[test]
    fn the_moment_decides() {
        let mut mappings = Mappings::default();
        mappings.map(0x1000, 0x3000, PoolIndex(0), 0, Stamp(10));
        mappings.unmap(0x2000, 0x1000, Stamp(20));
        mappings.map(0x2000, 0x1000, PoolIndex(1), 0, Stamp(30));
        assert_eq!(
            pieces(&mappings, 15, 0x1ff8, 0x1010).len(),
            3,
            "parts of one pool, split later"
        );
        assert_eq!(pieces(&mappings, 15, 0x2000, 8), [(0, 0x1000, 0, 8)]);
        assert_eq!(pieces(&mappings, 35, 0x2000, 8), [(1, 0, 0, 8)]);
        assert_eq!(pieces(&mappings, 35, 0x3000, 8), [(0, 0x2000, 0, 8)]);
        mappings.unmap(0, u64::MAX, Stamp(40));
        assert_eq!(pieces(&mappings, 39, 0x1000, 8), [(0, 0, 0, 8)]);
    }

    #[test]
    fn moved_and_made_longer() {
        let mut mappings = Mappings::default();
        mappings.map(0x1000, 0x2000, PoolIndex(3), 0x5000, Stamp(10));
        mappings.copy(0x2000, 0x8000, 0x3000, Stamp(20));
        assert_eq!(pieces(&mappings, 25, 0xa000, 8), [(3, 0x8000, 0, 8)]);
        assert_eq!(pieces(&mappings, 15, 0x2000, 8), [(3, 0x6000, 0, 8)]);
        mappings.copy(0x1000, 0x1000, 0x4000, Stamp(30));
        assert_eq!(pieces(&mappings, 35, 0x4000, 8), [(3, 0x8000, 0, 8)]);
    }

    #[test]
    fn what_is_over_is_forgotten() {
        let mut mappings = Mappings::default();
        for round in 0..10_000 {
            mappings.map(0x1000, 0x1000, PoolIndex(0), 0, Stamp(2 * round));
            mappings.unmap(0x1000, 0x1000, Stamp(2 * round + 1));
            mappings.forget(Stamp(2 * round));
        }
        assert!(mappings.mappings.len() <= ENDED_MAX + 2);
    }
}
