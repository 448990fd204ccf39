//! One tree of observations for a whole run shows at every failure point, and after nested failures, what brute force
//! shows there; and no two executions of it observe the same.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use powerfail_explore::lazy::nested::{
    CrashPoint, InterruptedRecovery, RecoveryEvent, failure_points,
};
use powerfail_explore::lazy::tree::{
    Conflict, ObservationTree, ReadStep, Reading, Stop, TreeWalk, Watching, value_read,
};
use powerfail_explore::lazy::{
    CrashTable, Observed, Seen, SegmentLimits, SegmentsBuilder, TableLimits,
};
use powerfail_model::{
    EventIndex, FlushKind, Frontier, LineId, LineIndex, Rules, SparseImage, StoreKind,
};
use powerfail_protocol::observe::ByteSet;

use crate::brute::{behaviours, crash_images, interrupted};
use crate::generate::{Generator, all_rules};
use crate::lazily::LazyMemory;
use crate::machine::{Behaviour, Effect, Instruction, Logged, Memory, Program, THREAD, run};
use crate::workload::{Workload, newest, step};

/// Notes the first reads of watched lines, as the runtime does.
struct NotingMemory<'t> {
    memory: LazyMemory<'t>,
    line_bytes: usize,
    /// The bytes of watched lines that were neither read nor stored.
    unread: BTreeMap<LineId, ByteSet>,
    steps: Vec<(Reading, bool)>,
    loads: usize,
    /// After so many loads from watched lines the rest of a line is read, too.
    loads_max: usize,
    table: &'t CrashTable,
}

impl NotingMemory<'_> {
    /// The lines of a range, with the range in each.
    fn parts(&self, at: u64, len: usize) -> Vec<(LineId, ByteSet)> {
        let bytes = self.line_bytes as u64;
        let (from, to) = (at, at + len as u64);
        let lines = from / bytes..=(to - 1) / bytes;
        let part = |line: u64| {
            let start = line * bytes;
            let first = from.max(start) - start;
            let end = to.min(start + bytes) - start;
            let id = LineId {
                line: LineIndex(line),
                ..LineId::default()
            };
            (id, ByteSet::range(first as usize, end as usize))
        };
        lines.map(part).collect()
    }

    /// Whether some bytes can have several values.
    fn is_open(&self, id: LineId, bytes: &ByteSet) -> bool {
        let Some(line) = self.table.index_of(id) else {
            return false;
        };
        let seen = Seen::of(self.table, self.memory.observed.iter().copied()).expect("they fit");
        let contents = &self.table.lines[line].contents;
        let possible = seen.possible(line);
        let first = &contents[possible[0]].bytes;
        !possible
            .iter()
            .all(|other| bytes.agree(first, &contents[*other].bytes))
    }
}

impl Memory for NotingMemory<'_> {
    fn load(&mut self, at: u64, out: &mut [u8]) {
        self.memory.load(at, out);
        let parts = self.parts(at, out.len());
        let is_unread = |unread: &BTreeMap<LineId, ByteSet>, id: &LineId| {
            unread.get(id).is_some_and(|bytes| !bytes.is_empty())
        };
        if !parts.iter().any(|(id, _)| is_unread(&self.unread, id)) {
            return;
        }
        self.loads += 1;
        for (id, bytes) in &parts {
            let Some(unread) = self.unread.get_mut(id) else {
                continue;
            };
            let first = unread.without(&unread.without(bytes));
            *unread = unread.without(&first);
            if !first.is_empty() {
                let reading = Reading {
                    id: *id,
                    bytes: first,
                    is_rest: false,
                };
                self.steps.push((reading, true));
            }
        }
        if self.loads <= self.loads_max {
            return;
        }
        for (id, _) in parts {
            let Some(rest) = self.unread.get(&id).copied().filter(|it| !it.is_empty()) else {
                continue;
            };
            let is_open = self.is_open(id, &rest);
            let reading = Reading {
                id,
                bytes: rest,
                is_rest: true,
            };
            self.steps.push((reading, !is_open));
            if !is_open {
                self.unread.insert(id, ByteSet::EMPTY);
            }
        }
    }

    fn store(&mut self, at: u64, bytes: &[u8]) {
        if !bytes.is_empty() {
            for (id, bytes) in self.parts(at, bytes.len()) {
                if let Some(unread) = self.unread.get_mut(&id) {
                    *unread = unread.without(&bytes);
                }
            }
        }
        self.memory.store(at, bytes);
    }

    /// How many reads are in the tree so far: which of them are choices depends on the failure point.
    fn choices(&self) -> usize {
        self.steps.len()
    }
}

type Tree = ObservationTree<(), (Behaviour, Vec<Logged>)>;

/// An execution as it would be at a failure point.
struct Shown {
    behaviour: Behaviour,
    observed: Vec<Observed>,
    log: Vec<Logged>,
}

/// What is the same for all failure points of a run.
struct Explorer<'a> {
    program: &'a Program,
    watched: &'a BTreeMap<LineId, ByteSet>,
    loads_max: usize,
    tree: Tree,
    executions: usize,
}

impl Explorer<'_> {
    /// All executions after a crash.
    fn explore(&mut self, crash: &CrashPoint, pool: &[u8]) -> Result<Vec<Shown>, Conflict> {
        let table = &crash.table;
        let line_bytes = table.line_bytes;
        let mut now = pool.to_vec();
        for (id, bytes) in crash.overlay.lines() {
            let start = id.line.0 as usize * line_bytes;
            now[start..start + line_bytes].copy_from_slice(bytes);
        }
        let newest = |id: LineId| {
            let start = id.line.0 as usize * line_bytes;
            pool[start..start + line_bytes].to_vec()
        };
        let Watching { root, bytes } = Watching::after(self.watched, crash, &newest);
        let read = |id: LineId| {
            let start = id.line.0 as usize * line_bytes;
            now[start..start + line_bytes].to_vec()
        };
        let mut walk = TreeWalk::new(table, root);
        let mut shown = Vec::new();
        loop {
            let prefix = match walk.next(&self.tree, &read) {
                Stop::End => return Ok(shown),
                Stop::Known(leaf) => {
                    let (behaviour, log) = self.tree.leaf(leaf);
                    let choices: Vec<Option<Observed>> = walk
                        .steps(&self.tree)
                        .map(|((), taken)| taken.map(|taken| taken.observed))
                        .collect();
                    let log = log.iter().map(|logged| Logged {
                        choices: choices[..logged.choices].iter().flatten().count(),
                        ..logged.clone()
                    });
                    shown.push(Shown {
                        behaviour: behaviour.clone(),
                        log: log.collect(),
                        observed: choices.into_iter().flatten().collect(),
                    });
                    continue;
                }
                Stop::Missing(prefix) => prefix,
            };
            self.executions += 1;
            let mut memory = NotingMemory {
                memory: LazyMemory::new(table, now.clone(), &prefix),
                line_bytes,
                unread: bytes.clone().into_owned(),
                steps: Vec::new(),
                loads: 0,
                loads_max: self.loads_max,
                table,
            };
            let (behaviour, log) = run(self.program, &mut memory);
            let observed = memory.memory.observed;
            let seen = Seen::of(table, observed.iter().copied()).expect("choices fit");
            let steps = memory.steps.into_iter().map(|(reading, is_read)| ReadStep {
                reading,
                value: is_read.then(|| value_read(&seen, &reading, &read)),
                about: (),
            });
            let (_, is_new) = self.tree.insert(root, steps, (behaviour, log))?;
            assert!(is_new, "what is executed is not known");
        }
    }

    /// The behaviours after up to so many failures of recoveries.
    fn behaviours(
        &mut self,
        rules: Rules,
        crash: &CrashPoint,
        pool: &[u8],
        depth: usize,
        shown: &mut BTreeSet<Behaviour>,
    ) {
        let executions = self
            .explore(crash, pool)
            .expect("it is a function of what it reads");
        let mut known = HashSet::new();
        for execution in executions {
            shown.insert(execution.behaviour);
            if depth == 0 {
                continue;
            }
            let log: Vec<RecoveryEvent<'_>> = execution
                .log
                .iter()
                .map(|logged| RecoveryEvent {
                    event: logged.effect.event(),
                    thread: THREAD,
                    choices: logged.choices,
                })
                .collect();
            let image = |at: powerfail_model::Place, out: &mut [u8]| {
                let at = at.offset.0 as usize;
                out.copy_from_slice(&pool[at..at + out.len()]);
            };
            let interrupted = InterruptedRecovery {
                crash,
                choices: &execution.observed,
                log: &log,
            };
            let limits = TableLimits::default();
            let points = failure_points(rules, &interrupted, &image, limits, &mut |key| {
                !known.insert(key)
            });
            for point in points.expect("choices fit") {
                self.behaviours(rules, &point.crash, pool, depth - 1, shown);
            }
        }
    }
}

/// How much was compared.
#[derive(Debug, Default)]
struct Compared {
    points: usize,
    executions: usize,
    /// Executions of all points, each by itself.
    alone: usize,
}

fn frontiers_of(rules: Rules, workload: &Workload) -> Vec<(usize, Frontier)> {
    let mut frontiers = Vec::new();
    crate::workload::at_failure_points(rules, workload, |at, frontier| {
        frontiers.push((at, frontier.clone()));
    });
    frontiers
}

fn compare(
    rules: Rules,
    workload: &Workload,
    program: &Program,
    len: usize,
    (depth, loads_max, limits): (usize, usize, SegmentLimits),
    compared: &mut Compared,
) {
    let frontiers = frontiers_of(rules, workload);
    let mut builder = SegmentsBuilder::new(rules, SparseImage::new(), limits);
    let mut points = frontiers.iter().map(|(at, _)| *at).peekable();
    for (index, entry) in workload.iter().enumerate() {
        if points.next_if_eq(&index).is_some() {
            builder.point(EventIndex(index as u64));
        }
        builder.apply(&step((index, entry)));
    }
    if points.next().is_some() {
        builder.point(EventIndex(workload.len() as u64));
    }
    let segments = builder.finish();
    let all = segments.all().iter().map(|segment| segment.points);
    assert_eq!(all.sum::<usize>(), frontiers.len());
    for (number, segment) in segments.all().iter().enumerate() {
        let mut explorer = Explorer {
            program,
            watched: &segment.watched,
            loads_max,
            tree: Tree::default(),
            executions: 0,
        };
        for (at, frontier) in &frontiers {
            if segments.number_of(EventIndex(*at as u64)) != Some(number) {
                continue;
            }
            let pool = newest(frontier, len);
            let mut images = crash_images(frontier, len);
            for _ in 0..depth {
                images = interrupted(rules, program, &images);
            }
            let expected = behaviours(program, &images);
            let mut shown = BTreeSet::new();
            let crash = CrashPoint::first(CrashTable::of(frontier));
            explorer.behaviours(rules, &crash, &pool, depth, &mut shown);
            assert_eq!(
                shown, expected,
                "{rules:?} {workload:?} {program:?} at {at}"
            );
            compared.points += 1;
            compared.alone += expected.len();
        }
        compared.executions += explorer.executions;
        assert_eq!(explorer.executions, explorer.tree.leaf_count());
    }
}

fn compare_random(rules: Rules, depth: usize, wanted: usize, log10_states: f64) -> Compared {
    let mut compared = Compared::default();
    let mut seed = (1 << 50) + depth as u64;
    while compared.points < wanted {
        seed += 1;
        let mut generator = Generator::new(rules, 2 + seed % 2, seed);
        let workload_len = 4 + generator.below(12 - 4 * depth as u64);
        let workload = generator.workload(workload_len);
        let recovery_len = 3 + generator.below(8 - 2 * depth as u64) as usize;
        let program = generator.recovery(recovery_len, depth > 0 || seed.is_multiple_of(3));
        let loads_max = [0, 2, 100][generator.below(3) as usize];
        let limits = SegmentLimits {
            lines: [1, 2, 64][generator.below(3) as usize],
            ..SegmentLimits::default()
        };
        let states = frontiers_of(rules, &workload);
        let mut states = states
            .iter()
            .map(|(_, frontier)| frontier.crash_state_count_log10());
        if states.any(|states| states > log10_states) {
            continue;
        }
        let len = generator.pool_len();
        let how = (depth, loads_max, limits);
        compare(rules, &workload, &program, len, how, &mut compared);
    }
    compared
}

#[test]
fn a_tree_for_the_whole_run_shows_what_brute_force_shows_at_every_point() {
    for rules in all_rules() {
        let compared = compare_random(rules, 0, 800, 1.8);
        assert!(
            compared.executions < compared.alone,
            "{rules:?} {compared:?}"
        );
    }
}

#[test]
fn a_tree_for_the_whole_run_shows_what_brute_force_shows_after_nested_failures() {
    for rules in all_rules() {
        compare_random(rules, 1, 150, 1.0);
    }
}

/// Without the read of the line that has one content only, the second point would take over what the first one showed.
#[test]
fn a_line_with_one_content_is_in_the_tree() {
    let program = vec![
        Instruction::Load { at: 0, len: 1 },
        Instruction::JumpIf {
            byte: 0,
            value: 2,
            to: 3,
        },
        Instruction::Stop(1),
        Instruction::Stop(2),
    ];
    let table = CrashTable {
        line_bytes: 64,
        ..CrashTable::default()
    };
    let crash = CrashPoint::first(table);
    let watched = BTreeMap::from([(LineId::default(), ByteSet::range(0, 64))]);
    let mut explorer = Explorer {
        program: &program,
        watched: &watched,
        loads_max: 100,
        tree: Tree::default(),
        executions: 0,
    };
    let mut outcome = |value: u8| {
        let mut pool = vec![0; 64];
        pool[0] = value;
        let shown = explorer.explore(&crash, &pool).expect("no conflict");
        (shown[0].behaviour.outcome, explorer.executions)
    };
    assert_eq!(outcome(1), (1, 1));
    assert_eq!(outcome(2), (2, 2));
    assert_eq!(outcome(1), (1, 2));
}

/// The same values, and another read after them.
#[test]
fn a_recovery_that_is_no_function_of_what_it_reads_is_a_conflict() {
    let step_at = |line: u64, value: u8| ReadStep {
        reading: Reading {
            id: LineId {
                line: LineIndex(line),
                ..LineId::default()
            },
            bytes: ByteSet::range(0, 1),
            is_rest: false,
        },
        value: Some([value].into()),
        about: (),
    };
    let mut tree: ObservationTree<(), u8> = ObservationTree::default();
    let (first, is_new) = tree.insert(0, [step_at(0, 1), step_at(1, 1)], 7).unwrap();
    assert!(is_new);
    assert_eq!(
        tree.insert(0, [step_at(0, 1), step_at(1, 1)], 8),
        Ok((first, false))
    );
    assert_eq!(
        tree.insert(0, [step_at(0, 1), step_at(2, 1)], 8),
        Err(Conflict)
    );
    assert_eq!(tree.insert(0, [step_at(0, 1)], 8), Err(Conflict));
    let longer = [step_at(0, 1), step_at(1, 1), step_at(2, 1)];
    assert_eq!(tree.insert(0, longer, 8), Err(Conflict));
    assert!(tree.insert(1, [step_at(2, 1)], 8).is_ok(), "another root");
    assert!(tree.insert(0, [step_at(0, 2), step_at(2, 1)], 8).is_ok());
    assert_eq!((tree.leaf_count(), *tree.leaf(first)), (3, 7));
}

#[test]
fn bytes_with_one_value_are_not_watched() {
    let store = |at: u64, bytes: &[u8]| Effect::Store(StoreKind::Plain, at, bytes.to_vec());
    let workload: Workload = [
        // Changes nothing but the first byte; the line is open at the first failure point.
        store(0, &[1, 0, 0, 0]),
        Effect::Fence,
        // In the same line and across a border: between the first failure point and the second.
        store(8, &[0, 7]),
        store(60, &[0, 0, 3, 0, 0, 4]),
        Effect::Flush(FlushKind::Clflush, 0),
    ]
    .map(|effect| (0, effect))
    .into();
    let rules = Rules::default();
    let limits = SegmentLimits::default();
    let mut builder = SegmentsBuilder::new(rules, SparseImage::new(), limits);
    for (index, entry) in workload.iter().enumerate() {
        if index == 1 {
            builder.point(EventIndex(1));
        }
        builder.apply(&step((index, entry)));
    }
    builder.point(EventIndex(workload.len() as u64));
    let segments = builder.finish();
    let [segment] = segments.all() else {
        panic!("{segments:?}");
    };
    let watched: Vec<(u64, Vec<usize>)> = { segment.watched.iter() }
        .map(|(id, bytes)| (id.line.0, bytes.iter().collect()))
        .collect();
    assert_eq!(watched, [(0, vec![0, 9, 62]), (1, vec![1])]);
}
