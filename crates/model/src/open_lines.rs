//! The open lines of a frontier: found by their id, kept in slots that are used again.
//!
//! A pass opens and closes lines all the time, so a closed line leaves its slot, with what it had
//! allocated, to the next one that opens.

use rustc_hash::FxHashMap;

use crate::ids::LineId;
use crate::line::OpenLine;

/// Where an open line is kept. Valid until the line closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OpenLineSlot(u32);

/// The open lines of a frontier.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenLines {
    slots: FxHashMap<LineId, OpenLineSlot>,
    lines: Vec<OpenLine>,
    free: Vec<OpenLineSlot>,
}

impl OpenLines {
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn slot(&self, id: LineId) -> Option<OpenLineSlot> {
        self.slots.get(&id).copied()
    }

    /// The slot of a line; `open` prepares it if the line was closed.
    pub(crate) fn slot_or_open(
        &mut self,
        id: LineId,
        open: impl FnOnce(&mut OpenLine),
    ) -> OpenLineSlot {
        *self.slots.entry(id).or_insert_with(|| {
            let slot = self.free.pop().unwrap_or_else(|| {
                self.lines.push(OpenLine::default());
                OpenLineSlot(
                    u32::try_from(self.lines.len() - 1).expect("fewer than 2^32 lines are open"),
                )
            });
            open(&mut self.lines[slot.0 as usize]);
            slot
        })
    }

    pub(crate) fn line(&self, slot: OpenLineSlot) -> &OpenLine {
        &self.lines[slot.0 as usize]
    }

    pub(crate) fn line_mut(&mut self, slot: OpenLineSlot) -> &mut OpenLine {
        &mut self.lines[slot.0 as usize]
    }

    /// Forgets a line whose stores are all sure.
    pub(crate) fn close(&mut self, slot: OpenLineSlot) {
        let id = self.line(slot).id();
        self.slots.remove(&id);
        self.free.push(slot);
    }

    pub(crate) fn ids(&self) -> impl ExactSizeIterator<Item = LineId> {
        self.slots.keys().copied()
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &OpenLine> {
        self.slots.values().map(|&slot| self.line(slot))
    }
}
