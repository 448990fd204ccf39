//! The stores that are not surely durable, as far as no later store has replaced them.
//!
//! One record for each store and line, in a list for each open line, newest first. A line has 64 bytes,
//! so a list is never longer than that, however often the line is written.

use powerfail_trace::StackId;

/// The end of a list.
pub(crate) const END: u32 = u32::MAX;

/// The event of a flush that does not exist: not flushed, or non-temporal.
pub(crate) const NO_FLUSH: u64 = u64::MAX;

/// Bits of [`Store::flags`].
pub(crate) mod flag {
    /// Flushed, and no fence has completed that yet.
    pub(crate) const FLUSHED: u8 = 1;
    /// Some byte of it is not zero.
    pub(crate) const NONZERO: u8 = 2;
    /// An ordinary store instruction.
    pub(crate) const PLAIN: u8 = 4;
    /// Not reported: a trusted library's, a part of the creation of a pool, or left out by annotations.
    pub(crate) const SILENT: u8 = 8;
    /// Inside a transaction.
    pub(crate) const TRANSACTION: u8 = 16;
    /// It made something reachable that is not durable; see `publish.rs`.
    pub(crate) const PUBLISH: u8 = 32;
    /// The store continues in another line.
    pub(crate) const CROSSING: u8 = 64;
}

/// A store to one line. As large as a cache line: most of the time goes into fetching them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Store {
    /// The next older one.
    pub(crate) next: u32,
    pub(crate) stack: StackId,
    pub(crate) event: u64,
    /// The bytes of the line that no later store has replaced.
    pub(crate) live: u64,
    /// The bytes of the line that it wrote.
    pub(crate) written: u64,
    /// What it stored there, if that is at most eight bytes.
    pub(crate) value: u64,
    /// The event of the flush that covered it, or [`NO_FLUSH`].
    pub(crate) flush_event: u64,
    pub(crate) flush_stack: StackId,
    pub(crate) thread: u32,
    /// How often its thread had fenced when these bytes were last flushed or first stored to.
    pub(crate) fences: u32,
    pub(crate) flags: u8,
}

impl Store {
    pub(crate) const fn has(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Stores {
    slots: Vec<Store>,
    free: Vec<u32>,
}

impl Stores {
    pub(crate) fn get(&self, slot: u32) -> &Store {
        &self.slots[slot as usize]
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> &mut Store {
        &mut self.slots[slot as usize]
    }

    /// None of them is reported from here on.
    pub(crate) fn silence(&mut self) {
        for store in &mut self.slots {
            store.flags |= flag::SILENT;
        }
    }

    pub(crate) fn add(&mut self, store: Store) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = store;
                slot
            }
            None => {
                self.slots.push(store);
                self.slots.len() as u32 - 1
            }
        }
    }

    /// The stores of a list, newest first.
    pub(crate) fn list(&self, head: u32) -> impl Iterator<Item = &Store> {
        let at = move |slot: u32| (slot != END).then(|| self.get(slot));
        std::iter::successors(at(head), move |store| at(store.next))
    }

    /// Shows each store of a list to `keep` and removes those that it does not want to keep.
    pub(crate) fn retain(&mut self, head: &mut u32, mut keep: impl FnMut(&mut Store) -> bool) {
        let mut before = END;
        let mut slot = *head;
        while slot != END {
            let store = &mut self.slots[slot as usize];
            let next = store.next;
            if keep(store) {
                before = slot;
            } else {
                self.free.push(slot);
                if before == END {
                    *head = next;
                } else {
                    self.slots[before as usize].next = next;
                }
            }
            slot = next;
        }
    }
}
