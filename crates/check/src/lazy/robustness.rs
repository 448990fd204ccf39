//! Executions that no moment of the run explains, whether or not they fail.

use powerfail_explore::lazy::{History, ReadLine, Seen, robust};
use powerfail_model::{EventIndex, Image, Place, Rules, SparseImage};
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

/// A pass that knows since when lines hold what they surely hold.
pub(crate) struct Moments<'t> {
    history: History,
    records: RecordCursor<'t>,
    position: EventIndex,
}

impl<'t> Moments<'t> {
    pub(crate) fn new(trace: &'t Trace, rules: Rules) -> Result<Self, CheckError> {
        let mut image = SparseImage::new();
        let mut runs = trace.initial_images();
        while let Some(run) = runs.next_run()? {
            image.write(Place::new(run.pool, run.offset), run.bytes);
        }
        Ok(Self {
            history: History::new(rules, image),
            records: trace.records_from(EventIndex(0)),
            position: EventIndex(0),
        })
    }

    /// Goes to the moment just before an event.
    pub(crate) fn move_to(&mut self, at: EventIndex) -> Result<(), CheckError> {
        while self.position < at {
            let Some(record) = self.records.next_record()? else {
                break;
            };
            if let Some(step) = record.step() {
                self.history.apply(&step);
            }
            self.position.0 += 1;
        }
        Ok(())
    }

    /// The lines that were chosen from, and when they had what was read.
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
