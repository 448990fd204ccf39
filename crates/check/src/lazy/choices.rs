//! The loads that could read from several stores, for people.

use powerfail_finding::{Choice, Role, Source, SourcePlace};
use powerfail_model::{CrashState, Event, EventIndex, Rules};
use powerfail_trace::{Body, Trace};

use super::failure::{Load, LoadSource};
use crate::error::CheckError;
use crate::places::{Places, hex_prefix};

/// How many choices a finding names.
const CHOICES_MAX: usize = 64;

/// The choices that led to a failure. `lost` is the smallest crash state that fails in the same way: what
/// reads an older value from one of its lines mattered.
pub(crate) fn choices(
    trace: &Trace,
    loads: &[Load],
    lost: &CrashState,
    rules: Rules,
    places: &mut Places<'_>,
) -> Result<Vec<Choice>, CheckError> {
    let line_bytes = rules.domain.line_bytes() as u64;
    let is_lost = |load: &Load| {
        let mut lines = lost.versions.iter();
        load.taken != 0 && lines.any(|(line, _)| *line == load.line)
    };
    let marked = loads
        .iter()
        .map(|load| (load, load.decisive || is_lost(load)));
    let mattered = marked.clone().filter(|(_, decisive)| *decisive).count();
    let mut room = CHOICES_MAX.saturating_sub(mattered);
    let mut choices = Vec::new();
    for (load, decisive) in marked {
        if !decisive {
            if room == 0 {
                continue;
            }
            room -= 1;
        }
        let mut place = match &load.stack {
            Some(stack) => places.of_backtrace(Role::Load, stack),
            None => SourcePlace::new(Role::Load),
        };
        let first = load.line.line.0 * line_bytes + load.from as u64;
        let pool = trace.pools().get(load.line.pool.0 as usize);
        place.pool = pool.map(|pool| pool.path.display().to_string());
        place.pool_offset = Some(first);
        place.len_bytes = Some((load.to - load.from) as u64);
        let mut sources = Vec::new();
        for (number, source) in load.sources.iter().enumerate() {
            let store = newest_in(trace, source, load, rules)?;
            let store = match (store, &source.by_recovery) {
                (Some(event), _) => {
                    let mut place = places.of_event(Role::Store, event)?;
                    place.stack.clear();
                    Some(place)
                }
                (None, Some(by)) => {
                    let mut place = places.of_backtrace(Role::Store, &by.stack);
                    place.pool_offset = Some(by.offset);
                    place.len_bytes = Some(by.len_bytes);
                    place.stack.clear();
                    Some(place)
                }
                (None, None) => None,
            };
            sources.push(Source {
                store,
                bytes: hex_prefix(&source.bytes),
                taken: number == load.taken,
            });
        }
        choices.push(Choice {
            load: place,
            sources,
            decisive,
        });
    }
    Ok(choices)
}

/// The newest store of a source that touches the bytes which were loaded. Of a store that becomes durable in pieces, only
/// those that the source has count.
fn newest_in(
    trace: &Trace,
    source: &LoadSource,
    load: &Load,
    rules: Rules,
) -> Result<Option<EventIndex>, CheckError> {
    let line_bytes = rules.domain.line_bytes() as u64;
    let line = load.line.line.0 * line_bytes;
    let (first, end) = (line + load.from as u64, line + load.to as u64);
    for pieces in source.stores.chunk_by(|one, next| one == next).rev() {
        let event = pieces[0];
        let mut records = trace.records_from(event);
        let Some(record) = records.next_record()? else {
            continue;
        };
        let Body::Pm(Event::Store { at, bytes, .. }) = record.body else {
            continue;
        };
        let begin = at.offset.0.max(line);
        let whole = (at.offset.0 + bytes.len() as u64).min(line + line_bytes);
        let survives = rules.end_of_pieces(begin, pieces.len()).min(whole);
        if begin < end && survives > first {
            return Ok(Some(event));
        }
    }
    Ok(None)
}
