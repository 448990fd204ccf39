//! The newest content of pools whose fresh memory is filled.
//!
//! Reads as the crash images of `powerfail-image` do that are made with a fill byte, in the pages that
//! somebody has touched: what a fresh pool holds where nothing was stored is the byte.

use powerfail_model::{Image, Place, PoolIndex, PoolOffset};
use powerfail_trace::Trace;
use rustc_hash::{FxHashMap, FxHashSet};

const PAGE_BYTES: usize = 4096;

/// See the module header. A pool is fresh if it was all zero when it was mapped.
#[derive(Clone, Debug, Default)]
pub struct FilledImage {
    pages: FxHashMap<(PoolIndex, u64), Box<[u8; PAGE_BYTES]>>,
    fill: u8,
    /// Pools that were not empty before the first event.
    used: FxHashSet<PoolIndex>,
}

impl FilledImage {
    /// The pools of a trace before its first event.
    pub fn of(trace: &Trace, fill: Option<u8>) -> powerfail_trace::Result<Self> {
        let mut image = Self {
            fill: fill.unwrap_or(0),
            ..Self::default()
        };
        let mut runs = trace.initial_images();
        while let Some(run) = runs.next_run()? {
            image.used.insert(run.pool);
            image.write(Place::new(run.pool, run.offset), run.bytes);
        }
        Ok(image)
    }

    fn fill_of(&self, pool: PoolIndex) -> u8 {
        if self.used.contains(&pool) {
            0
        } else {
            self.fill
        }
    }
}

/// Cuts bytes at page borders: page, offset in it, range in the buffer.
fn pieces(offset: PoolOffset, len: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset.0.wrapping_add(done as u64);
        let in_page = (at % PAGE_BYTES as u64) as usize;
        let from = done;
        done += (PAGE_BYTES - in_page).min(len - done);
        Some((at / PAGE_BYTES as u64, in_page, from, done))
    })
}

impl Image for FilledImage {
    fn read(&self, at: Place, out: &mut [u8]) {
        for (page, in_page, from, to) in pieces(at.offset, out.len()) {
            let target = &mut out[from..to];
            match self.pages.get(&(at.pool, page)) {
                Some(page) => target.copy_from_slice(&page[in_page..in_page + target.len()]),
                None => target.fill(self.fill_of(at.pool)),
            }
        }
    }

    fn write(&mut self, at: Place, bytes: &[u8]) {
        let fill = self.fill_of(at.pool);
        for (page, in_page, from, to) in pieces(at.offset, bytes.len()) {
            let page = self
                .pages
                .entry((at.pool, page))
                .or_insert_with(|| Box::new([fill; PAGE_BYTES]));
            page[in_page..in_page + (to - from)].copy_from_slice(&bytes[from..to]);
        }
    }

    fn clear_from(&mut self, pool: PoolIndex, from: PoolOffset) {
        let last = from.0 / PAGE_BYTES as u64;
        let in_page = (from.0 % PAGE_BYTES as u64) as usize;
        let fill = self.fill_of(pool);
        self.pages
            .retain(|&(owner, page), _| owner != pool || page <= last);
        if let Some(page) = self.pages.get_mut(&(pool, last)) {
            page[in_page..].fill(fill);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: u64) -> Place {
        Place::new(PoolIndex(0), PoolOffset(offset))
    }

    #[test]
    fn what_nobody_has_stored_is_the_byte() {
        let mut image = FilledImage {
            fill: 9,
            ..FilledImage::default()
        };
        image.write(at(4095), &[1, 0]);
        let mut out = [7; 4];
        image.read(at(4094), &mut out);
        assert_eq!(out, [9, 1, 0, 9]);
        image.clear_from(PoolIndex(0), PoolOffset(4096));
        image.read(at(4094), &mut out);
        assert_eq!(out, [9, 1, 9, 9]);
        image.used.insert(PoolIndex(0));
        image.read(at(20_000), &mut out);
        assert_eq!(out, [0; 4]);
    }
}
