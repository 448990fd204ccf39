//! Reading a whole trace, which can take seconds, with the number of bytes that were read as progress.

use powerfail_model::EventIndex;
use powerfail_trace::{Record, RecordCursor, Result, Trace};

/// All records of a trace, in order.
pub(crate) struct WatchedRecords<'t, 'p> {
    records: RecordCursor<'t>,
    file_bytes: u64,
    /// What `progress` has heard last.
    told: u64,
    progress: &'p mut dyn FnMut(u64),
}

impl<'t, 'p> WatchedRecords<'t, 'p> {
    /// Of a trace. `progress` hears how many bytes of its file were read.
    pub(crate) fn of(trace: &'t Trace, progress: &'p mut dyn FnMut(u64)) -> Self {
        Self {
            records: trace.records_from(EventIndex(0)),
            file_bytes: trace.file_bytes(),
            told: 0,
            progress,
        }
    }

    /// The next record, which lives until the one after it is asked for.
    pub(crate) fn next_record(&mut self) -> Result<Option<Record<'_>>> {
        let read = self.records.file_position();
        if read != self.told {
            self.told = read;
            (self.progress)(read);
        }
        let record = self.records.next_record()?;
        if record.is_none() {
            (self.progress)(self.file_bytes);
        }
        Ok(record)
    }
}
