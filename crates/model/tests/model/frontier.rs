//! Guarantees of the frontier beyond the sets of states: failure points, big numbers, bounded memory, files that
//! change their length.

use powerfail_model::{
    Atomicity, BigUint, Domain, Event, EventIndex, FailurePoints, FenceKind, FlushKind, Frontier,
    Image, LineId, LineIndex, Place, PoolIndex, PoolOffset, Rules, SparseImage, Step, StoreKind,
    ThreadIndex,
};

const POOL: PoolIndex = PoolIndex(0);

fn place(offset: u64) -> Place {
    Place::new(POOL, PoolOffset(offset))
}

fn line(index: u64) -> LineId {
    LineId {
        pool: POOL,
        line: LineIndex(index),
    }
}

fn store(at: u64, bytes: &[u8]) -> Event<'_> {
    Event::Store {
        kind: StoreKind::Plain,
        at: place(at),
        bytes,
    }
}

fn clwb(at: u64) -> Event<'static> {
    Event::Flush {
        kind: FlushKind::Clwb,
        at: place(at),
    }
}

const SFENCE: Event<'static> = Event::Fence(FenceKind::Sfence);

/// A pass over events of one thread that collects the failure points.
struct Pass {
    frontier: Frontier,
    next: u64,
    covering: Vec<u64>,
    prefix: Vec<u64>,
}

impl Pass {
    fn new(domain: Domain) -> Self {
        let rules = Rules {
            domain,
            atomicity: Atomicity::Store,
        };
        let frontier = Frontier::new(rules, SparseImage::new());
        Self {
            frontier,
            next: 0,
            covering: vec![],
            prefix: vec![],
        }
    }

    fn feed(&mut self, event: Event<'_>) -> &mut Self {
        let step = Step {
            index: EventIndex(self.next),
            thread: ThreadIndex(0),
            event,
        };
        if self
            .frontier
            .is_failure_point(FailurePoints::Covering, &step)
        {
            self.covering.push(self.next);
        }
        if self.frontier.is_failure_point(FailurePoints::Prefix, &step) {
            self.prefix.push(self.next);
        }
        self.frontier.apply(&step);
        self.next += 1;
        self
    }

    fn open(&self) -> Vec<LineId> {
        self.frontier
            .open_lines_sorted()
            .iter()
            .map(|line| line.id())
            .collect()
    }
}

#[test]
fn covering_points_are_before_rises_that_follow_growth() {
    let mut pass = Pass::new(Domain::Adr);
    pass.feed(store(0, &[1]))
        .feed(store(64, &[1]))
        .feed(clwb(0))
        .feed(clwb(64));
    pass.feed(SFENCE); // 4: raises two floors
    pass.feed(SFENCE); // raises nothing
    pass.feed(store(0, &[2]))
        .feed(clwb(0))
        .feed(clwb(0))
        .feed(SFENCE); // 9
    pass.feed(clwb(64)).feed(SFENCE); // nothing to raise
    assert_eq!(pass.covering, [4, 9]);
    assert!(
        !pass
            .frontier
            .is_failure_point_at_end(FailurePoints::Covering)
    );
    pass.feed(store(0, &[3]));
    assert!(
        pass.frontier
            .is_failure_point_at_end(FailurePoints::Covering)
    );
}

#[test]
fn a_rise_without_growth_since_the_last_point_is_covered_by_it() {
    let mut pass = Pass::new(Domain::Adr);
    pass.feed(store(0, &[1])).feed(store(64, &[1]));
    pass.feed(clwb(0)).feed(SFENCE); // 3
    pass.feed(clwb(64)).feed(SFENCE); // fewer states than at 3, none of them new
    assert_eq!(pass.covering, [3]);
}

#[test]
fn prefix_points_are_before_flushes_and_fences_that_follow_a_store() {
    let mut pass = Pass::new(Domain::Adr);
    pass.feed(SFENCE).feed(clwb(0)); // no store yet
    pass.feed(store(0, &[1])).feed(clwb(0)).feed(SFENCE); // 3
    pass.feed(store(0, &[2])).feed(SFENCE); // 6
    pass.feed(store(0, &[3]));
    pass.feed(Event::Store {
        kind: StoreKind::Locked,
        at: place(8),
        bytes: &[1],
    }); // 8
    pass.feed(Event::Sync {
        pool: POOL,
        offset: PoolOffset(0),
        len_bytes: 64,
    }); // 9
    assert_eq!(pass.prefix, [3, 6, 8, 9]);
}

#[test]
fn durable_caches_make_every_store_a_failure_point() {
    let mut pass = Pass::new(Domain::Eadr);
    pass.feed(store(0, &[1]))
        .feed(store(8, &[1]))
        .feed(clwb(0))
        .feed(SFENCE);
    assert_eq!(pass.covering, [0, 1]);
    assert!(pass.open().is_empty());
    pass.feed(Event::Store {
        kind: StoreKind::NonTemporal,
        at: place(64),
        bytes: &[1],
    });
    assert_eq!(pass.open(), [line(1)]);
    pass.feed(SFENCE);
    assert!(pass.open().is_empty());
}

#[test]
fn numbers_of_states_exceed_any_machine_word() {
    let mut pass = Pass::new(Domain::Adr);
    for i in 0..2000 {
        pass.feed(store(64 * i, &[1]));
    }
    assert_eq!(
        pass.frontier.crash_state_count(),
        BigUint::from(2u32).pow(2000)
    );
    assert_eq!(
        pass.frontier.distinct_state_count(),
        BigUint::from(2u32).pow(2000)
    );
    pass.feed(store(0, &[1])); // silent
    let lines = BigUint::from(2u32).pow(1999);
    assert_eq!(pass.frontier.crash_state_count(), &lines * 3u32);
    assert_eq!(pass.frontier.distinct_state_count(), lines * 2u32);
}

#[test]
fn lines_that_are_sure_are_forgotten() {
    let mut pass = Pass::new(Domain::Adr);
    for i in 0..100_000 {
        pass.feed(store(64 * (i % 1000), &i.to_le_bytes()))
            .feed(clwb(64 * (i % 1000)));
        pass.feed(SFENCE);
        assert_eq!(pass.frontier.open_lines().len(), 0);
    }
}

#[test]
fn floors_and_versions_can_be_asked_for() {
    let mut pass = Pass::new(Domain::Adr);
    pass.feed(store(0, &[1]))
        .feed(clwb(0))
        .feed(store(1, &[2]))
        .feed(SFENCE)
        .feed(store(62, &[3; 4]));
    assert_eq!(pass.open(), [line(0), line(1)]);
    let open = pass.frontier.open_line(line(0)).expect("open");
    assert_eq!(open.floor()[..3], [1, 0, 0]);
    assert_eq!(pass.frontier.floor(line(0))[..3], [1, 0, 0]);
    assert_eq!(open.version_count(), 3);
    assert_eq!(open.version(1)[..3], [1, 2, 0]);
    assert_eq!(open.version(2)[62..], [3, 3]);
    let events: Vec<_> = open.stores().map(|store| store.event.0).collect();
    assert_eq!(events, [2, 4]);
    assert_eq!(
        pass.frontier.open_line(line(1)).expect("open").version(1)[..3],
        [3, 3, 0]
    );
    assert_eq!(pass.frontier.floor(line(7)), [0; 64]);
}

#[test]
fn a_partial_rise_keeps_the_promise_of_exactly_the_next_store() {
    let mut frontier = Frontier::new(Rules::default(), SparseImage::new());
    let non_temporal = Event::Store {
        kind: StoreKind::NonTemporal,
        at: place(8),
        bytes: &[2],
    };
    let events = [
        (0, store(0, &[1])),
        (1, clwb(0)),
        (0, non_temporal),
        (1, SFENCE),
    ];
    for (index, (thread, event)) in events.into_iter().enumerate() {
        let thread = ThreadIndex(thread);
        frontier.apply(&Step {
            index: EventIndex(index as u64),
            thread,
            event,
        });
    }
    assert_eq!(
        frontier.open_line(line(0)).expect("open").version_count(),
        2
    );
    let fence = Step {
        index: EventIndex(4),
        thread: ThreadIndex(0),
        event: SFENCE,
    };
    frontier.apply(&fence);
    assert_eq!(frontier.open_lines().len(), 0);
}

#[test]
fn page_cache_knows_only_syncs_and_sectors() {
    let mut pass = Pass::new(Domain::PageCache);
    pass.feed(store(0, &[1]))
        .feed(clwb(0))
        .feed(SFENCE)
        .feed(store(511, &[2; 2]));
    assert_eq!(pass.open(), [line(0), line(1)]);
    assert_eq!(
        pass.frontier
            .open_line(line(0))
            .expect("open")
            .version_count(),
        3
    );
    pass.feed(Event::Sync {
        pool: POOL,
        offset: PoolOffset(0),
        len_bytes: 512,
    });
    assert_eq!(pass.open(), [line(1)]);
    assert_eq!(pass.covering, [4]);
}

#[test]
fn cutting_a_pool_drops_what_lay_beyond_and_is_a_failure_point() {
    let mut pass = Pass::new(Domain::Adr);
    pass.feed(store(0, &[1; 16])).feed(store(64, &[1]));
    pass.feed(Event::Resize {
        pool: POOL,
        len_bytes: 8,
    });
    assert_eq!(pass.covering, [2]);
    assert_eq!(pass.open(), [line(0)]);
    let open = pass.frontier.open_line(line(0)).expect("open");
    assert_eq!(
        open.version(1)[..17],
        [1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    );
    let mut newest = [9; 4];
    pass.frontier.newest().read(place(64), &mut newest);
    assert_eq!(newest, [0; 4]);
}
