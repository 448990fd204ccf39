//! Crash states in which chosen lines hold an older version and all others hold their newest content.

use std::collections::BTreeMap;

use powerfail_model::{CrashState, EventIndex, Frontier, Image, LineId, OpenLine};

/// Which version a lost line holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OlderVersion {
    /// The durable floor: everything that may be lost is lost.
    Floor,
    /// A version, counted from the durable floor at the failure point.
    Version(usize),
    /// What it held before an event stored to it: that store and all later ones are lost.
    Before(EventIndex),
}

/// The lines that lose stores in a crash state; all other lines are newest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostLines {
    lines: BTreeMap<LineId, OlderVersion>,
}

impl LostLines {
    /// Nothing is lost yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a line.
    #[must_use]
    pub fn with(mut self, line: LineId, lost: OlderVersion) -> Self {
        self.lines.insert(line, lost);
        self
    }

    /// The crash state at the present position of a frontier. `None` if it is not possible there: a line is not open,
    /// has no such version, or no longer holds anything of the store that could be lost.
    pub fn crash_state<I: Image>(&self, frontier: &Frontier<I>) -> Option<CrashState> {
        let versions = self
            .lines
            .iter()
            .map(|(&id, &lost)| Some((id, version_of(frontier.open_line(id)?, lost)?)));
        Some(CrashState {
            versions: versions.collect::<Option<_>>()?,
        })
    }
}

impl FromIterator<(LineId, OlderVersion)> for LostLines {
    fn from_iter<T: IntoIterator<Item = (LineId, OlderVersion)>>(lines: T) -> Self {
        Self {
            lines: lines.into_iter().collect(),
        }
    }
}

fn version_of(line: &OpenLine, lost: OlderVersion) -> Option<usize> {
    match lost {
        OlderVersion::Floor => Some(0),
        OlderVersion::Version(version) => (version < line.version_count()).then_some(version),
        // A store that crosses lines, or is split into words, has several entries under one event.
        OlderVersion::Before(event) => line.stores().position(|store| store.event == event),
    }
}

#[cfg(test)]
mod tests {
    use powerfail_model::{
        Event, LineIndex, Place, PoolIndex, PoolOffset, Rules, SparseImage, Step, StoreKind,
        ThreadIndex,
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

    fn versions(lost: &LostLines, frontier: &Frontier) -> Option<Vec<(LineId, usize)>> {
        Some(lost.crash_state(frontier)?.versions)
    }

    #[test]
    fn a_line_is_lost_from_a_store_on() {
        let frontier = frontier(&[(3, 0), (5, 8), (6, 64), (9, 16)]);
        let lost = |lost| versions(&LostLines::new().with(line(0), lost), &frontier);
        assert_eq!(
            lost(OlderVersion::Before(EventIndex(5))),
            Some(vec![(line(0), 1)])
        );
        assert_eq!(
            lost(OlderVersion::Before(EventIndex(9))),
            Some(vec![(line(0), 2)])
        );
        assert_eq!(lost(OlderVersion::Floor), Some(vec![(line(0), 0)]));
        assert_eq!(lost(OlderVersion::Version(3)), Some(vec![(line(0), 3)]));
    }

    #[test]
    fn what_is_not_possible_is_not_tried() {
        let frontier = frontier(&[(3, 0)]);
        let lost = |id, lost| versions(&LostLines::new().with(id, lost), &frontier);
        assert!(lost(line(0), OlderVersion::Version(2)).is_none());
        assert!(lost(line(0), OlderVersion::Before(EventIndex(2))).is_none());
        assert!(lost(line(1), OlderVersion::Floor).is_none());
    }
}
