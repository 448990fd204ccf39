//! Pointers to what is not durable yet; see also `crate::publish`.

use powerfail_finding::Code;
use powerfail_model::PoolIndex;

use super::{Moment, Pass};
use crate::lines::{LINE_BYTES, LineSlot};
use crate::publish::Publish;
use crate::stores::flag;
use crate::tally::Seen;

impl Pass<'_> {
    /// Remembers a pointer to what this thread has stored and not made durable.
    pub(super) fn note_publish(
        &mut self,
        now: Moment,
        pool: PoolIndex,
        line: LineSlot,
        value: u64,
    ) {
        let target = match self.addresses.at_address(value) {
            Some(target) => target,
            None => match self.addresses.at_offset(pool, value) {
                Some(offset) => (pool, offset),
                None => return,
            },
        };
        let Some(target_line) = self.lines.find(target.0, target.1 / LINE_BYTES) else {
            return;
        };
        let Some(open) = self.lines.line(target_line).open() else {
            return;
        };
        if target_line == line {
            return;
        }
        let byte = 1 << (target.1 % LINE_BYTES);
        let data = self
            .stores
            .list(self.lines.opened(open).stores)
            .find(|store| {
                store.live & byte != 0 && store.thread == now.thread && !store.has(flag::SILENT)
            });
        let Some(data) = data else {
            return;
        };
        let publish = Publish {
            event: now.event,
            stack: now.stack,
            data_event: data.event,
            data_stack: data.stack,
        };
        if let Some(open) = self.lines.line(line).open() {
            let newest = self.lines.opened(open).stores;
            self.stores.get_mut(newest).flags |= flag::PUBLISH;
            self.publishes.insert(now.event, publish);
        }
    }

    /// Counts pointers that became durable, so that they were meant to last: what they point to was
    /// not durable when they were stored.
    pub(super) fn count_matured(&mut self) {
        while let Some(publish) = self.matured.pop() {
            let data = self.users.of_store(publish.data_stack);
            let pointer = self.users.of_store(publish.stack);
            let places = [
                Seen::new(publish.data_event, publish.data_stack, data),
                Seen::new(publish.event, publish.stack, pointer),
            ];
            self.tallies.add(Code::PublishedBeforeDurable, &places);
        }
    }
}
