//! A forward pass over a trace that knows the pools at its position.

use std::collections::BTreeMap;
use std::fmt;

use powerfail_model::{
    CrashState, Event, EventIndex, Frontier, Image, Place, PoolIndex, PoolOffset, Rules, Step,
};
use powerfail_trace::{ImageHash, ImageHasher, RecordCursor, Trace};

use crate::changed_pages::ChangedPages;
use crate::contents::FileContents;
use crate::error::{ImageError, Result};
use crate::memory::PoolMemory;
use crate::page::{PAGE, Page};
use crate::pools::{Fill, PoolImages};

/// What a pass keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CursorOptions {
    /// Keep the frontier under these rules. Without it only the state in which everything is newest
    /// can be had, for less work.
    pub rules: Option<Rules>,
    /// What fresh memory holds instead of zeros.
    pub fill: Option<Fill>,
    /// Give up when pages take more memory than this. For untrusted traces: a small
    /// file can describe large pools.
    pub memory_limit_bytes: Option<u64>,
}

/// Bytes that are put into a pool on top of a crash state: what a recovery had written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// The pool.
    pub pool: PoolIndex,
    /// Where in it.
    pub offset: u64,
    /// The bytes. What lies beyond the end of the pool does not count.
    pub bytes: Vec<u8>,
}

#[derive(Clone)]
enum Pass {
    Newest(PoolImages),
    Tracked(Box<Frontier<PoolImages>>),
}

/// The pools at a moment of a trace, just before an event. Moves forward only.
///
/// Moving needs it alone; everything else shares it, so that several threads can prepare their slots
/// from one cursor.
pub struct ImageCursor<'t> {
    trace: &'t Trace,
    records: RecordCursor<'t>,
    position: EventIndex,
    pass: Pass,
}

impl fmt::Debug for ImageCursor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageCursor")
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

impl<'t> ImageCursor<'t> {
    /// Before the first event of a trace.
    pub fn new(trace: &'t Trace, options: CursorOptions) -> Result<Self> {
        let limit_bytes = options.memory_limit_bytes.unwrap_or(u64::MAX);
        let pools = PoolImages::initial(trace, options.fill, limit_bytes)?;
        let pass = match options.rules {
            Some(rules) => Pass::Tracked(Box::new(Frontier::new(rules, pools))),
            None => Pass::Newest(pools),
        };
        Ok(Self {
            trace,
            records: trace.records_from(EventIndex(0)),
            position: EventIndex(0),
            pass,
        })
    }

    /// Another cursor at the same place. It costs a copy of all pages that were touched, and one block of the trace.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self {
            trace: self.trace,
            records: self.trace.records_from(self.position),
            position: self.position,
            pass: self.pass.clone(),
        }
    }

    /// How many pages of pools were touched: what the cursor takes of memory, but for open lines.
    pub const fn page_count(&self) -> u64 {
        self.pools().page_count()
    }

    /// The trace.
    pub const fn trace(&self) -> &'t Trace {
        self.trace
    }

    /// The event before which the cursor stands.
    pub const fn position(&self) -> EventIndex {
        self.position
    }

    /// Moves to the moment just before event `at`; the number of events is the end of the trace.
    pub fn move_to(&mut self, at: EventIndex) -> Result<()> {
        if at < self.position {
            return Err(ImageError::Backwards {
                position: self.position,
                wanted: at,
            });
        }
        if at.0 > self.trace.event_count() {
            return Err(ImageError::BeyondEnd {
                event_count: self.trace.event_count(),
                wanted: at,
            });
        }
        while self.position < at {
            let Some(record) = self.records.next_record()? else {
                return Err(ImageError::BeyondEnd {
                    event_count: self.position.0,
                    wanted: at,
                });
            };
            if let Some(step) = record.step() {
                self.pass.apply(&step);
                self.pass.pools().check()?;
            }
            self.position.0 += 1;
        }
        Ok(())
    }

    /// Moves to the end of the trace.
    pub fn move_to_end(&mut self) -> Result<()> {
        self.move_to(EventIndex(self.trace.event_count()))
    }

    /// The frontier here, if the pass keeps it.
    pub fn frontier(&self) -> Option<&Frontier<PoolImages>> {
        match &self.pass {
            Pass::Newest(_) => None,
            Pass::Tracked(frontier) => Some(frontier),
        }
    }

    /// The length of a pool here; `None` if there is no such pool.
    pub fn len_bytes(&self, pool: PoolIndex) -> Option<u64> {
        Some(self.pools().pool(pool)?.len_bytes())
    }

    /// Fills `out` with the newest bytes from `at` on.
    pub fn read(&self, at: Place, out: &mut [u8]) {
        self.pools().read(at, out);
    }

    /// A pool with everything newest, as the file that it is.
    pub fn file_contents(&self, pool: PoolIndex) -> Option<FileContents> {
        let memory = self.pools().pool(pool)?;
        let mut contents = FileContents {
            len_bytes: memory.len_bytes(),
            ..FileContents::default()
        };
        for (number, page) in memory.pages(0..memory.len_bytes().div_ceil(PAGE)) {
            contents.set_page(number, &page.0);
        }
        Some(contents)
    }

    /// The hash of a pool with everything newest.
    pub fn hash(&self, pool: PoolIndex) -> Option<ImageHash> {
        let memory = self.pools().pool(pool)?;
        let mut hasher = ImageHasher::new(memory.len_bytes());
        for (number, page) in memory.pages(0..u64::MAX) {
            hasher.update(number * PAGE, &page.0);
        }
        Some(hasher.finish())
    }

    pub(crate) const fn pools(&self) -> &PoolImages {
        self.pass.pools()
    }

    /// The pages in which a crash state differs from the newest content, with `overlay` on top.
    pub(crate) fn changed_pages(
        &self,
        state: &CrashState,
        overlay: &[Patch],
    ) -> Result<ChangedPages> {
        let mut pages: BTreeMap<(PoolIndex, u64), Box<Page>> = BTreeMap::new();
        for &(id, version) in &state.versions {
            let frontier = self.frontier().ok_or(ImageError::NoFrontier)?;
            let line = frontier
                .open_line(id)
                .filter(|line| version < line.version_count())
                .ok_or(ImageError::NoSuchVersion { line: id, version })?;
            if version + 1 == line.version_count() {
                continue;
            }
            let content = line.version(version);
            let Some(memory) = self.pools().pool(id.pool) else {
                continue;
            };
            let offset = line.offset().0;
            let inside = usize::try_from(memory.len_bytes().saturating_sub(offset))
                .unwrap_or(usize::MAX)
                .min(content.len());
            self.change(&mut pages, id.pool, offset, &content[..inside]);
        }
        for patch in overlay {
            let len_bytes = self.len_bytes(patch.pool).unwrap_or(0);
            let room =
                usize::try_from(len_bytes.saturating_sub(patch.offset)).unwrap_or(usize::MAX);
            let inside = &patch.bytes[..patch.bytes.len().min(room)];
            self.change(&mut pages, patch.pool, patch.offset, inside);
        }
        Ok(ChangedPages::new(pages))
    }

    /// Puts bytes into copies of the pages that they lie in.
    fn change(
        &self,
        pages: &mut BTreeMap<(PoolIndex, u64), Box<Page>>,
        pool: PoolIndex,
        offset: u64,
        bytes: &[u8],
    ) {
        let (mut position, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let start = (position % PAGE) as usize;
            let (piece, later) = rest.split_at(rest.len().min(PAGE as usize - start));
            let page = pages.entry((pool, position / PAGE)).or_insert_with(|| {
                let mut page = Box::new(Page::ZERO);
                let first = Place::new(pool, PoolOffset(position - start as u64));
                self.read(first, &mut page.0);
                page
            });
            page.0[start..start + piece.len()].copy_from_slice(piece);
            position += piece.len() as u64;
            rest = later;
        }
    }
}

/// A step without what it stores beyond the end of its pool. A mapping reaches to the end of the
/// file's last page, but what is stored there is never in the file, not even when it grows.
fn within_pool<'a>(step: &Step<'a>, pools: &PoolImages) -> Step<'a> {
    let mut step = *step;
    if let Event::Store { at, bytes, .. } = &mut step.event {
        let len_bytes = pools.pool(at.pool).map_or(0, PoolMemory::len_bytes);
        let room = usize::try_from(len_bytes.saturating_sub(at.offset.0)).unwrap_or(usize::MAX);
        *bytes = &bytes[..bytes.len().min(room)];
    }
    step
}

impl Pass {
    const fn pools(&self) -> &PoolImages {
        match self {
            Self::Newest(pools) => pools,
            Self::Tracked(frontier) => frontier.newest(),
        }
    }

    fn apply(&mut self, step: &Step<'_>) {
        match self {
            Self::Tracked(frontier) => frontier.apply(&within_pool(step, frontier.newest())),
            Self::Newest(pools) => match step.event {
                Event::Store { at, bytes, .. } => pools.write(at, bytes),
                Event::Resize { pool, len_bytes } => pools.resize(pool, len_bytes),
                Event::Flush { .. } | Event::Fence(_) | Event::Sync { .. } => {}
            },
        }
    }
}
