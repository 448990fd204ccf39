//! Executions that no moment of the run explains, whether or not they fail.

use powerfail_explore::lazy::{History, ReadLine, Seen, initial_image, robust};
use powerfail_model::{EventIndex, Rules};
use powerfail_trace::{RecordCursor, Trace};

use crate::error::CheckError;

/// Two stores that contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Contradiction {
    /// The earlier store, which recovery missed.
    pub(crate) lost: EventIndex,
    /// The later store, which it read.
    pub(crate) seen: EventIndex,
}

/// A pass over the trace that knows since when each line holds its durable content.
pub(crate) struct HistoryCursor<'t> {
    history: History,
    records: RecordCursor<'t>,
}

impl<'t> HistoryCursor<'t> {
    pub(crate) fn new(
        trace: &'t Trace,
        rules: Rules,
        fill: Option<u8>,
    ) -> Result<Self, CheckError> {
        Ok(Self {
            history: History::new(rules, initial_image(trace, fill)?),
            records: trace.records_from(EventIndex(0)),
        })
    }

    /// Moves to the moment just before an event.
    pub(crate) fn move_to(&mut self, at: EventIndex) -> Result<(), CheckError> {
        Ok(self.history.move_to(&mut self.records, at)?)
    }

    /// The lines that an execution chose from, and when they held what was read.
    pub(crate) fn read_lines(&self, seen: &Seen<'_>, crash: EventIndex) -> Vec<ReadLine> {
        self.history.read_lines(seen, crash)
    }
}

/// The stores that contradict each other in what was read, if no moment explains it.
pub(crate) fn contradiction(lines: &[ReadLine]) -> Option<Contradiction> {
    let unexplained = robust(lines).err()?;
    Some(Contradiction {
        lost: unexplained.lost.event,
        seen: unexplained.seen.event,
    })
}
