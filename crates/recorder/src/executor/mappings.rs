//! Where pools are mapped. The same in all processes of a target, because they are forks of one.

use super::fold::Dirty;

const PAGE: u64 = 4096;

/// A pool, in the order in which they were first mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PoolNumber(pub(super) usize);

#[derive(Clone, Copy, Debug)]
struct Mapping {
    address: u64,
    len_bytes: u64,
    pool: PoolNumber,
    /// The offset of the byte at `address`.
    offset: u64,
}

/// The mappings of pools. Newer ones come last, and hide older ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Mappings {
    all: Vec<Mapping>,
}

impl Mappings {
    /// Adds a mapping of a part of a pool.
    pub(super) fn map(&mut self, address: u64, len_bytes: u64, pool: PoolNumber, offset: u64) {
        self.all.push(Mapping {
            address,
            len_bytes,
            pool,
            offset,
        });
    }

    /// Adds a second mapping of what is mapped at an address. It may be longer.
    pub(super) fn copy(&mut self, from: u64, to: u64, len_bytes: u64) {
        if let Some((pool, offset, _)) = self.at(from) {
            self.map(to, len_bytes, pool, offset);
        }
    }

    /// The number of mappings.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Removes all but the first ones.
    pub(super) fn truncate(&mut self, len: usize) {
        self.all.truncate(len);
    }

    /// The pool at an address, the offset in it, and how much of it follows.
    pub(super) fn at(&self, address: u64) -> Option<(PoolNumber, u64, u64)> {
        let inside = |mapping: &&Mapping| address.wrapping_sub(mapping.address) < mapping.len_bytes;
        let mapping = self.all.iter().rev().find(inside)?;
        let distance = address - mapping.address;
        Some((
            mapping.pool,
            mapping.offset + distance,
            mapping.len_bytes - distance,
        ))
    }

    /// Adds the pages of an address range as written; returns whether any of it is in a pool.
    pub(super) fn mark(&self, address: u64, len_bytes: u64, dirty: &mut Dirty) -> bool {
        let (mut at, end) = (address, address.saturating_add(len_bytes));
        let mut found = false;
        while at < end {
            let Some((pool, offset, left)) = self.at(at) else {
                at = (at / PAGE + 1) * PAGE;
                continue;
            };
            found = true;
            let len = left.min(end - at);
            for page in offset / PAGE..=(offset + len - 1) / PAGE {
                dirty.insert(pool, page);
            }
            at += len;
        }
        found
    }
}
