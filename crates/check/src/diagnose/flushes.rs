//! What became of a lost store: whether and when it was flushed and fenced.

use std::ops::RangeInclusive;

use powerfail_model::{
    Domain, Event, EventIndex, LineId, LineIndex, PoolIndex, Rules, Step, StoreKind, ThreadIndex,
};
use powerfail_trace::Trace;
use rustc_hash::FxHashMap;

use super::minimal::Minimal;
use super::{Cause, StoresOf};
use crate::error::CheckError;

/// A store that a crash state lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LostStore {
    /// The store.
    pub(crate) event: EventIndex,
    /// Its line.
    pub(crate) line: LineId,
    /// Its flush.
    pub(crate) flushed: Flushed,
    /// The first fence after the flush, of the same thread.
    pub(crate) fenced: Option<EventIndex>,
}

/// Whether and when a store was flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
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
    pub(crate) const fn flush(&self) -> Option<EventIndex> {
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

/// A lost store of a case: which case, and which store of it.
type Owner = (usize, usize);

/// Lost stores that wait for their flushes and fences.
struct Watch {
    rules: Rules,
    found: Vec<Vec<LostStore>>,
    /// By line, and whether the program has stored to it again.
    unflushed: FxHashMap<LineId, Vec<(Owner, bool)>>,
    /// By the thread that flushed.
    unfenced: FxHashMap<ThreadIndex, Vec<Owner>>,
}

/// One pass for all lost stores. They are those of `lost`, by case, oldest first.
pub(super) fn look_up(
    trace: &Trace,
    rules: Rules,
    cases: &[Minimal],
    stores: &[StoresOf],
    lost: &[Vec<EventIndex>],
) -> Result<Vec<Vec<LostStore>>, CheckError> {
    let mut watch = Watch {
        rules,
        found: Vec::new(),
        unflushed: FxHashMap::default(),
        unfenced: FxHashMap::default(),
    };
    let mut begins: Vec<(EventIndex, Owner)> = Vec::new();
    for (number, ((case, stores), lost)) in cases.iter().zip(stores).zip(lost).enumerate() {
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
        watch.found.push(all.collect());
        let numbered = lost.iter().enumerate();
        begins.extend(numbered.map(|(store, event)| (*event, (number, store))));
    }
    begins.sort_unstable();
    let Some((first, _)) = begins.first().copied() else {
        return Ok(watch.found);
    };
    let mut begins = begins.into_iter().peekable();
    let mut records = trace.records_from(first);
    while let Some(record) = records.next_record()? {
        if begins.peek().is_none() && watch.is_over() {
            break;
        }
        let Some(step) = record.step() else { continue };
        watch.pass(&step);
        while let Some((_, owner)) = begins.next_if(|(event, _)| *event == step.index) {
            watch.begin(&step, owner);
        }
    }
    Ok(watch.found)
}

impl Watch {
    fn is_over(&self) -> bool {
        self.unflushed.is_empty() && self.unfenced.is_empty()
    }

    fn line_of(&self, pool: PoolIndex, offset: u64) -> LineId {
        let line = offset / self.rules.domain.line_bytes() as u64;
        LineId {
            pool,
            line: LineIndex(line),
        }
    }

    fn lines_of(&self, pool: PoolIndex, offset: u64, len_bytes: u64) -> RangeInclusive<LineId> {
        let end = offset.saturating_add(len_bytes.max(1)) - 1;
        self.line_of(pool, offset)..=self.line_of(pool, end)
    }

    /// The event is one of the lost stores.
    fn begin(&mut self, step: &Step<'_>, owner: Owner) {
        let store = &mut self.found[owner.0][owner.1];
        let kind = match step.event {
            Event::Store { kind, .. } => kind,
            _ => StoreKind::Plain,
        };
        if kind == StoreKind::NonTemporal && self.rules.domain != Domain::PageCache {
            store.flushed = Flushed::ByItself;
            self.unfenced.entry(step.thread).or_default().push(owner);
        } else {
            let waiting = self.unflushed.entry(store.line).or_default();
            waiting.push((owner, false));
        }
    }

    fn pass(&mut self, step: &Step<'_>) {
        match step.event {
            Event::Store { kind, at, bytes } => {
                if kind == StoreKind::Locked {
                    self.fence(step);
                }
                let lines = self.lines_of(at.pool, at.offset.0, bytes.len() as u64);
                for line in lines.start().line.0..=lines.end().line.0 {
                    let id = LineId {
                        pool: at.pool,
                        line: LineIndex(line),
                    };
                    for (_, stored_again) in self.unflushed.get_mut(&id).into_iter().flatten() {
                        *stored_again = true;
                    }
                }
            }
            // Elsewhere flushes mean nothing.
            Event::Flush { at, .. } if self.rules.domain == Domain::Adr => {
                self.flush(step, self.line_of(at.pool, at.offset.0));
            }
            Event::Fence(_) => self.fence(step),
            Event::Sync {
                pool,
                offset,
                len_bytes,
            } => {
                let range = self.lines_of(pool, offset.0, len_bytes);
                let lines = self.unflushed.keys().filter(|line| range.contains(line));
                let lines: Vec<LineId> = lines.copied().collect();
                for line in lines {
                    self.flush(step, line);
                }
                self.fence(step);
            }
            Event::Flush { .. } | Event::Resize { .. } => {}
        }
    }

    fn flush(&mut self, step: &Step<'_>, line: LineId) {
        for (owner, stored_again) in self.unflushed.remove(&line).unwrap_or_default() {
            self.found[owner.0][owner.1].flushed = if stored_again {
                Flushed::WithLater(step.index)
            } else {
                Flushed::At(step.index)
            };
            self.unfenced.entry(step.thread).or_default().push(owner);
        }
    }

    fn fence(&mut self, step: &Step<'_>) {
        for (case, number) in self.unfenced.remove(&step.thread).unwrap_or_default() {
            self.found[case][number].fenced = Some(step.index);
        }
    }
}
