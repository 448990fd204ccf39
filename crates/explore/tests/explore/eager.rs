//! Eager exploration against brute force: all states of all covering failure points of the model.

use std::collections::BTreeSet;
use std::sync::Arc;

use powerfail_explore::{
    EagerOptions, EagerState, EagerStates, PassOptions, Representatives, Survey, VariedLines,
};
use powerfail_model::{
    Atomicity, BigUint, CrashState, Domain, Event, EventIndex, FailurePoints, FlushKind, Frontier,
    Image, LineId, LineIndex, Place, PoolIndex, PoolOffset, Rules, SparseImage, Step, StoreKind,
};
use powerfail_trace::{Annotation, Trace};
use proptest::prelude::*;

use crate::common::{Line, Op, POOL_BYTES, store, trace_of, trace_with_pool};

fn line() -> impl Strategy<Value = Line> {
    let kind = prop_oneof![
        4 => Just(StoreKind::Plain),
        1 => Just(StoreKind::Locked),
        1 => Just(StoreKind::NonTemporal),
    ];
    let flush = prop_oneof![Just(FlushKind::Clwb), Just(FlushKind::Clflush)];
    let bytes = prop::collection::vec(0_u8..3, 1..20);
    let op = prop_oneof![
        8 => (kind, 0_u64..150, bytes).prop_map(|(k, o, b)| Op::Store(k, o, b)),
        1 => (5000_u64..5200, prop::collection::vec(0_u8..3, 1..60))
            .prop_map(|(o, b)| Op::Store(StoreKind::Plain, o, b)),
        4 => (flush, 0_u64..150).prop_map(|(k, o)| Op::Flush(k, o)),
        3 => Just(Op::Fence),
        1 => Just(Op::Sync),
    ];
    (0_u32..2, 0_u32..4, op)
}

fn rules() -> impl Strategy<Value = Rules> {
    let domain = prop_oneof![
        Just(Domain::Adr),
        Just(Domain::Eadr),
        Just(Domain::PageCache)
    ];
    let atomicity = prop_oneof![Just(Atomicity::Store), Just(Atomicity::Word)];
    (domain, atomicity).prop_map(|(domain, atomicity)| Rules { domain, atomicity })
}

fn options(rules: Rules) -> EagerOptions {
    EagerOptions {
        pass: PassOptions {
            rules,
            ..PassOptions::default()
        },
        ..EagerOptions::default()
    }
}

fn states(trace: &Trace, options: &EagerOptions) -> (Survey, Vec<EagerState>, u64) {
    let survey = Survey::of(trace, SparseImage::new(), options).unwrap();
    let mut found = Vec::new();
    let mut states = EagerStates::new(trace, SparseImage::new(), options.clone(), &survey);
    while let Some(state) = states.next_state().unwrap() {
        found.push(state);
    }
    let equal = states.equal_images();
    (survey, found, equal)
}

/// A pass that only runs the model.
struct Naive<'t> {
    frontier: Frontier,
    len_bytes: u64,
    trace: &'t Trace,
}

impl<'t> Naive<'t> {
    /// Shows the frontier at each covering failure point.
    fn visit(trace: &'t Trace, rules: Rules, mut show: impl FnMut(u64, &Self)) {
        let mut naive = Self {
            frontier: Frontier::new(rules, SparseImage::new()),
            len_bytes: trace.pools()[0].len_bytes,
            trace,
        };
        let mut records = trace.records_from(EventIndex(0));
        while let Some(record) = records.next_record().unwrap() {
            let Some(step) = record.step() else { continue };
            let step = naive.cut(&step);
            let points = FailurePoints::Covering;
            if naive.frontier.is_failure_point(points, &step) {
                show(step.index.0, &naive);
            }
            naive.frontier.apply(&step);
            if let Event::Resize { len_bytes, .. } = step.event {
                naive.len_bytes = len_bytes;
            }
        }
        let points = FailurePoints::Covering;
        if naive.frontier.is_failure_point_at_end(points) {
            show(naive.trace.event_count(), &naive);
        }
    }

    fn cut<'a>(&self, step: &Step<'a>) -> Step<'a> {
        let mut step = *step;
        if let Event::Store { at, bytes, .. } = &mut step.event {
            let room = self.len_bytes.saturating_sub(at.offset.0) as usize;
            *bytes = &bytes[..bytes.len().min(room)];
        }
        step
    }

    fn image(&self, state: &CrashState) -> Vec<u8> {
        let start = Place::new(PoolIndex(0), PoolOffset(0));
        let mut image = vec![0; self.len_bytes as usize];
        self.frontier.newest().read(start, &mut image);
        for (id, version) in &state.versions {
            let line = self.frontier.open_line(*id).unwrap();
            let content = line.version(*version);
            for (at, byte) in (line.offset().0 as usize..).zip(content) {
                if let Some(place) = image.get_mut(at) {
                    *place = byte;
                }
            }
        }
        image
    }
}

/// The images of all states at all covering failure points, if there are not too many.
fn brute_force(trace: &Trace, rules: Rules) -> Option<BTreeSet<Vec<u8>>> {
    let mut images = BTreeSet::new();
    let mut too_many = false;
    Naive::visit(trace, rules, |_, naive| {
        if naive.frontier.crash_state_count() > BigUint::from(3000_u32) {
            too_many = true;
            return;
        }
        for state in naive.frontier.crash_states() {
            images.insert(naive.image(&state));
        }
    });
    (!too_many).then_some(images)
}

fn images_of(trace: &Trace, rules: Rules, states: &[EagerState]) -> Vec<Vec<u8>> {
    let mut images = Vec::new();
    Naive::visit(trace, rules, |at, naive| {
        let here = states.iter().filter(|state| state.at.0 == at);
        images.extend(here.map(|state| naive.image(&state.state)));
    });
    images
}

proptest! {
    #[test]
    fn below_the_threshold_it_is_brute_force_and_nothing_runs_twice(
        lines in prop::collection::vec(line(), 0..40),
        rules in rules(),
    ) {
        let trace = trace_of(&lines);
        let expected = brute_force(&trace, rules);
        prop_assume!(expected.is_some());
        let options = EagerOptions { threshold: u64::MAX, ..options(rules) };
        let (survey, states, equal) = states(&trace, &options);
        let images = images_of(&trace, rules, &states);
        prop_assert_eq!(images.len(), states.len(), "each state is possible where it is");
        let distinct: BTreeSet<Vec<u8>> = images.into_iter().collect();
        prop_assert_eq!(distinct.len(), states.len(), "equal images run once");
        prop_assert_eq!(Some(distinct), expected);
        prop_assert_eq!(survey.states, states.len() as u64 + equal);
        let newest = states.iter().any(|state| state.state.versions.is_empty());
        prop_assert!(newest || states.is_empty());
    }

    #[test]
    fn a_change_of_length_loses_no_state(
        mut lines in prop::collection::vec(line(), 0..25),
        resizes in prop::collection::vec((any::<prop::sample::Index>(), 60_u64..5200), 1..3),
    ) {
        for (place, len_bytes) in resizes {
            let place = place.index(lines.len() + 1);
            lines.insert(place, (0, 1, Op::Resize(len_bytes)));
        }
        let trace = trace_of(&lines);
        let rules = Rules::default();
        let expected = brute_force(&trace, rules);
        prop_assume!(expected.is_some());
        let options = EagerOptions { threshold: u64::MAX, ..options(rules) };
        let (_, states, _) = states(&trace, &options);
        let distinct: BTreeSet<_> = images_of(&trace, rules, &states).into_iter().collect();
        prop_assert_eq!(Some(distinct), expected);
    }

    #[test]
    fn the_survey_counts_what_the_model_counts(
        lines in prop::collection::vec(line(), 0..60),
        rules in rules(),
    ) {
        let trace = trace_of(&lines);
        let (survey, _, _) = states(&trace, &options(rules));
        let mut expected = Vec::new();
        let (mut all, mut raw) = (BigUint::ZERO, BigUint::ZERO);
        Naive::visit(&trace, rules, |at, naive| {
            let distinct = naive.frontier.distinct_state_count();
            expected.push((at, u64::try_from(&distinct).unwrap_or(u64::MAX)));
            all += distinct;
            raw += naive.frontier.crash_state_count();
        });
        let found: Vec<(u64, u64)> = survey
            .segments
            .iter()
            .map(|segment| (segment.at.0, segment.combinations))
            .collect();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(survey.combinations.exact(), Some(&all));
        prop_assert_eq!(survey.raw_combinations.exact(), Some(&raw));
        let stores = lines.iter().filter(|(_, _, op)| matches!(op, Op::Store(..))).count();
        prop_assert_eq!(survey.writes, stores as u64);
    }

    #[test]
    fn a_sample_is_possible_has_no_image_twice_and_depends_on_the_seed_alone(
        lines in prop::collection::vec(line(), 0..80),
        rules in rules(),
        threshold in 1_u64..20,
        sample in 1_usize..40,
        seed in any::<u64>(),
        coalesce in any::<bool>(),
    ) {
        let trace = trace_of(&lines);
        let mut options = options(rules);
        options.pass.coalesce = coalesce;
        let options = EagerOptions { threshold, sample, seed, ..options };
        let (survey, first, equal) = states(&trace, &options);
        prop_assert_eq!(&first, &states(&trace, &options).1);
        let images = images_of(&trace, rules, &first);
        let distinct: BTreeSet<_> = images.iter().collect();
        prop_assert_eq!(distinct.len(), first.len());
        prop_assert!(first.len() as u64 + equal <= survey.states);
        for (number, segment) in survey.segments.iter().enumerate() {
            let of_segment = first.iter().filter(|state| state.segment == number).count() as u64;
            prop_assert!(of_segment <= segment.combinations.min(threshold.max(sample as u64)));
        }
    }
}

fn plain(offset: u64, len: usize, byte: u8) -> Op {
    Op::Store(StoreKind::Plain, offset, vec![byte; len])
}

/// Figure 3 of the paper. Its third write is printed as 201184 but counted as 401184.
fn yat() -> Trace {
    let ops = [
        plain(0x40_1182, 6, 1),
        plain(0x40_11c0, 12, 2),
        plain(0x40_1184, 20, 3),
        plain(0x40_11a0, 16, 4),
        plain(0x40_11cc, 12, 5),
        plain(0x00_1080, 12, 6),
        plain(0x00_108f, 49, 7),
        plain(0x00_108e, 1, 8),
        plain(0x00_108c, 2, 9),
        Op::Flush(FlushKind::Clflush, 0x00_1080),
        Op::Fence,
        plain(0x00_10c0, 12, 10),
        plain(0x00_10ce, 1, 11),
        plain(0x00_10cc, 2, 12),
        Op::Flush(FlushKind::Clflush, 0x00_10c0),
        Op::Fence,
    ];
    let lines: Vec<Line> = ops.into_iter().map(|op| (0, 1, op)).collect();
    trace_with_pool(&lines, 8 << 20)
}

#[test]
fn figure_3_of_yat_has_59_and_47_combinations_and_the_empty_one() {
    let trace = yat();
    let (survey, states, equal) = states(&trace, &EagerOptions::default());
    let counts: Vec<(u64, u64)> = survey
        .segments
        .iter()
        .map(|segment| (segment.at.0, segment.combinations))
        .collect();
    assert_eq!(counts, [(9, 59 + 1), (14, 47 + 1)]);
    assert_eq!((survey.writes, survey.flushes, survey.fences), (12, 2, 2));
    assert_eq!(survey.exhaustive_segments, 2);
    // Without the line at 10c0, the second segment equals the first one with all of the line at 1080: 4 times 3 images
    // that run once.
    assert_eq!(equal, 12);
    assert_eq!(states.len(), 60 + 48 - 12);
}

#[test]
fn only_lines_that_recovery_reads_vary() {
    let trace = yat();
    let line = |offset: u64| LineId {
        pool: PoolIndex(0),
        line: LineIndex(offset / 64),
    };
    let read = BTreeSet::from([line(0x40_1180), line(0x77_0000)]);
    let options = EagerOptions {
        varied: Some(Arc::new(VariedLines::from([(0, read)]))),
        ..EagerOptions::default()
    };
    let (all, _, _) = states(&trace, &EagerOptions::default());
    let (survey, varied, _) = states(&trace, &options);
    // The first segment keeps two of its three lines; in the second nothing is known.
    let counts: Vec<(u64, u64)> = survey
        .segments
        .iter()
        .map(|segment| (segment.combinations, segment.lines))
        .collect();
    assert_eq!(counts, [(4, 1), (48, 3)]);
    assert_eq!(all.segments[0].lines, 3);
    let in_first = varied.iter().filter(|state| state.segment == 0);
    let lost: BTreeSet<LineId> = in_first
        .flat_map(|state| state.state.versions.iter().map(|(line, _)| *line))
        .collect();
    assert_eq!(lost, BTreeSet::from([line(0x40_1180)]));
}

#[test]
fn coalescing_joins_writes_that_touch_and_are_not_ordered() {
    let mut options = EagerOptions::default();
    options.pass.coalesce = true;
    let count = |ops: Vec<Op>| {
        let lines: Vec<Line> = ops.into_iter().map(|op| (0, 1, op)).collect();
        let survey = Survey::of(&trace_of(&lines), SparseImage::new(), &options).unwrap();
        survey.segments.last().unwrap().combinations
    };
    // A string that is copied byte by byte is present or absent as a whole.
    let string = (0..10).map(|at| plain(100 + at, 1, 1));
    assert_eq!(count(string.collect()), 2);
    // A gap, or another store of the line in between: two writes.
    assert_eq!(count(vec![plain(0, 4, 1), plain(5, 4, 1)]), 3);
    let between = vec![plain(0, 4, 1), plain(32, 4, 1), plain(4, 4, 1)];
    assert_eq!(count(between), 4);
    // A store to another line in between makes no difference for this line.
    let elsewhere = vec![plain(0, 4, 1), plain(64, 4, 1), plain(4, 4, 1)];
    assert_eq!(count(elsewhere), 4);
    // Ordered writes stay separate: here by a fence, and by a flush of another line.
    let fenced = vec![plain(0, 4, 1), Op::Fence, plain(4, 4, 1)];
    assert_eq!(count(fenced), 3);
    let flush = Op::Flush(FlushKind::Clwb, 640);
    assert_eq!(count(vec![plain(0, 4, 1), flush, plain(4, 4, 1)]), 3);
    // A write that touches writes joined before the last one.
    let back = vec![plain(8, 4, 1), plain(12, 4, 1), plain(4, 4, 1)];
    assert_eq!(count(back), 2);
    // Figure 3: two writes, one write, two writes.
    let survey = Survey::of(&yat(), SparseImage::new(), &options).unwrap();
    assert_eq!(survey.segments[0].combinations, (2 + 1) * (1 + 1) * (2 + 1));
}

#[test]
fn silent_stores_and_contents_that_come_back_count_once() {
    let lines: Vec<Line> = [store(0, 1), store(0, 1), store(0, 2), store(0, 1)]
        .into_iter()
        .map(|op| (0, 1, op))
        .collect();
    let (survey, states, _) = states(&trace_of(&lines), &EagerOptions::default());
    assert_eq!(survey.combinations.exact(), Some(&BigUint::from(3_u32)));
    assert_eq!(survey.raw_combinations.exact(), Some(&BigUint::from(5_u32)));
    let versions: Vec<Vec<usize>> = states
        .iter()
        .map(|state| state.state.versions.iter().map(|(_, v)| *v).collect())
        .collect();
    assert_eq!(versions, [vec![], vec![0], vec![3]]);
}

#[test]
fn only_the_segments_that_are_wanted() {
    let lines: Vec<Line> = (0..6_u8)
        .flat_map(|round| {
            let at = u64::from(round) * 64;
            let flush = Op::Flush(FlushKind::Clflush, at);
            [(0, 1, store(at, 1 + round)), (0, 2, flush)]
        })
        .collect();
    let trace = trace_of(&lines);
    let options = EagerOptions {
        segments: Some(2..4),
        ..EagerOptions::default()
    };
    let (survey, states, _) = states(&trace, &options);
    assert_eq!(survey.segments.len(), 6);
    assert_eq!((survey.chosen.clone(), survey.segment_count()), (2..4, 2));
    assert!(states.iter().all(|state| (2..4).contains(&state.segment)));
    // Segment 3 with its store lost equals segment 2 with all of its stores.
    assert_eq!(states.len(), 3);
}

#[test]
fn segments_in_which_a_pool_is_created_are_left_out() {
    let round = |at: u64| {
        let flush = Op::Flush(FlushKind::Clflush, at);
        [(0, 1, store(at, 1)), (0, 2, flush)]
    };
    let mut lines = vec![(0, 0, Op::Annotation(Annotation::CreationBegin))];
    lines.extend(round(0));
    lines.extend(round(64));
    lines.push((0, 0, Op::Annotation(Annotation::CreationEnd)));
    lines.extend(round(128));
    let (survey, left, _) = states(&trace_of(&lines), &EagerOptions::default());
    assert_eq!(survey.in_creation, [0, 1]);
    assert!(left.iter().all(|state| state.segment == 2));
    let options = EagerOptions {
        include_create: true,
        ..EagerOptions::default()
    };
    let (survey, all, _) = states(&trace_of(&lines), &options);
    assert!(survey.in_creation.is_empty());
    assert_eq!(all.len(), left.len() + 2);
}

#[test]
fn states_of_one_update_behaviour_are_one_group() {
    // The same code runs four times: a store and its publication, on separate lines.
    let lines: Vec<Line> = (0..4)
        .flat_map(|round| {
            let at = 256 * round;
            [
                (0, 1, store(at, 7)),
                (0, 2, store(at + 64, 7)),
                (0, 3, Op::Flush(FlushKind::Clwb, at)),
                (0, 3, Op::Flush(FlushKind::Clwb, at + 64)),
                (0, 3, Op::Fence),
            ]
        })
        .collect();
    let (_, states, _) = states(&trace_of(&lines), &EagerOptions::default());
    let mut groups = Representatives::default();
    for state in &states {
        groups.push(state.group);
    }
    assert_eq!(groups.group_count(), 4, "each, both or none is lost");
    assert_eq!(states.len(), 1 + 4 * 3);
    assert_eq!(groups.first(100).len(), 4);
}

#[test]
fn pool_bytes_are_what_stores_are_cut_at() {
    let lines = vec![(0, 1, plain(POOL_BYTES - 4, 60, 1))];
    let (survey, states, _) = states(&trace_of(&lines), &EagerOptions::default());
    assert_eq!(survey.states, 2);
    assert_eq!(states.len(), 2);
}
