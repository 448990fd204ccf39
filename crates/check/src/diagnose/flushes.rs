//! What became of a lost store: whether and when it was flushed and fenced.

use powerfail_model::{
    Domain, Event, EventIndex, LineId, LineIndex, Rules, StoreKind, ThreadIndex,
};
use powerfail_trace::Trace;
use rustc_hash::FxHashMap;

use super::minimal::Minimal;
use super::{Cause, StoresOf};
use crate::error::CheckError;

/// A store that a crash state lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostStore {
    /// The store.
    pub event: EventIndex,
    /// Its line.
    pub line: LineId,
    /// Its flush.
    pub flushed: Flushed,
    /// The first fence after the flush, of the same thread.
    pub fenced: Option<EventIndex>,
}

/// Whether and when a store was flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// In the whole run nothing flushes its line after it.
    Never,
    /// By the store itself, which is non-temporal.
    ByItself,
    /// By this event.
    At(EventIndex),
    /// By this event, after the program had stored to the line again: the flush is meant for that.
    WithLater(EventIndex),
}

impl LostStore {
    pub(crate) const fn is_fenced(&self) -> bool {
        self.fenced.is_some()
    }

    /// The flush.
    pub const fn flush(&self) -> Option<EventIndex> {
        match self.flushed {
            Flushed::At(flush) | Flushed::WithLater(flush) => Some(flush),
            Flushed::Never | Flushed::ByItself => None,
        }
    }

    /// Why it was not durable at a moment.
    pub(crate) fn cause(&self, at: EventIndex) -> Cause {
        match self.flushed {
            Flushed::ByItself => Cause::MissingFence,
            Flushed::At(flush) | Flushed::WithLater(flush) if flush < at => Cause::MissingFence,
            Flushed::At(_) => Cause::WrongOrder,
            Flushed::Never | Flushed::WithLater(_) => Cause::MissingFlush,
        }
    }
}

/// What is followed: a lost store that waits for its flush or fence.
struct Waiting {
    /// Which case, and which store of it.
    owner: (usize, usize),
    overwritten: bool,
}

/// One pass for all lost stores. They are those of `lost`, by case, oldest first.
pub(super) fn look_up(
    trace: &Trace,
    rules: Rules,
    cases: &[Minimal],
    stores: &[StoresOf],
    lost: &[Vec<EventIndex>],
) -> Result<Vec<Vec<LostStore>>, CheckError> {
    let mut found: Vec<Vec<LostStore>> = Vec::new();
    for ((case, stores), lost) in cases.iter().zip(stores).zip(lost) {
        let state = case.state();
        let line_of = |event: EventIndex| {
            let of = |(id, version): &(LineId, usize)| {
                (stores.get(id)?.get(*version) == Some(&event)).then_some(*id)
            };
            state.versions.iter().find_map(of)
        };
        let all = lost.iter().map(|event| LostStore {
            event: *event,
            line: line_of(*event).unwrap_or_default(),
            flushed: Flushed::Never,
            fenced: None,
        });
        found.push(all.collect());
    }
    let mut begins: Vec<(EventIndex, (usize, usize))> = Vec::new();
    for (case, lost) in found.iter().enumerate() {
        let numbered = lost.iter().enumerate();
        begins.extend(numbered.map(|(number, store)| (store.event, (case, number))));
    }
    begins.sort_unstable();
    let Some((first, _)) = begins.first().copied() else {
        return Ok(found);
    };
    let line_bytes = rules.domain.line_bytes() as u64;
    let mut begins = begins.into_iter().peekable();
    let mut unflushed: FxHashMap<LineId, Vec<Waiting>> = FxHashMap::default();
    let mut unfenced: FxHashMap<ThreadIndex, Vec<(usize, usize)>> = FxHashMap::default();
    let mut records = trace.records_from(first);
    while let Some(record) = records.next_record()? {
        if begins.peek().is_none() && unflushed.is_empty() && unfenced.is_empty() {
            break;
        }
        let Some(step) = record.step() else { continue };
        let id = |pool, offset: u64| LineId {
            pool,
            line: LineIndex(offset / line_bytes),
        };
        let mut fence = |found: &mut Vec<Vec<LostStore>>| {
            for (case, number) in unfenced.remove(&step.thread).unwrap_or_default() {
                found[case][number].fenced.get_or_insert(step.index);
            }
        };
        match step.event {
            Event::Store { kind, at, bytes } => {
                if kind == StoreKind::Locked {
                    fence(&mut found);
                }
                let first = at.offset.0 / line_bytes;
                let last = (at.offset.0 + (bytes.len() as u64).max(1) - 1) / line_bytes;
                for line in first..=last {
                    let waiting = unflushed.get_mut(&id(at.pool, line * line_bytes));
                    for waiting in waiting.into_iter().flatten() {
                        waiting.overwritten = true;
                    }
                }
                while let Some((_, owner)) = begins.next_if(|(event, _)| *event == step.index) {
                    if kind == StoreKind::NonTemporal && rules.domain != Domain::PageCache {
                        found[owner.0][owner.1].flushed = Flushed::ByItself;
                        unfenced.entry(step.thread).or_default().push(owner);
                    } else {
                        let waiting = Waiting {
                            owner,
                            overwritten: false,
                        };
                        let line = found[owner.0][owner.1].line;
                        unflushed.entry(line).or_default().push(waiting);
                    }
                }
            }
            // Only there flushes mean anything.
            Event::Flush { at, .. } if rules.domain == Domain::Adr => {
                let flushed = unflushed.remove(&id(at.pool, at.offset.0));
                for waiting in flushed.into_iter().flatten() {
                    let store = &mut found[waiting.owner.0][waiting.owner.1];
                    store.flushed = flushed_at(step.index, waiting.overwritten);
                    unfenced.entry(step.thread).or_default().push(waiting.owner);
                }
            }
            Event::Fence(_) => fence(&mut found),
            Event::Sync {
                pool,
                offset,
                len_bytes,
            } => {
                fence(&mut found);
                let last = id(pool, offset.0.saturating_add(len_bytes));
                let range = id(pool, offset.0)..=last;
                unflushed.retain(|line, waiting| {
                    if !range.contains(line) {
                        return true;
                    }
                    for waiting in waiting {
                        let store = &mut found[waiting.owner.0][waiting.owner.1];
                        store.flushed = flushed_at(step.index, waiting.overwritten);
                        store.fenced = Some(step.index);
                    }
                    false
                });
            }
            Event::Flush { .. } | Event::Resize { .. } => {}
        }
    }
    Ok(found)
}

const fn flushed_at(event: EventIndex, overwritten: bool) -> Flushed {
    if overwritten {
        Flushed::WithLater(event)
    } else {
        Flushed::At(event)
    }
}
