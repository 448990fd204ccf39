//! The strategy `lost-lines`: chosen lines hold an older version, everything else is newest.

use std::collections::BTreeMap;

use powerfail_model::{CrashState, EventIndex, LineId, OpenLine};

use crate::strategy::{FrontierView, Strategy};

/// Which version a line is to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LostLine {
    /// The durable floor: all that may be lost is lost.
    Floor,
    /// A version, counted from the durable floor at the failure point.
    Version(usize),
    /// What it held before an event stored to it: that store and all later ones are lost.
    Before(EventIndex),
}

/// One state: the given lines as chosen, all others newest. Shows whether a store that the lint calls
/// not durable is missed by recovery.
///
/// Gives no state where it is not possible: when a line is not open, has no such version, or holds
/// nothing of the store any more that could be lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostLines {
    lines: BTreeMap<LineId, LostLine>,
}

impl LostLines {
    /// Nothing is lost yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Loses a line too.
    #[must_use]
    pub fn with(mut self, line: LineId, lost: LostLine) -> Self {
        self.lines.insert(line, lost);
        self
    }

    fn state(&self, frontier: &dyn FrontierView) -> Option<CrashState> {
        let versions = self
            .lines
            .iter()
            .map(|(&id, &lost)| Some((id, version_of(frontier.open_line(id)?, lost)?)));
        Some(CrashState {
            versions: versions.collect::<Option<_>>()?,
        })
    }
}

impl FromIterator<(LineId, LostLine)> for LostLines {
    fn from_iter<T: IntoIterator<Item = (LineId, LostLine)>>(lines: T) -> Self {
        Self {
            lines: lines.into_iter().collect(),
        }
    }
}

fn version_of(line: &OpenLine, lost: LostLine) -> Option<usize> {
    match lost {
        LostLine::Floor => Some(0),
        LostLine::Version(version) => (version < line.version_count()).then_some(version),
        // A store that crosses lines, or is split into words, has several entries under one event.
        LostLine::Before(event) => line.stores().position(|store| store.event == event),
    }
}

impl Strategy for LostLines {
    fn name(&self) -> &'static str {
        "lost-lines"
    }

    fn needs_frontier(&self) -> bool {
        !self.lines.is_empty()
    }

    fn crash_states<'f>(
        &'f self,
        frontier: Option<&'f dyn FrontierView>,
    ) -> Box<dyn Iterator<Item = CrashState> + 'f> {
        if self.lines.is_empty() {
            return Box::new(std::iter::once(CrashState {
                versions: Vec::new(),
            }));
        }
        Box::new(
            frontier
                .and_then(|frontier| self.state(frontier))
                .into_iter(),
        )
    }
}

#[cfg(test)]
mod tests {
    use powerfail_model::{
        Event, Frontier, LineIndex, Place, PoolIndex, PoolOffset, Rules, SparseImage, Step,
        StoreKind, ThreadIndex,
    };

    use super::*;

    fn frontier(stores: &[(u64, u64)]) -> Frontier {
        let mut frontier = Frontier::new(Rules::default(), SparseImage::new());
        for &(index, offset) in stores {
            frontier.apply(&Step {
                index: EventIndex(index),
                thread: ThreadIndex(0),
                event: Event::Store {
                    kind: StoreKind::Plain,
                    at: Place::new(PoolIndex(0), PoolOffset(offset)),
                    bytes: &[1; 8],
                },
            });
        }
        frontier
    }

    fn line(line: u64) -> LineId {
        LineId {
            pool: PoolIndex(0),
            line: LineIndex(line),
        }
    }

    fn states(strategy: &LostLines, frontier: &Frontier) -> Vec<Vec<(LineId, usize)>> {
        strategy
            .crash_states(Some(frontier))
            .map(|state| state.versions)
            .collect()
    }

    #[test]
    fn a_line_is_lost_from_a_store_on() {
        let frontier = frontier(&[(3, 0), (5, 8), (6, 64), (9, 16)]);
        let lost = |lost| states(&LostLines::new().with(line(0), lost), &frontier);
        assert_eq!(lost(LostLine::Before(EventIndex(5))), [[(line(0), 1)]]);
        assert_eq!(lost(LostLine::Before(EventIndex(9))), [[(line(0), 2)]]);
        assert_eq!(lost(LostLine::Floor), [[(line(0), 0)]]);
        assert_eq!(lost(LostLine::Version(3)), [[(line(0), 3)]]);
    }

    #[test]
    fn what_is_not_possible_is_not_tried() {
        let frontier = frontier(&[(3, 0)]);
        let lost = |id, lost| states(&LostLines::new().with(id, lost), &frontier);
        assert!(lost(line(0), LostLine::Version(2)).is_empty());
        assert!(lost(line(0), LostLine::Before(EventIndex(2))).is_empty());
        assert!(lost(line(1), LostLine::Floor).is_empty());
    }
}
