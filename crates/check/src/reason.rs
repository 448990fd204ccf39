//! The stores that explain a failure: between a bad state and the nearest good ones.
//!
//! Where recovery fails at a failure point, it succeeds at some moment before and at some moment
//! after it. The search looks for the nearest ones, store by store: first at distances that double,
//! then between the last bad and the first good one. The last store before which it succeeds is the
//! *survivor*, which should not have survived alone; the first store with which it succeeds again is
//! the one that is *lost*.
//!
//! All searches go on together, so that one pass over the trace serves a whole round. They stay in the window of the
//! failure ([`crate::window`]).

use powerfail_model::{Event, EventIndex};
use powerfail_trace::{Body, Trace};

use crate::error::CheckError;
use crate::window;

/// How many stores a search looks at, in each direction.
const STORES_MAX: usize = 1 << 14;
/// How many events it looks through for them.
const EVENTS_MAX: u64 = 1 << 18;
/// How many moments a round tries between two known ones, if recoveries are cheap: a round is a pass over the trace.
pub(crate) const SPLITS: usize = 7;

/// A direction in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Before,
    After,
}

/// A search in one direction from a failure point.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    direction: Direction,
    from: EventIndex,
    /// Stores by their distance.
    stores: Vec<EventIndex>,
    /// How many stores away a state is known to be bad, and how many away one is good.
    bad: usize,
    good: Option<usize>,
    /// How many stores away another search has found the border between bad and good states.
    suggested: Option<usize>,
    is_over: bool,
}

impl Search {
    pub(crate) fn new(
        trace: &Trace,
        direction: Direction,
        from: EventIndex,
    ) -> Result<Self, CheckError> {
        let mut stores = stores_near(trace, direction, from)?;
        if direction == Direction::Before {
            stores.reverse();
        }
        stores.truncate(STORES_MAX);
        Ok(Self {
            direction,
            from,
            is_over: stores.is_empty(),
            stores,
            bad: 0,
            good: None,
            suggested: None,
        })
    }

    /// Another search in the same direction has found a border. If nothing nearer is good, it is the one of this search,
    /// too. Before the first probes.
    pub(crate) fn suggest(&mut self, other: &Self) {
        let Some(border) = other.store() else {
            return;
        };
        let place = self.stores.iter().position(|store| *store == border);
        self.suggested = place.map(|place| place + 1);
        if self.suggested == Some(1) {
            self.good = self.suggested;
            self.is_over = true;
        }
    }

    /// The moment this many stores away.
    fn moment(&self, distance: usize) -> EventIndex {
        match (distance.checked_sub(1), self.direction) {
            (None, _) => self.from,
            (Some(last), Direction::Before) => self.stores[last],
            (Some(last), Direction::After) => EventIndex(self.stores[last].0 + 1),
        }
    }

    /// The distances to try next, with their moments, between two known ones at most `splits`; none when it is over.
    pub(crate) fn probes(&self, splits: usize) -> Vec<(usize, EventIndex)> {
        if self.is_over {
            return Vec::new();
        }
        let distances: Vec<usize> = match self.good {
            None => {
                let doubling = std::iter::successors(Some(1_usize), |distance| Some(2 * distance));
                let end = self.suggested.unwrap_or(self.stores.len());
                let mut distances: Vec<usize> =
                    doubling.take_while(|distance| *distance < end).collect();
                if self.suggested.is_none() {
                    distances.push(end);
                }
                distances
            }
            Some(good) => {
                let between = good - self.bad;
                let count = splits.clamp(1, SPLITS).min(between - 1);
                (1..=count)
                    .map(|part| self.bad + part * between / (count + 1))
                    .collect()
            }
        };
        let probe = |distance| (distance, self.moment(distance));
        distances.into_iter().map(probe).collect()
    }

    /// Takes the answers to the probes: distance, and whether recovery succeeds there.
    pub(crate) fn answer(&mut self, answers: &[(usize, bool)]) {
        let nearest = answers.iter().filter(|(_, good)| *good).map(|(at, _)| *at);
        let good = nearest.chain(self.good).min();
        let bad = answers
            .iter()
            .filter(|(at, is_good)| !is_good && good.is_none_or(|good| *at < good))
            .map(|(at, _)| *at);
        self.bad = bad.chain([self.bad]).max().unwrap_or(self.bad);
        self.good = good;
        if good.is_none()
            && let Some(suggested) = self.suggested
        {
            self.good = self.suggested;
            self.bad = suggested - 1;
        }
        self.is_over = match self.good {
            None => true,
            Some(good) => good <= self.bad + 1,
        };
    }

    /// The store that makes the difference, if it was found.
    pub(crate) fn store(&self) -> Option<EventIndex> {
        self.stores.get(self.good? - 1).copied()
    }

    /// The nearest good moment.
    pub(crate) fn good_moment(&self) -> Option<EventIndex> {
        Some(self.moment(self.good?))
    }

    /// The first store in this direction.
    pub(crate) fn nearest_store(&self) -> Option<EventIndex> {
        self.stores.first().copied()
    }
}

/// Events before or from `from` on that change a pool, in their order.
fn stores_near(
    trace: &Trace,
    direction: Direction,
    from: EventIndex,
) -> Result<Vec<EventIndex>, CheckError> {
    let (start, end) = match direction {
        Direction::Before => (from.0.saturating_sub(EVENTS_MAX), from.0),
        Direction::After => (from.0, from.0.saturating_add(EVENTS_MAX)),
    };
    let mut stores = Vec::new();
    let mut records = trace.records_from(EventIndex(start));
    while let Some(record) = records.next_record()? {
        let is_over = direction == Direction::After && window::ends(&record.body);
        if record.index.0 >= end || is_over {
            break;
        }
        if direction == Direction::Before && window::begins(&record.body) {
            stores.clear();
        }
        if matches!(
            record.body,
            Body::Pm(Event::Store { .. } | Event::Resize { .. })
        ) {
            stores.push(record.index);
        }
    }
    Ok(stores)
}

#[cfg(test)]
mod tests {
    use powerfail_model::{Event, EventIndex, Place, StoreKind};
    use powerfail_trace::{
        Annotation, Body, Mark, MarkKind, Meta, Pool, PoolKind, StackId, Thread, Trace,
        TraceWriter, WriterOptions,
    };

    use super::{Direction, SPLITS, Search, stores_near};

    /// A store at each `None`, and annotations between them.
    fn trace_of(annotations: &[Option<Annotation>]) -> Trace {
        let mut bytes = Vec::new();
        let mut writer =
            TraceWriter::new(&mut bytes, &Meta::default(), WriterOptions::default()).unwrap();
        let pool = Pool {
            path: "/nowhere/pool".into(),
            kind: PoolKind::File,
            len_bytes: 4096,
            address: 0,
        };
        writer.define_pool(&pool).unwrap();
        let (os_id, name) = (1, None);
        let thread = writer.define_thread(&Thread { os_id, name }).unwrap();
        for annotation in annotations {
            let body = match annotation {
                None => Body::Pm(Event::Store {
                    kind: StoreKind::Plain,
                    at: Place::default(),
                    bytes: &[1],
                }),
                Some(annotation) => Body::Mark(Mark {
                    kind: MarkKind::Annotation(*annotation),
                    value: 0,
                    payload: &[],
                }),
            };
            writer.append(thread, StackId::NONE, body).unwrap();
        }
        writer.finish(&[]).unwrap();
        Trace::from_bytes(bytes).unwrap()
    }

    #[test]
    fn the_search_stays_in_the_window_of_the_failure() {
        let trace = trace_of(&[
            Some(Annotation::CreationBegin),
            None,
            Some(Annotation::CreationEnd),
            None,
            None,
            None,
            Some(Annotation::InterestEnd),
            None,
        ]);
        let near = |direction| stores_near(&trace, direction, EventIndex(4)).unwrap();
        assert_eq!(near(Direction::Before), [EventIndex(3)]);
        assert_eq!(near(Direction::After), [EventIndex(4), EventIndex(5)]);
    }

    fn search(direction: Direction, stores: usize) -> Search {
        Search {
            direction,
            from: EventIndex(1000),
            stores: (0..stores as u64)
                .map(|at| EventIndex(1000 + 10 * at))
                .collect(),
            bad: 0,
            good: None,
            suggested: None,
            is_over: stores == 0,
        }
    }

    /// Whatever the border is, it is found, in few rounds.
    #[test]
    fn the_border_is_found() {
        for stores in [1, 2, 3, 50, 1000] {
            for border in 1..=stores {
                let mut search = search(Direction::After, stores);
                let mut rounds = 0;
                loop {
                    let probes = search.probes(SPLITS);
                    if probes.is_empty() {
                        break;
                    }
                    rounds += 1;
                    let answers: Vec<_> = probes
                        .iter()
                        .map(|(distance, _)| (*distance, *distance >= border))
                        .collect();
                    search.answer(&answers);
                }
                assert_eq!(search.good, Some(border));
                assert_eq!(
                    search.store(),
                    Some(EventIndex(1000 + 10 * (border as u64 - 1)))
                );
                assert!(rounds <= 6, "{rounds} rounds");
            }
        }
    }

    /// A search whose border another one has found needs fewer probes, and finds what is nearer.
    #[test]
    fn a_border_that_is_known_is_found_with_few_probes() {
        for (nearer, expected) in [(None, 40), (Some(8), 8)] {
            let mut known = search(Direction::After, 100);
            known.good = Some(40);
            known.bad = 39;
            let mut search = search(Direction::After, 100);
            search.suggest(&known);
            let mut count = 0;
            loop {
                let probes = search.probes(SPLITS);
                if probes.is_empty() {
                    break;
                }
                count += probes.len();
                let is_good = |at: usize| at >= 40 || Some(at) == nearer;
                let answers: Vec<_> = probes.iter().map(|(at, _)| (*at, is_good(*at))).collect();
                search.answer(&answers);
            }
            assert_eq!(search.good, Some(expected));
            assert!(count <= 9, "{count}");
        }
    }

    #[test]
    fn without_a_good_state_there_is_no_reason() {
        let mut search = search(Direction::After, 20);
        let answers: Vec<_> = search
            .probes(SPLITS)
            .iter()
            .map(|(at, _)| (*at, false))
            .collect();
        search.answer(&answers);
        assert!(search.probes(SPLITS).is_empty());
        assert_eq!(search.store(), None);
    }
}
