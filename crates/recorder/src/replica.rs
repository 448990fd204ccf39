//! The content of a pool according to a trace, to compare with the file.

use std::collections::BTreeMap;
use std::io;

use powerfail_model::{Event, EventIndex, PoolIndex, PoolOffset};
use powerfail_trace::{Body, PAGE_BYTES, Trace, TraceError};

use crate::error::FirstDifference;
use crate::sparse::SparseFile;

const PAGE: u64 = PAGE_BYTES as u64;

/// The content of a pool, as far as it is not zero.
#[derive(Debug, Default)]
pub(crate) struct Replica {
    len_bytes: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl Replica {
    /// Replays one pool of a trace.
    pub(crate) fn of(trace: &Trace, pool: PoolIndex) -> Result<Self, TraceError> {
        let len_bytes = trace
            .pools()
            .get(pool.0 as usize)
            .map_or(0, |pool| pool.len_bytes);
        let mut replica = Self {
            len_bytes,
            pages: BTreeMap::new(),
        };
        let mut runs = trace.initial_image(pool);
        while let Some(run) = runs.next_run()? {
            replica.store(run.offset.0, run.bytes);
        }
        let mut records = trace.records_from(EventIndex(0));
        while let Some(record) = records.next_record()? {
            match record.body {
                Body::Pm(Event::Store { at, bytes, .. }) if at.pool == pool => {
                    replica.store(at.offset.0, bytes);
                }
                Body::Pm(Event::Resize {
                    pool: resized,
                    len_bytes,
                }) if resized == pool => replica.resize(len_bytes),
                _ => {}
            }
        }
        Ok(replica)
    }

    fn store(&mut self, offset: u64, bytes: &[u8]) {
        let room = usize::try_from(self.len_bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut rest = &bytes[..bytes.len().min(room)];
        let mut position = offset;
        while !rest.is_empty() {
            let start = (position % PAGE) as usize;
            let (piece, later) = rest.split_at(rest.len().min(PAGE_BYTES - start));
            let page = self
                .pages
                .entry(position / PAGE)
                .or_insert_with(|| vec![0; PAGE_BYTES]);
            page[start..start + piece.len()].copy_from_slice(piece);
            position += piece.len() as u64;
            rest = later;
        }
    }

    fn resize(&mut self, len_bytes: u64) {
        if len_bytes < self.len_bytes {
            drop(self.pages.split_off(&len_bytes.div_ceil(PAGE)));
            if let Some(page) = self.pages.get_mut(&(len_bytes / PAGE)) {
                page[(len_bytes % PAGE) as usize..].fill(0);
            }
        }
        self.len_bytes = len_bytes;
    }

    /// Its length.
    pub(crate) const fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Where a file first differs from it, in what both have.
    pub(crate) fn first_difference(
        &self,
        file: &SparseFile,
    ) -> io::Result<Option<FirstDifference>> {
        let len_bytes = self.len_bytes.min(file.len_bytes()?);
        let mut first: Option<FirstDifference> = None;
        let mut compare = |offset: u64, replayed: &[u8], actual: &[u8]| {
            for ((offset, replayed), actual) in (offset..).zip(replayed).zip(actual) {
                if replayed != actual && offset < len_bytes {
                    let difference = FirstDifference {
                        offset: PoolOffset(offset),
                        replayed: *replayed,
                        actual: *actual,
                        count: 0,
                    };
                    let count = first.map_or(0, |first| first.count) + 1;
                    let earlier = first
                        .filter(|first| first.offset < difference.offset)
                        .unwrap_or(difference);
                    first = Some(FirstDifference { count, ..earlier });
                }
            }
        };
        let zeros = [0; PAGE_BYTES];
        // First what the trace has, then what only the file has.
        for (number, page) in &self.pages {
            let mut actual = [0; PAGE_BYTES];
            file.read_at(&mut actual, number * PAGE)?;
            compare(number * PAGE, page, &actual);
        }
        file.for_each_run(len_bytes, |offset, bytes| {
            let mut position = offset;
            let mut rest = bytes;
            while !rest.is_empty() {
                let (piece, later) =
                    rest.split_at(rest.len().min(PAGE_BYTES - (position % PAGE) as usize));
                if !self.pages.contains_key(&(position / PAGE)) {
                    compare(position, &zeros, piece);
                }
                position += piece.len() as u64;
                rest = later;
            }
            Ok::<_, io::Error>(())
        })?;
        Ok(first)
    }
}
