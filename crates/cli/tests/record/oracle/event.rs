//! The common form of the events of the oracle and of a trace.

use std::collections::HashSet;
use std::fmt;

use powerfail_model::{FenceKind, FlushKind, StoreKind};

/// An instruction: the file name of its module, and its offset there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Site {
    pub(crate) module: String,
    pub(crate) offset: u64,
}

/// Something that happened to a pool, and the instruction that did it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) what: What,
    pub(crate) site: Site,
}

impl fmt::Debug for Seen {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Site { module, offset } = &self.site;
        write!(formatter, "{:x?} by {module}+{offset:#x}", self.what)
    }
}

/// What happened. Offsets are in the pool with this number; pools are numbered in the order of their first mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Store {
        kind: StoreKind,
        pool: usize,
        offset: u64,
        bytes: Vec<u8>,
    },
    Flush {
        kind: FlushKind,
        pool: usize,
        offset: u64,
    },
    Fence(FenceKind),
}

/// Joins consecutive, adjacent stores of string instructions, upwards or downwards.
pub(crate) fn join_strings(events: Vec<Seen>, strings: &HashSet<Site>) -> Vec<Seen> {
    let mut joined: Vec<Seen> = Vec::with_capacity(events.len());
    for event in events {
        let before = joined
            .last_mut()
            .filter(|before| before.site == event.site && strings.contains(&event.site));
        if !before.is_some_and(|before| absorb(&mut before.what, &event.what)) {
            joined.push(event);
        }
    }
    joined
}

/// Merges a store into its neighbour; returns false if they are not adjacent.
fn absorb(run: &mut What, next: &What) -> bool {
    let (
        What::Store {
            pool,
            offset,
            bytes,
            ..
        },
        What::Store {
            pool: next_pool,
            offset: next_offset,
            bytes: next_bytes,
            ..
        },
    ) = (run, next)
    else {
        return false;
    };
    if pool != next_pool {
        return false;
    }
    if *offset + bytes.len() as u64 == *next_offset {
        bytes.extend_from_slice(next_bytes);
        return true;
    }
    if *next_offset + next_bytes.len() as u64 == *offset {
        bytes.splice(0..0, next_bytes.iter().copied());
        *offset = *next_offset;
        return true;
    }
    false
}
