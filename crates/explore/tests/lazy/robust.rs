//! Robustness, compared with brute force over all moments.

use std::collections::BTreeSet;

use powerfail_explore::Random;
use powerfail_explore::lazy::nested::{
    self, CrashPoint, CrashRead, NestedPoint, RecoveryEvent, failure_points,
};
use powerfail_explore::lazy::{
    CrashTable, History, Moment, ReadLine, Seen, Span, TableLimits, Unexplained, robust,
};
use powerfail_model::{
    EventIndex, FlushKind, LineId, LineIndex, Place, Rules, SparseImage, StoreKind,
};
use powerfail_protocol::observe::ByteSet;

use crate::brute::behaviour_on;
use crate::generate::Generator;
use crate::lazily::{Execution, explore};
use crate::machine::{Behaviour, Effect, Instruction, Program, THREAD};
use crate::workload::{Workload, newest, step};

fn line(line: u64) -> LineId {
    LineId {
        line: LineIndex(line),
        ..LineId::default()
    }
}

const MOMENTS: u64 = 12;

fn moment(number: u64) -> Moment {
    let event = EventIndex(number / 2);
    if number.is_multiple_of(2) {
        Moment::before(event)
    } else {
        Moment::during(event)
    }
}

fn random_lines(random: &mut Random, runs: u64) -> Vec<ReadLine> {
    let lines = (0..=random.below(5)).map(|number| {
        let explained = (0..=random.below(3)).map(|_| {
            let spans = (0..=random.below(runs)).map(|_| {
                let first = random.below(MOMENTS);
                let last = (first + random.below(7)).min(MOMENTS - 1);
                Span {
                    first: moment(first),
                    last: moment(last),
                }
            });
            spans.collect()
        });
        ReadLine {
            id: line(number),
            explained: explained.collect(),
        }
    });
    lines.collect()
}

fn explains(moments: &[Moment], line: &ReadLine) -> bool {
    line.explained.iter().any(|spans| {
        let mut both = spans.iter().zip(moments);
        both.all(|(span, moment)| span.first <= *moment && *moment <= span.last)
    })
}

/// Whether some moments of two runs explain all of these lines.
fn brute(lines: &[&ReadLine]) -> bool {
    let all = |one: u64| (0..MOMENTS).map(move |other| [moment(one), moment(other)]);
    let mut all = (0..MOMENTS).flat_map(all);
    all.any(|moments| lines.iter().all(|line| explains(&moments, line)))
}

/// The minimum distance between the explanations of two mutually exclusive lines, in one run.
fn smallest_distance(lines: &[ReadLine]) -> u64 {
    let number = |wanted: Moment| (0..MOMENTS).find(|at| moment(*at) == wanted).unwrap();
    let mut smallest = u64::MAX;
    for one in lines {
        for other in lines.iter().filter(|other| !brute(&[one, *other])) {
            for (early, late) in one
                .explained
                .iter()
                .flat_map(|early| other.explained.iter().map(move |late| (early[0], late[0])))
            {
                if early.last < late.first {
                    smallest = smallest.min(number(late.first) - number(early.last));
                }
            }
        }
    }
    smallest
}

#[test]
fn a_moment_is_found_where_there_is_one_and_else_lines_that_exclude_each_other() {
    let mut random = Random::new(5);
    let (mut found, mut pairs, mut cores) = (0, 0, 0);
    for round in 0..4000 {
        let lines = random_lines(&mut random, 1 + round % 2);
        match robust(&lines) {
            Ok(moments) => {
                let moments = [moments, vec![Moment::START; 2]].concat();
                assert!(lines.iter().all(|line| explains(&moments, line)));
                found += 1;
            }
            Err(why) => {
                let all: Vec<&ReadLine> = lines.iter().collect();
                assert!(!brute(&all));
                assert!(why.lost.event <= why.seen.event);
                assert_eq!(why.lost.run, why.seen.run);
                let mut core = vec![why.seen.line, why.lost.line];
                core.extend(&why.with);
                let of_core = |without: Option<LineId>| -> Vec<&ReadLine> {
                    let core = all.iter().filter(|line| core.contains(&line.id));
                    let core = core.filter(|line| Some(line.id) != without);
                    core.copied().collect()
                };
                assert!(!brute(&of_core(None)));
                for without in &core {
                    assert!(brute(&of_core(Some(*without))));
                }
                if why.with.is_empty() {
                    if round % 2 == 0 {
                        let distance = 2 * (why.seen.event.0 - why.lost.event.0);
                        assert!(distance <= 1 + smallest_distance(&lines));
                    }
                    pairs += 1;
                } else {
                    // Only if no two lines exclude each other.
                    for one in &lines {
                        assert!(lines.iter().all(|other| brute(&[one, other])));
                    }
                    cores += 1;
                }
            }
        }
    }
    assert!(
        found > 500 && pairs > 500 && cores > 20,
        "{found} {pairs} {cores}"
    );
}

#[test]
fn of_several_pairs_the_closest_is_named() {
    let read = |number, first, last| ReadLine {
        id: line(number),
        explained: vec![vec![Span {
            first: moment(first),
            last: moment(last),
        }]],
    };
    let lines = [read(0, 0, 1), read(1, 9, 11), read(2, 4, 11), read(3, 0, 7)];
    let why = robust(&lines).unwrap_err();
    assert_eq!((why.seen.line, why.seen.event), (line(1), EventIndex(4)));
    assert_eq!((why.lost.line, why.lost.event), (line(3), EventIndex(3)));
}

fn store(at: u64, value: u8) -> (u32, Effect) {
    (0, Effect::Store(StoreKind::Plain, at, vec![value; 8]))
}

fn clflush(at: u64) -> (u32, Effect) {
    (0, Effect::Flush(FlushKind::Clflush, at))
}

fn history_at(workload: &[(u32, Effect)]) -> History {
    let mut history = History::new(Rules::default(), SparseImage::new());
    for entry in workload.iter().enumerate() {
        history.apply(&step(entry));
    }
    history
}

/// Loads of whole words.
fn loads(words: &[u64]) -> Program {
    let loads = words.iter().map(|word| Instruction::Load {
        at: 8 * word,
        len: 8,
    });
    loads.collect()
}

/// Every line that an execution loaded from, not only those where it had a choice.
fn all_read_lines(
    history: &History,
    seen: &Seen<'_>,
    words: &[u64],
    crash: EventIndex,
) -> Vec<ReadLine> {
    let lines: BTreeSet<u64> = words.iter().map(|word| word / 8).collect();
    let lines = lines.into_iter().filter_map(|number| {
        let mut bytes = ByteSet::EMPTY;
        for word in words.iter().filter(|word| *word / 8 == number) {
            let from = 8 * (word % 8) as usize;
            bytes.insert(from, from + 8);
        }
        let id = line(number);
        let since = history.durable_since(id, &bytes);
        match seen.table().index_of(id) {
            Some(place) => {
                let line = &seen.table().lines[place];
                Some(ReadLine::open(line, seen.possible(place), since, crash))
            }
            None => Some(ReadLine::durable(id, since?, crash)),
        }
    });
    lines.collect()
}

/// One of three words of one of three lines.
fn word(generator: &mut Generator) -> u64 {
    8 * generator.below(3) + generator.below(3)
}

/// Stores of values that differ in every byte, and loads of whole words: then an execution is robust if
/// and only if the image at some moment of the run shows the same to recovery.
#[test]
fn robust_is_what_some_prefix_of_the_run_shows() {
    let (mut robust_count, mut not) = (0, 0);
    for seed in 0..600 {
        let mut generator = Generator::new(Rules::default(), 3, seed);
        let mut workload = Workload::new();
        for value in 1..10 {
            workload.push(store(8 * word(&mut generator), value));
            match generator.below(5) {
                0 => workload.push(clflush(64 * generator.below(3))),
                1 => workload.push((0, Effect::Flush(FlushKind::Clwb, 64 * generator.below(3)))),
                2 => workload.push((0, Effect::Fence)),
                _ => {}
            }
        }
        let words: Vec<u64> = (0..=generator.below(6))
            .map(|_| word(&mut generator))
            .collect();
        let program = loads(&words);
        let history = history_at(&workload);
        let crash = CrashPoint::first(CrashTable::of(history.frontier()));
        let at = EventIndex(workload.len() as u64);
        let prefixes: BTreeSet<_> = (0..=workload.len())
            .map(|len| newest(history_at(&workload[..len]).frontier(), 192))
            .map(|image| behaviour_on(&program, &image).0)
            .collect();
        for execution in explore(&program, &crash, &newest(history.frontier(), 192)) {
            let seen = Seen::of(&crash.table, execution.observed.iter().copied()).unwrap();
            let read = all_read_lines(&history, &seen, &words, at);
            let expected = prefixes.contains(&execution.behaviour);
            assert_eq!(robust(&read).is_ok(), expected, "{workload:?} {words:?}");
            // Choices alone miss some violations, but report no false ones.
            let of_choices = robust(&history.read_lines(&seen, at));
            assert!(of_choices.is_ok() || !expected);
            assert!(robust(&seen.read_lines(at)).is_ok() || of_choices.is_err());
            robust_count += usize::from(expected);
            not += usize::from(!expected);
        }
    }
    assert!(robust_count > 500 && not > 500, "{robust_count} {not}");
}

/// Data, then a flag that says it is valid; the data is never flushed.
#[test]
fn the_missing_flush_is_named() {
    let workload = [store(0, 1), store(64, 2)];
    let history = history_at(&workload);
    let crash = CrashPoint::first(CrashTable::of(history.frontier()));
    let mut violations = Vec::new();
    for execution in explore(&loads(&[8, 0]), &crash, &newest(history.frontier(), 128)) {
        let seen = Seen::of(&crash.table, execution.observed.iter().copied()).unwrap();
        let read = history.read_lines(&seen, EventIndex(2));
        if let Err(why) = robust(&read) {
            let loaded = &execution.behaviour.loaded;
            assert_eq!((loaded[0][0], loaded[1][0]), (2, 0));
            violations.push(*why);
        }
    }
    let [Unexplained { seen, lost, with }] = &violations[..] else {
        panic!("{violations:?}");
    };
    assert_eq!(
        (seen.line, seen.event, seen.run),
        (line(1), EventIndex(1), 0)
    );
    assert_eq!(
        (lost.line, lost.event, lost.run),
        (line(0), EventIndex(0), 0)
    );
    assert!(with.is_empty());
}

/// The failure points of an execution of recovery.
fn points_of(crash: &CrashPoint, execution: &Execution, pool: &[u8]) -> Vec<NestedPoint> {
    let log = execution.log.iter().map(|logged| RecoveryEvent {
        event: logged.effect.event(),
        thread: THREAD,
        choices: logged.choices,
    });
    let log: Vec<RecoveryEvent<'_>> = log.collect();
    let interrupted = nested::InterruptedRecovery {
        crash,
        choices: &execution.observed,
        log: &log,
    };
    let image = |at: Place, out: &mut [u8]| {
        let at = at.offset.0 as usize;
        out.copy_from_slice(&pool[at..at + out.len()]);
    };
    let limits = TableLimits::default();
    let rules = Rules::default();
    failure_points(rules, &interrupted, &image, limits, &mut |_| false).unwrap()
}

/// Whether moments of the run and of its recovery explain what was read before and after the second crash.
fn robust_nested(
    first: &CrashPoint,
    outer_seen: &Seen<'_>,
    at: EventIndex,
    point: &NestedPoint,
    again: &Execution,
) -> Result<Vec<Moment>, Box<Unexplained>> {
    let seen = Seen::of(&point.crash.table, again.observed.iter().copied()).unwrap();
    let crashes = [
        CrashRead {
            crash: first,
            seen: outer_seen,
            at,
        },
        CrashRead {
            crash: &point.crash,
            seen: &seen,
            at: EventIndex(point.position as u64),
        },
    ];
    robust(&nested::read_lines(&crashes))
}

fn random_recovery(generator: &mut Generator) -> Program {
    let len = 8;
    let instructions = (0..len).map(|at| match generator.below(8) {
        0..=2 => Instruction::Load {
            at: 8 * word(generator),
            len: 8,
        },
        3..=5 => Instruction::Store {
            kind: StoreKind::Plain,
            at: 8 * word(generator),
            bytes: vec![100 + at as u8; 8],
        },
        6 => Instruction::Flush {
            kind: FlushKind::Clflush,
            at: 64 * generator.below(3),
        },
        _ => Instruction::JumpIf {
            byte: 0,
            value: generator.below(4) as u8,
            to: at + 1 + generator.below((len - at) as u64) as usize,
        },
    });
    instructions.collect()
}

/// The behaviours of a recovery that is interrupted after an effect and restarts, if all stores become durable in
/// order: the loads of the first one up to its `last_store`, and all loads of the second.
fn strictly(
    workload: &Workload,
    program: &Program,
    last_store: usize,
) -> BTreeSet<(Vec<Vec<u8>>, Behaviour)> {
    let mut shown = BTreeSet::new();
    for len in 0..=workload.len() {
        let mut image = newest(history_at(&workload[..len]).frontier(), 192);
        let (first, log) = behaviour_on(program, &image);
        let Some(loads) = log.get(last_store).map(|logged| logged.loads) else {
            continue;
        };
        let loaded = &first.loaded[..loads];
        shown.insert((loaded.to_vec(), first.clone()));
        for logged in &log[..=last_store] {
            if let Effect::Store(_, at, bytes) = &logged.effect {
                image[*at as usize..*at as usize + bytes.len()].copy_from_slice(bytes);
            }
            shown.insert((loaded.to_vec(), behaviour_on(program, &image).0));
        }
    }
    shown
}

/// A behaviour that is possible with in-order persistence is never reported as missing a flush.
#[test]
fn nested_failures_cause_no_false_error() {
    let (mut explained, mut accused) = (0, 0);
    for seed in 0..300 {
        let mut generator = Generator::new(Rules::default(), 3, seed << 8);
        let workload: Workload = (1..5)
            .map(|value| store(8 * word(&mut generator), value))
            .collect();
        let program = random_recovery(&mut generator);
        let history = history_at(&workload);
        let first = CrashPoint::first(CrashTable::of(history.frontier()));
        let at = EventIndex(workload.len() as u64);
        let pool = newest(history.frontier(), 192);
        for execution in explore(&program, &first, &pool) {
            for point in points_of(&first, &execution, &pool) {
                let choices = execution.observed[..point.choices].iter().copied();
                let outer_seen = Seen::of(&first.table, choices).unwrap();
                let strict = strictly(&workload, &program, point.last_store);
                let loads = execution.log[point.last_store].loads;
                for again in explore(&program, &point.crash, &pool) {
                    let why = robust_nested(&first, &outer_seen, at, &point, &again);
                    let loaded = execution.behaviour.loaded[..loads].to_vec();
                    if strict.contains(&(loaded, again.behaviour)) {
                        assert!(why.is_ok(), "{workload:?} {program:?} {why:?}");
                        explained += 1;
                    }
                    accused += usize::from(why.is_err());
                }
            }
        }
    }
    assert!(explained > 300 && accused > 100, "{explained} {accused}");
}

/// Recovery stores to two lines without a flush between; after the second failure the later store has survived and the
/// earlier one has not.
#[test]
fn a_missing_flush_in_recovery_is_named() {
    let program = vec![
        Instruction::Load { at: 64, len: 8 },
        Instruction::JumpIf {
            byte: 0,
            value: 0,
            to: 4,
        },
        Instruction::Load { at: 0, len: 8 },
        Instruction::Stop(1),
        Instruction::Store {
            kind: StoreKind::Plain,
            at: 0,
            bytes: vec![5; 8],
        },
        Instruction::Store {
            kind: StoreKind::Plain,
            at: 64,
            bytes: vec![6; 8],
        },
    ];
    let history = history_at(&[]);
    let pool = vec![0; 128];
    let first = CrashPoint::first(CrashTable::of(history.frontier()));
    let execution = &explore(&program, &first, &pool)[0];
    let points = points_of(&first, execution, &pool);
    let outer_seen = Seen::nothing(&first.table);
    let mut violations = Vec::new();
    for point in &points {
        for again in explore(&program, &point.crash, &pool) {
            let why = robust_nested(&first, &outer_seen, EventIndex(0), point, &again);
            violations.extend(why.err());
        }
    }
    assert_eq!(violations.len(), 1);
    let (seen, lost) = (violations[0].seen, violations[0].lost);
    assert_eq!(
        (seen.line, seen.event, seen.run),
        (line(1), EventIndex(1), 1)
    );
    assert_eq!(
        (lost.line, lost.event, lost.run),
        (line(0), EventIndex(0), 1)
    );
}
