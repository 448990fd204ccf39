//! On random small traces the incremental model gives the same sets as the naive one at every position, and the
//! failure points cover them.

use std::collections::BTreeSet;

use powerfail_model::{
    Atomicity, BigUint, Domain, Event, EventIndex, FailurePoints, FenceKind, FlushKind, Frontier,
    Image, Place, PoolIndex, PoolOffset, Rules, SparseImage, Step, StoreKind, ThreadIndex,
};
use proptest::prelude::*;

use crate::naive_trace;

const POOL: PoolIndex = PoolIndex(0);
/// Large enough for two sectors, so that stores can cross their boundary.
const MEMORY_BYTES: usize = 1024;
/// Around this offset lines, words and sectors meet.
const CENTRE: u64 = 512;

fn place(offset: u64) -> Place {
    Place::new(POOL, PoolOffset(offset))
}

fn any_offset() -> impl Strategy<Value = u64> {
    CENTRE - 72..CENTRE + 72
}

#[derive(Clone, Debug)]
enum Action {
    Store(StoreKind, u64, Vec<u8>),
    Flush(FlushKind, u64),
    Fence(FenceKind),
    Sync(u64, u64),
    Resize(u64),
}

impl Action {
    fn event(&self) -> Event<'_> {
        match self {
            Self::Store(kind, at, bytes) => Event::Store {
                kind: *kind,
                at: place(*at),
                bytes,
            },
            Self::Flush(kind, at) => Event::Flush {
                kind: *kind,
                at: place(*at),
            },
            Self::Fence(kind) => Event::Fence(*kind),
            Self::Sync(offset, len_bytes) => Event::Sync {
                pool: POOL,
                offset: PoolOffset(*offset),
                len_bytes: *len_bytes,
            },
            Self::Resize(len_bytes) => Event::Resize {
                pool: POOL,
                len_bytes: *len_bytes,
            },
        }
    }
}

fn any_action() -> impl Strategy<Value = Action> {
    use proptest::sample::select;
    // Values from a small set, so that silent stores happen.
    let bytes = prop_oneof![
        4 => (1..4u8).prop_map(|value| vec![value; 8]),
        2 => proptest::collection::vec(0..4u8, 1..40),
        1 => proptest::collection::vec(1..4u8, 60..130),
    ];
    let store_kind = select(vec![
        StoreKind::Plain,
        StoreKind::Plain,
        StoreKind::System,
        StoreKind::NonTemporal,
        StoreKind::Locked,
    ]);
    let flush_kind = select(vec![
        FlushKind::Clflush,
        FlushKind::Clflushopt,
        FlushKind::Clwb,
    ]);
    let fence_kind = select(vec![
        FenceKind::Sfence,
        FenceKind::Mfence,
        FenceKind::Locked,
    ]);
    prop_oneof![
        6 => (store_kind, any_offset(), bytes).prop_map(|(k, at, b)| Action::Store(k, at, b)),
        4 => (flush_kind, any_offset()).prop_map(|(kind, at)| Action::Flush(kind, at)),
        3 => fence_kind.prop_map(Action::Fence),
        1 => (any_offset(), 0..200u64).prop_map(|(offset, len)| Action::Sync(offset, len)),
        1 => any_offset().prop_map(Action::Resize),
    ]
}

fn any_rules() -> impl Strategy<Value = Rules> {
    use proptest::sample::select;
    let domain = select(vec![
        Domain::Adr,
        Domain::Adr,
        Domain::Eadr,
        Domain::PageCache,
    ]);
    let atomicity = select(vec![Atomicity::Store, Atomicity::Store, Atomicity::Word]);
    (domain, atomicity).prop_map(|(domain, atomicity)| Rules { domain, atomicity })
}

/// The whole memory in every crash state of the frontier.
fn memories(frontier: &Frontier) -> BTreeSet<Vec<u8>> {
    frontier
        .crash_states()
        .map(|state| memory(frontier, &state))
        .collect()
}

fn memory(frontier: &Frontier, state: &powerfail_model::CrashState) -> Vec<u8> {
    let mut memory = vec![0; MEMORY_BYTES];
    frontier.newest().read(place(0), &mut memory);
    for &(id, version) in &state.versions {
        let line = frontier
            .open_line(id)
            .expect("states choose among open lines");
        let content = line.version(version);
        let start = usize::try_from(line.offset().0).expect("small");
        memory[start..start + content.len()].copy_from_slice(&content);
    }
    memory
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn frontier_equals_brute_force(
        rules in any_rules(),
        actions in proptest::collection::vec((0..3u32, any_action()), 0..12),
        initial in proptest::collection::vec(0..3u8, MEMORY_BYTES),
    ) {
        let steps: Vec<Step<'_>> = actions
            .iter()
            .enumerate()
            .map(|(index, (thread, action))| Step {
                // Indexes need not be dense.
                index: EventIndex(3 * index as u64 + 1),
                thread: ThreadIndex(*thread),
                event: action.event(),
            })
            .collect();
        let mut image = SparseImage::new();
        image.write(place(0), &initial);
        let mut frontier = Frontier::new(rules, image);
        let mut everywhere = BTreeSet::new();
        let mut at_failure_points = BTreeSet::new();
        for position in 0..=steps.len() {
            let expected = naive_trace::states(rules, MEMORY_BYTES, &initial, &steps[..position]);
            // The order of states in large products is tested in states.rs; only the sets matter here.
            prop_assume!(frontier.crash_state_count() <= BigUint::from(20_000u32));
            let found = memories(&frontier);
            prop_assert_eq!(&found, &expected, "position {}", position);
            prop_assert_eq!(frontier.distinct_state_count(), BigUint::from(expected.len()));
            prop_assert_eq!(
                frontier.crash_state_count(),
                BigUint::from(frontier.crash_states().count())
            );
            prop_assert_eq!(frontier.distinct_crash_states().count(), expected.len());
            let is_failure_point = match steps.get(position) {
                Some(step) => frontier.is_failure_point(FailurePoints::Covering, step),
                None => frontier.is_failure_point_at_end(FailurePoints::Covering),
            };
            if is_failure_point {
                at_failure_points.extend(found.iter().cloned());
            }
            everywhere.extend(found);
            if let Some(step) = steps.get(position) {
                frontier.apply(step);
            }
        }
        prop_assert_eq!(at_failure_points, everywhere);
    }
}
