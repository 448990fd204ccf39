//! The newest content of all pools, as the model and the cursor need it.

use std::ops::Range;

use powerfail_model::{Image, Place, PoolIndex, PoolOffset};
use powerfail_trace::Trace;

use crate::error::{ImageError, Result};
use crate::library_metadata::library_metadata;
use crate::memory::PoolMemory;
use crate::page::PAGE;

/// What fresh memory holds in crash images instead of zeros.
///
/// The kernel gives zeros for a new file, and a program that forgets to initialise a field works by
/// luck until the memory is used a second time. With a fill byte that luck ends: bytes of a *fresh*
/// pool that the run has not stored before the crash read as the byte. A pool is fresh if it was all
/// zero when it was mapped: in others, zeros may be what an earlier run stored.
///
/// The metadata of PMDK's pools stays as it is (`library_metadata.rs`). Other software that relies on the
/// zeros of a new file finds something else there: failures have to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fill {
    /// The byte.
    pub byte: u8,
    /// How far it reaches.
    pub extent: FillExtent,
}

/// How far a fill byte reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FillExtent {
    /// The bytes around what was stored, in the same pages. Pages without a store stay holes, so
    /// that large pools stay cheap.
    #[default]
    TouchedPages,
    /// All bytes of the pool. The images take its whole length, in memory and on disk.
    WholePool,
}

/// The newest content of all pools. Stores beyond a pool's end do not count.
#[derive(Clone, Debug)]
pub struct PoolImages {
    pools: Vec<PoolState>,
    fill: Option<Fill>,
    limit_bytes: u64,
    page_count: u64,
    /// Writing cannot fail, so this is found out afterwards.
    too_large: bool,
}

#[derive(Clone, Debug)]
struct PoolState {
    memory: PoolMemory,
    /// An event changed it.
    changed: bool,
    filled: bool,
}

impl PoolImages {
    pub(crate) fn new(
        len_bytes: impl IntoIterator<Item = u64>,
        fill: Option<Fill>,
        limit_bytes: u64,
    ) -> Self {
        let pools = len_bytes.into_iter().map(|len_bytes| PoolState {
            memory: PoolMemory::new(len_bytes),
            changed: false,
            filled: false,
        });
        Self {
            pools: pools.collect(),
            fill,
            limit_bytes,
            page_count: 0,
            too_large: false,
        }
    }

    /// The pools as they were before the first event of a trace, for a pass of one's own.
    pub fn initial(trace: &Trace, fill: Option<Fill>, limit_bytes: u64) -> Result<Self> {
        let len_bytes = trace.pools().iter().map(|pool| pool.len_bytes);
        let mut pools = Self::new(len_bytes, fill, limit_bytes);
        let mut runs = trace.initial_images();
        while let Some(run) = runs.next_run()? {
            pools.write(Place::new(run.pool, run.offset), run.bytes);
            pools.check()?;
        }
        let metadata = match fill {
            Some(_) => library_metadata(trace)?,
            None => Vec::new(),
        };
        pools.begin_events(&metadata)?;
        Ok(pools)
    }

    /// How many pages were touched.
    pub(crate) const fn page_count(&self) -> u64 {
        self.page_count
    }

    pub(crate) fn pool(&self, pool: PoolIndex) -> Option<&PoolMemory> {
        self.pools.get(pool.0 as usize).map(|pool| &pool.memory)
    }

    /// Whether an event has changed the pool.
    pub(crate) fn is_changed(&self, pool: PoolIndex) -> bool {
        self.pools
            .get(pool.0 as usize)
            .is_some_and(|pool| pool.changed)
    }

    /// The initial images are in place: what comes now are events. `metadata` are the areas of each pool that the fill
    /// does not reach.
    pub(crate) fn begin_events(&mut self, metadata: &[Vec<Range<u64>>]) -> Result<()> {
        for pool in 0..self.pools.len() {
            let state = &mut self.pools[pool];
            let fresh = state.memory.page_count() == 0;
            if let Some(fill) = self.fill.filter(|_| fresh) {
                state.filled = true;
                let except = metadata.get(pool).map_or(&[][..], Vec::as_slice);
                state.memory.set_fill(fill.byte, except);
                self.fill_whole(PoolIndex(pool as u32), 0);
            }
            self.pools[pool].changed = false;
        }
        self.check()
    }

    /// Whether the pages still fit into the memory that they may take.
    pub(crate) const fn check(&self) -> Result<()> {
        if self.too_large {
            return Err(ImageError::TooLarge {
                limit_bytes: self.limit_bytes,
            });
        }
        Ok(())
    }

    /// Touches all pages from `first` on, if the fill reaches them.
    fn fill_whole(&mut self, pool: PoolIndex, first: u64) {
        let whole = self.fill.map(|fill| fill.extent) == Some(FillExtent::WholePool);
        let Some(state) = self.pools.get(pool.0 as usize) else {
            return;
        };
        if !whole || !state.filled {
            return;
        }
        for number in first..state.memory.len_bytes().div_ceil(PAGE) {
            self.change(pool, 1, |memory| {
                memory.touch(number);
            });
            if self.too_large {
                return;
            }
        }
    }

    /// Changes a pool by at most `new_pages` more pages, unless they are too many.
    fn change(&mut self, pool: PoolIndex, new_pages: u64, change: impl FnOnce(&mut PoolMemory)) {
        let Some(state) = self.pools.get_mut(pool.0 as usize) else {
            return;
        };
        let worst = self.page_count.saturating_add(new_pages);
        // A store that may not fit is dropped together with the whole pass, which ends in an error.
        if self.too_large || worst.saturating_mul(PAGE) > self.limit_bytes {
            self.too_large = true;
            return;
        }
        let before = state.memory.page_count();
        change(&mut state.memory);
        state.changed = true;
        self.page_count = self.page_count - before + state.memory.page_count();
    }
}

impl Image for PoolImages {
    fn read(&self, at: Place, out: &mut [u8]) {
        match self.pool(at.pool) {
            Some(memory) => memory.read(at.offset.0, out),
            None => out.fill(0),
        }
    }

    fn write(&mut self, at: Place, bytes: &[u8]) {
        let new_pages = bytes.len() as u64 / PAGE + 2;
        self.change(at.pool, new_pages, |memory| {
            memory.write(at.offset.0, bytes);
        });
    }

    fn clear_from(&mut self, pool: PoolIndex, from: PoolOffset) {
        self.change(pool, 0, |memory| {
            let len_bytes = memory.len_bytes();
            memory.resize(from.0.min(len_bytes));
            memory.resize(len_bytes);
        });
    }

    fn resize(&mut self, pool: PoolIndex, len_bytes: u64) {
        let old = self.pool(pool).map_or(0, PoolMemory::len_bytes);
        self.change(pool, 0, |memory| memory.resize(len_bytes));
        if len_bytes > old {
            self.fill_whole(pool, old / PAGE);
        }
    }
}
