//! What one open line can hold, followed store by store.

use powerfail_model::{EventIndex, OpenLine, OpenStore, Place, PoolOffset};
use powerfail_trace::StackId;
use rustc_hash::FxHashMap;

use crate::digest::ImageDigest;

const WORD_BYTES: usize = 8;

/// How many stores of a line are looked at for the sites that are lost or kept.
const SITES_MAX: usize = 64;

/// The different contents of an open line, oldest first: number 0 is the durable floor.
///
/// Contents are told apart by their digests, so what is kept of a version is 40 bytes. A store that is
/// coalesced takes the place of the version before it.
#[derive(Clone, Debug, Default)]
pub(crate) struct LineVersions {
    notes: Vec<StoreNote>,
    /// The versions that count, oldest first.
    versions: Vec<Version>,
    /// The first of each content, as indexes into `versions`.
    contents: Vec<usize>,
    /// By content: how many versions have it, and its number in `contents`.
    known: FxHashMap<ImageDigest, (u32, usize)>,
    newest: Vec<u8>,
    coalesce: bool,
}

/// What is known of an open store besides its bytes.
#[derive(Clone, Copy, Debug)]
struct StoreNote {
    event: EventIndex,
    stack: StackId,
    /// How many flushes and fences there were before it.
    ordering: u64,
    start: usize,
    end: usize,
}

#[derive(Clone, Copy, Debug)]
struct Version {
    number: usize,
    digest: ImageDigest,
}

/// Who stores, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Storing {
    pub(crate) stack: StackId,
    pub(crate) ordering: u64,
}

impl LineVersions {
    pub(crate) fn new(coalesce: bool) -> Self {
        Self {
            coalesce,
            ..Self::default()
        }
    }

    /// How many different contents there are.
    pub(crate) const fn len(&self) -> usize {
        self.contents.len()
    }

    /// The version of the model that first has a content.
    pub(crate) fn version(&self, content: usize) -> usize {
        self.versions[self.contents[content]].number
    }

    pub(crate) fn digest(&self, content: usize) -> ImageDigest {
        self.versions[self.contents[content]].digest
    }

    /// Which content is the newest.
    pub(crate) fn newest(&self) -> usize {
        let newest = self.versions.last().map(|version| version.digest);
        newest
            .and_then(|digest| self.known.get(&digest))
            .map_or(0, |(_, content)| *content)
    }

    /// The call stacks of stores that a content lacks, and of those that it has.
    pub(crate) fn sites(&self, content: usize, lost: &mut Vec<StackId>, kept: &mut Vec<StackId>) {
        let version = if content == self.newest() {
            self.notes.len()
        } else {
            self.version(content)
        };
        let (has, lacks) = self.notes.split_at(version.min(self.notes.len()));
        kept.extend(has.iter().rev().take(SITES_MAX).map(|note| note.stack));
        lost.extend(lacks.iter().take(SITES_MAX).map(|note| note.stack));
    }

    /// Brings this up to date with the line. New stores are all of one event.
    pub(crate) fn follow(&mut self, line: &OpenLine, storing: Option<Storing>, is_cut: bool) {
        let count = line.version_count() - 1;
        let oldest = self.notes.first().map(|note| note.event);
        let is_same = !is_cut
            && !self.versions.is_empty()
            && oldest == line.oldest_store()
            && self.notes.len() <= count;
        if is_same {
            let new = count - self.notes.len();
            for store in line.newest_stores(new) {
                self.note(&store, storing);
                let number = self.notes.len();
                self.push(line, number, &store);
            }
            return;
        }
        self.rebuild(line, storing);
    }

    fn rebuild(&mut self, line: &OpenLine, storing: Option<Storing>) {
        let mut old = std::mem::take(&mut self.notes);
        let count = line.version_count() - 1;
        if let Some(oldest) = line.oldest_store() {
            old.retain(|note| note.event >= oldest);
        } else {
            old.clear();
        }
        self.versions.clear();
        self.contents.clear();
        self.known.clear();
        self.newest.clear();
        self.newest.extend_from_slice(line.floor());
        let place = Place::new(line.id().pool, line.offset());
        let floor = ImageDigest::of_words(place, &self.newest);
        self.add(0, floor);
        let kept = old.len().min(count);
        for (number, store) in line.stores().enumerate() {
            match old.get(number).filter(|_| number < kept) {
                Some(note) => self.notes.push(*note),
                None => self.note(&store, storing),
            }
            self.push(line, number + 1, &store);
        }
    }

    fn note(&mut self, store: &OpenStore<'_>, storing: Option<Storing>) {
        self.notes.push(StoreNote {
            event: store.event,
            stack: storing.map_or(StackId::NONE, |it| it.stack),
            ordering: storing.map_or(0, |it| it.ordering),
            start: store.offset_in_line,
            end: store.offset_in_line + store.bytes.len(),
        });
    }

    /// Adds the version that a store makes; its note is there already.
    fn push(&mut self, line: &OpenLine, number: usize, store: &OpenStore<'_>) {
        let before = self.versions.last().map(|version| version.digest);
        let end = store.offset_in_line + store.bytes.len();
        let words =
            store.offset_in_line / WORD_BYTES * WORD_BYTES..end.next_multiple_of(WORD_BYTES);
        let place = Place::new(
            line.id().pool,
            PoolOffset(line.offset().0 + words.start as u64),
        );
        let old = ImageDigest::of_words(place, &self.newest[words.clone()]);
        self.newest[store.offset_in_line..end].copy_from_slice(store.bytes);
        let new = ImageDigest::of_words(place, &self.newest[words]);
        let digest = before.unwrap_or_default().minus(old).plus(new);
        if self.coalesce && self.join(number) {
            self.take_back();
        }
        self.add(number, digest);
    }

    /// Whether a store and those before it are one write: they touch, and nothing orders them. Its
    /// note then stands for all of them.
    fn join(&mut self, number: usize) -> bool {
        let Some(before) = number.checked_sub(2) else {
            return false;
        };
        let before = self.notes[before];
        let this = &mut self.notes[number - 1];
        let joins = before.event != this.event
            && before.ordering == this.ordering
            && before.start <= this.end
            && this.start <= before.end;
        if joins {
            this.start = this.start.min(before.start);
            this.end = this.end.max(before.end);
        }
        joins
    }

    fn add(&mut self, number: usize, digest: ImageDigest) {
        let next = self.contents.len();
        let (count, _) = self.known.entry(digest).or_insert((0, next));
        *count += 1;
        if *count == 1 {
            self.contents.push(self.versions.len());
        }
        self.versions.push(Version { number, digest });
    }

    fn take_back(&mut self) {
        let Some(version) = self.versions.pop() else {
            return;
        };
        if let Some((count, _)) = self.known.get_mut(&version.digest) {
            *count -= 1;
            if *count == 0 {
                // A content is first met last: what is taken back is the end of the list.
                self.known.remove(&version.digest);
                self.contents.pop();
            }
        }
    }
}
