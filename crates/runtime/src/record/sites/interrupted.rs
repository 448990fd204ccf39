//! Where in a trampoline a thread was interrupted.

use powerfail_patch::{LockedWork, RepeatedWork};
use powerfail_protocol::ScratchSlot;

use super::{Entry, Sites};

/// An address in a trampoline.
struct Inside<'s> {
    /// Of the instruction that the trampoline stands for.
    site: u64,
    /// Where the trampoline begins.
    start: u64,
    offset: usize,
    entry: &'s Entry,
}

impl Sites {
    fn inside(&self, address: u64) -> Option<Inside<'_>> {
        let (&start, &site) = self.trampolines.range(..=address).next_back()?;
        let entry = self.entries.get(&site)?;
        let offset = address - start;
        (offset < entry.len).then_some(Inside {
            site,
            start,
            offset: offset as usize,
            entry,
        })
    }

    /// If an address lies in a trampoline: the instruction it stands for, and the slots in which
    /// the target's registers are.
    pub(crate) fn inside_trampoline(
        &self,
        address: u64,
    ) -> Option<(u64, impl Iterator<Item = ScratchSlot> + use<>)> {
        let inside = self.inside(address)?;
        Some((inside.site, inside.entry.states.slots_at(inside.offset)))
    }

    /// Whether an address in a trampoline is that of the store itself: its record is complete.
    pub(crate) fn is_at_work(&self, address: u64) -> bool {
        self.inside(address)
            .is_some_and(|inside| inside.entry.work_at == Some(inside.offset))
    }

    /// Whether a handler would make out of date what the record says or is about to say, of a store that was not made, and the
    /// instruction can begin again.
    pub(crate) fn is_committed(&self, address: u64) -> bool {
        let Some(Inside { offset, entry, .. }) = self.inside(address) else {
            return false;
        };
        let before_work = entry.committed_at.zip(entry.work_at);
        before_work
            .is_some_and(|(committed_at, work_at)| (committed_at..=work_at).contains(&offset))
    }

    /// If an address in a trampoline is that of a store that can be interrupted in the middle: where the trampoline
    /// begins, and how to finish the store.
    pub(crate) fn repeated_work_at(&self, address: u64) -> Option<(u64, RepeatedWork)> {
        let inside = self.inside(address)?;
        let repeated_work = inside.entry.repeated_work?;
        if inside.entry.work_at != Some(inside.offset) {
            return None;
        }
        Some((inside.start, repeated_work))
    }

    /// If an address lies in a trampoline that takes store locks: where that begins, and how it uses them.
    pub(crate) fn locked_work_at(&self, address: u64) -> Option<(u64, LockedWork)> {
        let inside = self.inside(address)?;
        Some((inside.start, inside.entry.locked_work?))
    }
}
