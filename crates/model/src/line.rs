//! One open line: its surely durable content and the stores that may or may not have reached it.

use crate::ids::{EventIndex, LineId, PoolOffset, ThreadIndex};

/// A line that a crash can leave in more than one version.
///
/// Versions are counted from the durable floor here: 0 is the floor, *n* the floor with the first *n*
/// stores of the line that are not sure yet. Only these are kept, so the memory of a line is that of
/// its open stores.
#[derive(Clone, Debug, Default)]
pub struct OpenLine {
    id: LineId,
    line_bytes: usize,
    floor: Vec<u8>,
    stores: Vec<StoreSpan>,
    payload: Vec<u8>,
    /// For each thread that has flushed the line and not fenced since: the newest store that its
    /// next fence makes sure. An entry is kept only while it still covers an open store.
    promises: Vec<(ThreadIndex, EventIndex)>,
}

/// Where a store lies in its line; its bytes follow those of the store before it in the payload.
#[derive(Clone, Copy, Debug)]
struct StoreSpan {
    event: EventIndex,
    offset: u16,
    len: u16,
}

/// A store, or the piece of a store in this line, that is not surely durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenStore<'a> {
    /// The event that stored it.
    pub event: EventIndex,
    /// Its first byte inside the line.
    pub offset_in_line: usize,
    /// Its bytes.
    pub bytes: &'a [u8],
}

impl OpenStore<'_> {
    fn apply_to(&self, content: &mut [u8]) {
        content[self.offset_in_line..self.offset_in_line + self.bytes.len()]
            .copy_from_slice(self.bytes);
    }
}

/// The stores at these places, whose bytes follow each other in the payload.
fn open_stores<'a>(
    spans: &'a [StoreSpan],
    mut payload: &'a [u8],
) -> impl ExactSizeIterator<Item = OpenStore<'a>> {
    spans.iter().map(move |span| {
        let (bytes, rest) = payload.split_at(span.len.into());
        payload = rest;
        OpenStore {
            event: span.event,
            offset_in_line: span.offset.into(),
            bytes,
        }
    })
}

impl OpenLine {
    /// Which line this is.
    pub fn id(&self) -> LineId {
        self.id
    }

    /// The pool offset of its first byte.
    pub fn offset(&self) -> PoolOffset {
        PoolOffset(self.id.line.0 * self.line_bytes as u64)
    }

    /// The content that is surely durable.
    pub fn floor(&self) -> &[u8] {
        &self.floor
    }

    /// How many versions a crash can leave: the floor and one for each open store.
    pub fn version_count(&self) -> usize {
        self.stores.len() + 1
    }

    /// The stores that are not sure yet, oldest first.
    pub fn stores(&self) -> impl ExactSizeIterator<Item = OpenStore<'_>> {
        open_stores(&self.stores, &self.payload)
    }

    /// The newest `count` of the stores that are not sure yet, oldest first. Costs these alone.
    pub fn newest_stores(&self, count: usize) -> impl Iterator<Item = OpenStore<'_>> {
        let spans = &self.stores[self.stores.len().saturating_sub(count)..];
        let bytes: usize = spans.iter().map(|span| usize::from(span.len)).sum();
        open_stores(spans, &self.payload[self.payload.len() - bytes..])
    }

    /// The oldest store that is not sure yet. An open line has one.
    pub fn oldest_store(&self) -> Option<EventIndex> {
        self.stores.first().map(|span| span.event)
    }

    /// The content of a version. Costs the stores up to it; [`Self::for_each_version`] visits all
    /// of them for the price of the last.
    pub fn version(&self, version: usize) -> Vec<u8> {
        let mut content = self.floor.clone();
        for store in self.stores().take(version) {
            store.apply_to(&mut content);
        }
        content
    }

    /// Shows every version and its content, from the floor to the newest.
    pub fn for_each_version(&self, mut visit: impl FnMut(usize, &[u8])) {
        let mut content = self.floor.clone();
        visit(0, &content);
        for (number, store) in self.stores().enumerate() {
            store.apply_to(&mut content);
            visit(number + 1, &content);
        }
    }

    /// The first version of each distinct content: what is left when silent stores are taken away.
    pub fn distinct_versions(&self) -> Vec<usize> {
        let mut seen = rustc_hash::FxHashSet::default();
        let mut versions = Vec::new();
        self.for_each_version(|version, content| {
            if seen.insert(content.to_vec()) {
                versions.push(version);
            }
        });
        versions
    }

    /// Starts a closed line again with `fill` to set its floor; reuses the allocations of `self`.
    pub(crate) fn reopen(&mut self, id: LineId, line_bytes: usize, fill: impl FnOnce(&mut [u8])) {
        self.id = id;
        self.line_bytes = line_bytes;
        self.floor.resize(line_bytes, 0);
        fill(&mut self.floor);
        self.stores.clear();
        self.payload.clear();
        self.promises.clear();
    }

    pub(crate) fn push(&mut self, event: EventIndex, offset_in_line: usize, bytes: &[u8]) {
        let small = |n: usize| u16::try_from(n).expect("a line is smaller than 64 KiB");
        self.stores.push(StoreSpan {
            event,
            offset: small(offset_in_line),
            len: small(bytes.len()),
        });
        self.payload.extend_from_slice(bytes);
    }

    /// Raises the floor over every store up to and including those of `event`.
    pub(crate) fn raise_floor(&mut self, event: EventIndex) {
        let mut bytes = 0;
        let mut count = 0;
        for span in &self.stores {
            if span.event > event {
                break;
            }
            let (offset, len) = (usize::from(span.offset), usize::from(span.len));
            self.floor[offset..offset + len].copy_from_slice(&self.payload[bytes..bytes + len]);
            bytes += len;
            count += 1;
        }
        self.stores.drain(..count);
        self.payload.drain(..bytes);
    }

    /// The next fence of `thread` makes sure all stores up to `event`. Whether that is the first
    /// such promise to the thread.
    pub(crate) fn promise(&mut self, thread: ThreadIndex, event: EventIndex) -> bool {
        let old = self.promises.iter_mut().find(|(to, _)| *to == thread);
        if let Some((_, covered)) = old {
            *covered = event;
            return false;
        }
        self.promises.push((thread, event));
        true
    }

    /// The newest store that the next fence of `thread` makes sure.
    pub(crate) fn promised_to(&self, thread: ThreadIndex) -> Option<EventIndex> {
        self.promises
            .iter()
            .find(|(to, _)| *to == thread)
            .map(|&(_, event)| event)
    }

    /// Drops the promises that cover no open store any more, and names their threads.
    pub(crate) fn withdraw_promises(&mut self, mut withdrawn: impl FnMut(ThreadIndex)) {
        let oldest_open = self.stores.first().map(|span| span.event);
        self.promises.retain(|&(thread, covered)| {
            let useful = oldest_open.is_some_and(|oldest| covered >= oldest);
            if !useful {
                withdrawn(thread);
            }
            useful
        });
    }

    /// Cuts the line at `len`: bytes from there on are zero in every version.
    pub(crate) fn cut(&mut self, len: usize) {
        self.floor[len..].fill(0);
        let mut payload = Vec::with_capacity(self.payload.len());
        let mut start = 0;
        for span in &mut self.stores {
            let (offset, old) = (usize::from(span.offset), usize::from(span.len));
            let kept = len.saturating_sub(offset).min(old);
            payload.extend_from_slice(&self.payload[start..start + kept]);
            span.len = u16::try_from(kept).expect("shorter than it was");
            span.offset = span.offset.min(u16::try_from(len).unwrap_or(u16::MAX));
            start += old;
        }
        self.payload = payload;
    }
}
