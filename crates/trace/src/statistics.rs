//! Counts what a trace holds and what it costs, in one pass.

use powerfail_model::{Event, EventIndex};

use crate::error::Result;
use crate::file::FileOperation;
use crate::kind::{RecordGroup, RecordKind};
use crate::layout::BLOCK_HEADER_LEN;
use crate::reader::Trace;
use crate::record::Body;

/// What a trace holds and what it costs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// All records.
    pub events: u64,
    /// Bytes written by all stores.
    pub store_bytes: u64,
    /// Bytes written to files of trees by system calls.
    pub written_bytes: u64,
    /// The file's length.
    pub file_bytes: u64,
    /// What blocks of records take in the file, with their headers.
    pub event_stored_bytes: u64,
    /// What their payloads take after decompression.
    pub event_raw_bytes: u64,
    counts: [u64; RecordKind::ALL.len()],
}

impl Statistics {
    /// Reads all records of a trace.
    pub fn collect(trace: &Trace) -> Result<Self> {
        let mut statistics = Self {
            file_bytes: trace.file_bytes(),
            ..Self::default()
        };
        for block in trace.event_blocks() {
            statistics.event_stored_bytes +=
                u64::from(block.stored_len_bytes) + BLOCK_HEADER_LEN as u64;
            statistics.event_raw_bytes += u64::from(block.raw_len_bytes);
        }
        let mut records = trace.records_from(EventIndex(0));
        while let Some(record) = records.next_record()? {
            statistics.count(&record.body);
        }
        Ok(statistics)
    }

    /// How many records of a kind there are.
    pub const fn of(&self, kind: RecordKind) -> u64 {
        self.counts[kind as usize]
    }

    /// How many records of a group there are.
    pub fn of_group(&self, group: RecordGroup) -> u64 {
        RecordKind::ALL
            .into_iter()
            .filter(|kind| kind.group() == group)
            .map(|kind| self.of(kind))
            .sum()
    }

    /// What a record takes in the file on average, without definitions and images.
    pub fn bytes_per_event(&self) -> f64 {
        ratio(self.event_stored_bytes, self.events)
    }

    /// The length of the file divided by the number of records.
    pub fn file_bytes_per_event(&self) -> f64 {
        ratio(self.file_bytes, self.events)
    }

    /// How many times smaller compression makes blocks of records.
    pub fn compression_ratio(&self) -> f64 {
        ratio(self.event_raw_bytes, self.event_stored_bytes)
    }

    fn count(&mut self, body: &Body<'_>) {
        self.events += 1;
        self.counts[RecordKind::of(body) as usize] += 1;
        if let Body::Pm(Event::Store { bytes, .. }) = body {
            self.store_bytes = self.store_bytes.saturating_add(bytes.len() as u64);
        }
        if let Body::File(FileOperation::Write { bytes, .. }) = body {
            self.written_bytes = self.written_bytes.saturating_add(bytes.len() as u64);
        }
    }
}

#[allow(
    clippy::cast_precision_loss,
    reason = "a ratio for people needs no more than 52 bits"
)]
fn ratio(numerator: u64, denominator: u64) -> f64 {
    if denominator == 0 {
        0.0
    } else {
        numerator as f64 / denominator as f64
    }
}
