//! Cursors that are kept, so that a pass over a long trace need not begin at its first event.
//!
//! Searches for a cause try moments close to each other, far from the beginning, again and again; and several phases look at the
//! pools as the workload left them. A copy of the pages costs less than the events before it, or it is not made.

use powerfail_image::ImageCursor;
use powerfail_model::EventIndex;
use powerfail_trace::Trace;

use crate::error::CheckError;

/// A cursor with more pages is not kept: 128 MiB.
const PAGES_MAX: u64 = 1 << 15;
/// A copy of a page costs about as much as so many events.
const EVENTS_PER_PAGE: u64 = 16;
/// Fewer events than this are always passed over once more.
const EVENTS_MIN: u64 = 4096;
/// A cursor is kept before the first moment of a pass, at this part of the way, because a search also goes backwards.
const PART_BEFORE: u64 = 16;
/// So many events are passed over before the clock is looked at.
const EVENTS_AT_A_TIME: u64 = 1 << 16;

/// Moves a cursor, unless it is to stop. Whether it has arrived.
pub(crate) fn move_unless(
    cursor: &mut ImageCursor<'_>,
    at: EventIndex,
    is_stopped: &dyn Fn() -> bool,
) -> Result<bool, CheckError> {
    loop {
        let next = at.min(EventIndex(cursor.position().0 + EVENTS_AT_A_TIME));
        cursor.move_to(next)?;
        if next == at {
            return Ok(true);
        }
        if is_stopped() {
            return Ok(false);
        }
    }
}

/// Cursors of one runner.
#[derive(Default)]
pub(super) struct Cursors<'t> {
    /// At the end of the trace, with the newest content.
    end: Option<ImageCursor<'t>>,
    /// On the way, with the newest content, and with a frontier.
    kept: [Option<ImageCursor<'t>>; 2],
}

impl<'t> Cursors<'t> {
    /// The pools as the workload left them, if they were kept.
    pub(super) const fn end(&self) -> Option<&ImageCursor<'t>> {
        self.end.as_ref()
    }

    /// Keeps a cursor that stands at the end of its trace, unless it is too large.
    pub(super) fn keep_end(&mut self, cursor: ImageCursor<'t>) {
        if cursor.page_count() <= PAGES_MAX && cursor.frontier().is_none() {
            self.end = Some(cursor);
        }
    }

    /// A cursor that stands at a moment: one that was kept before it, or what `new` makes. `None` if it was stopped.
    pub(super) fn at(
        &mut self,
        trace: &Trace,
        at: EventIndex,
        needs_frontier: bool,
        is_stopped: &dyn Fn() -> bool,
        new: &dyn Fn() -> Result<ImageCursor<'t>, CheckError>,
    ) -> Result<Option<ImageCursor<'t>>, CheckError> {
        if at.0 > trace.event_count() {
            return Ok(Some(new()?));
        }
        let known = &mut self.kept[usize::from(needs_frontier)];
        let mut cursor = match known {
            Some(cursor) if cursor.position() <= at => cursor.fork(),
            _ => new()?,
        };
        let way = at.0 - cursor.position().0;
        if way >= EVENTS_MIN {
            let before = EventIndex(at.0 - way / PART_BEFORE);
            if !move_unless(&mut cursor, before, is_stopped)? {
                return Ok(None);
            }
            let pages = cursor.page_count();
            if pages <= PAGES_MAX && way >= EVENTS_MIN + pages * EVENTS_PER_PAGE {
                *known = Some(cursor.fork());
            }
        }
        let has_arrived = move_unless(&mut cursor, at, is_stopped)?;
        Ok(has_arrived.then_some(cursor))
    }
}
