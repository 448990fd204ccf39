//! Candidates of the lint: a crash has to show that recovery misses what may be lost.

use powerfail_explore::{LostLines, OlderVersion};
use powerfail_finding::Role;
use powerfail_lint::Hit;
use powerfail_model::{EventIndex, LineId, LineIndex, Rules};
use powerfail_trace::Trace;

use crate::error::CheckError;
use crate::runner::{Survival, Trial};

/// How many moments behind a publication are tried.
const MOMENTS_MAX: usize = 4;
/// How many events are looked through for them.
const EVENTS_MAX: u64 = 4096;

/// The crash images that would show a candidate: what it is about is lost, everything else is there.
pub(crate) fn trials(trace: &Trace, rules: Rules, hit: &Hit) -> Result<Vec<Trial>, CheckError> {
    let line_bytes = rules.domain.line_bytes() as u64;
    let mut lost = LostLines::new();
    for site in hit.sites.iter().filter(|site| site.role == Role::Store) {
        let Some(place) = site.place else { continue };
        let first = place.offset.0 / line_bytes;
        let end = (place.offset.0 + site.len_bytes.max(1) - 1) / line_bytes;
        for line in first..=end {
            let line = LineId {
                pool: place.pool,
                line: LineIndex(line),
            };
            lost = lost.with(line, OlderVersion::Before(site.event));
        }
    }
    let newest = hit.sites.iter().map(|site| site.event).max();
    let Some(newest) = newest else {
        return Ok(Vec::new());
    };
    Ok(moments_behind(trace, newest)?
        .into_iter()
        .map(|at| Trial {
            at,
            state: Survival::Lost(lost.clone()),
        })
        .collect())
}

/// Right behind an event, and before each of the next flushes and fences.
fn moments_behind(trace: &Trace, event: EventIndex) -> Result<Vec<EventIndex>, CheckError> {
    let first = EventIndex(event.0 + 1);
    let mut moments = vec![first];
    let mut records = trace.records_from(first);
    while let Some(record) = records.next_record()? {
        if moments.len() > MOMENTS_MAX || record.index.0 > first.0 + EVENTS_MAX {
            break;
        }
        let Some(step) = record.step() else { continue };
        let orders = !matches!(step.event, powerfail_model::Event::Store { .. });
        if orders && record.index > first {
            moments.push(record.index);
        }
    }
    Ok(moments)
}
