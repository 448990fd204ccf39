//! Keeps commands within a limit of memory: a small trace can describe large pools.

use std::collections::HashSet;

use powerfail_model::{Frontier, Image, Place, PoolIndex, PoolOffset, SparseImage};
use powerfail_report::bytes;

const PAGE_BYTES: u64 = 4096;

/// What the model spends on an open line and on an open store beside their bytes, about.
const OPEN_LINE_BYTES: u64 = 160;
const OPEN_STORE_BYTES: u64 = 48;

/// How many events pass between two estimates of what open lines take.
const EVENTS_PER_ESTIMATE: u64 = 1 << 16;

/// An image in memory that takes no more pages than its limit allows. What goes beyond is not
/// written, so `is_full` must be asked after each event.
pub(crate) struct LimitedImage {
    image: SparseImage,
    pages: HashSet<(PoolIndex, u64)>,
    pages_max: u64,
    full: bool,
    /// The page of the last write: most stores go where the one before went.
    last: Option<(PoolIndex, u64)>,
}

impl LimitedImage {
    fn new(limit_bytes: u64) -> Self {
        Self {
            image: SparseImage::new(),
            pages: HashSet::new(),
            pages_max: limit_bytes / PAGE_BYTES,
            full: false,
            last: None,
        }
    }

    /// Whether there is room for a page, which is taken if it is new.
    fn take(&mut self, page: (PoolIndex, u64)) -> bool {
        if self.last == Some(page) || self.pages.contains(&page) {
            self.last = Some(page);
            return true;
        }
        if self.pages.len() as u64 >= self.pages_max {
            self.full = true;
            return false;
        }
        self.pages.insert(page);
        self.last = Some(page);
        true
    }
}

impl Image for LimitedImage {
    fn read(&self, at: Place, out: &mut [u8]) {
        self.image.read(at, out);
    }

    fn write(&mut self, at: Place, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let offset = at.offset.0.wrapping_add(done as u64);
            let room = (PAGE_BYTES - offset % PAGE_BYTES) as usize;
            let len = room.min(bytes.len() - done);
            if !self.take((at.pool, offset / PAGE_BYTES)) {
                return;
            }
            let place = Place::new(at.pool, PoolOffset(offset));
            self.image.write(place, &bytes[done..done + len]);
            done += len;
        }
    }

    fn clear_from(&mut self, pool: PoolIndex, from: PoolOffset) {
        let first = from.0 / PAGE_BYTES;
        self.pages.retain(|&(p, page)| p != pool || page <= first);
        self.last = None;
        self.image.clear_from(pool, from);
    }
}

/// Watches over what a frontier takes.
pub(crate) struct MemoryLimit {
    limit_bytes: u64,
    events: u64,
}

impl MemoryLimit {
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self {
            limit_bytes,
            events: 0,
        }
    }

    /// An image that obeys the limit.
    pub(crate) fn image(&self) -> LimitedImage {
        LimitedImage::new(self.limit_bytes)
    }

    /// Must be called when an image was filled.
    pub(crate) fn check_image(&self, image: &LimitedImage) -> anyhow::Result<()> {
        anyhow::ensure!(!image.full, self.complaint());
        Ok(())
    }

    /// Must be called after each event.
    pub(crate) fn check(&mut self, frontier: &Frontier<LimitedImage>) -> anyhow::Result<()> {
        let image = frontier.newest();
        self.check_image(image)?;
        self.events += 1;
        if self.events.is_multiple_of(EVENTS_PER_ESTIMATE) {
            let lines: u64 = frontier
                .open_lines()
                .map(|line| {
                    let stores = line.version_count() as u64 - 1;
                    OPEN_LINE_BYTES + line.floor().len() as u64 + stores * OPEN_STORE_BYTES
                })
                .sum();
            let pages = image.pages.len() as u64 * PAGE_BYTES;
            anyhow::ensure!(
                pages.saturating_add(lines) <= self.limit_bytes,
                self.complaint()
            );
        }
        Ok(())
    }

    /// What to say when the limit is reached.
    pub(crate) fn complaint(&self) -> String {
        format!(
            "this needs more than {} of memory; --memory-limit raises the limit",
            bytes(self.limit_bytes)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(offset: u64) -> Place {
        Place::new(PoolIndex(0), PoolOffset(offset))
    }

    #[test]
    fn an_image_is_full_when_its_pages_are_used_up() {
        let mut image = LimitedImage::new(2 * PAGE_BYTES);
        image.write(place(4090), &[7; 12]);
        image.write(place(4095), &[8]);
        assert!(!image.full);
        let mut out = [0; 3];
        image.read(place(4094), &mut out);
        assert_eq!(out, [7, 8, 7]);
        image.write(place(2 * PAGE_BYTES), &[1]);
        assert!(image.full);
    }

    #[test]
    fn pages_that_are_cleared_can_be_used_again() {
        let mut image = LimitedImage::new(2 * PAGE_BYTES);
        image.write(place(0), &[1]);
        image.write(place(5 * PAGE_BYTES), &[1]);
        image.clear_from(PoolIndex(0), PoolOffset(1));
        image.write(place(9 * PAGE_BYTES), &[1]);
        assert!(!image.full);
    }
}
