//! Snapshots and lazy executions with the real runtime, which observes the loads of a recovery.

use std::collections::BTreeSet;

use powerfail_oracle::{
    Branch, CommandLine, ExploreRequest, LineTable, LogKind, Oracle, OracleError, PageMask,
    PathMode, ProcessMode, RecoveryPlan, Slot, Stage, TableLine,
};

use crate::exploring::told;
use crate::snapshots::assert_no_process_of;
use crate::support::{Place, WAYS, plan, program, with_real_runtime};

type Told = (Vec<u16>, String);

fn command(words: &str) -> CommandLine {
    let program = program("mapped").into_os_string();
    let words = words.split_whitespace().map(Into::into);
    CommandLine::new([program].into_iter().chain(words))
}

fn slot(place: &Place, plan: &RecoveryPlan, way: (PathMode, ProcessMode)) -> Slot {
    prepare(place);
    let oracle = Oracle::new(plan.clone(), with_real_runtime(way)).unwrap();
    oracle.slot(&[place.mapping()]).unwrap()
}

/// The first byte of each line, newest first.
const LINES: [&[u8]; 3] = [&[1, 0], &[3, 2, 1], &[5, 4]];

fn prepare(place: &Place) {
    let mut image = vec![0; 8192];
    for (number, contents) in LINES.iter().enumerate() {
        image[64 * number] = contents[0];
    }
    std::fs::write(place.private(), image).unwrap();
}

fn table(place: &Place) -> LineTable {
    let line = |(number, contents): (usize, &&[u8])| TableLine {
        pool: 0,
        offset: 64 * number as u64,
        contents: contents
            .iter()
            .flat_map(|first| {
                let mut content = [0; 64];
                content[0] = *first;
                content
            })
            .collect(),
    };
    LineTable {
        line_bytes: 64,
        pools: vec![place.original()],
        lines: LINES.iter().enumerate().map(line).collect(),
        watched: vec![PageMask {
            pool: 0,
            offset: 4096,
            lines: 0xf0,
        }],
    }
}

fn request<'a>(table: &'a LineTable, prefix: &'a [u32], fork: bool) -> ExploreRequest<'a> {
    ExploreRequest {
        table,
        prefix,
        branch: if fork { Branch::Fork } else { Branch::Repeat },
        watches: &[],
        observations: false,
        log: true,
        max_executions: u64::MAX,
    }
}

fn by_fork(place: &Place, slot: &mut Slot) -> BTreeSet<Told> {
    let before = std::fs::read(place.private()).unwrap();
    let explored = slot.explore(&request(&table(place), &[], true)).unwrap();
    assert!(explored.forked && !explored.stopped);
    assert!(before == std::fs::read(place.private()).unwrap());
    let told: Vec<Told> = explored.executions.iter().map(told).collect();
    let set: BTreeSet<Told> = told.iter().cloned().collect();
    assert_eq!(set.len(), told.len());
    set
}

fn one_by_one(place: &Place, slot: &mut Slot) -> BTreeSet<Told> {
    let mut told_all = BTreeSet::new();
    let mut to_do: Vec<Vec<u32>> = vec![vec![]];
    while let Some(prefix) = to_do.pop() {
        prepare(place);
        let explored = slot
            .explore(&request(&table(place), &prefix, false))
            .unwrap();
        let [execution] = &explored.executions[..] else {
            panic!("{} executions", explored.executions.len());
        };
        for (number, choice) in execution.choices.iter().enumerate() {
            let classes = if choice.left == 1 {
                choice.class_count
            } else {
                0
            };
            for class in choice.class + 1..classes {
                let before = execution.choices[..number].iter().map(|it| it.class);
                to_do.push(before.chain([class]).map(Into::into).collect());
            }
        }
        assert!(told_all.insert(told(execution)));
    }
    told_all
}

/// Of threads that fault at a page at the same time, the first decides what it holds. For the others it is an ordinary page
/// by then.
#[test]
fn threads_load_from_an_open_line_at_the_same_time() {
    let place = Place::new();
    let mut table = table(&place);
    table.lines.truncate(1);
    table.watched.clear();
    let mut slot = slot(&place, &plan(command("map={pool} threads=16")), WAYS[0]);
    for class in [0, 1].repeat(10) {
        prepare(&place);
        let prefix = [class];
        let once = ExploreRequest {
            log: false,
            ..request(&table, &prefix, false)
        };
        let explored = slot.explore(&once).unwrap();
        let told: Vec<Told> = explored.executions.iter().map(told).collect();
        assert_eq!(told, [(vec![class as u16], "success".to_owned())]);
    }
}

/// Files are not copied with processes: a branch would find files that another branch creates.
#[test]
fn a_recovery_that_makes_files_is_executed_for_each_value() {
    let place = Place::new();
    let words = format!(
        "map={{pool}} load=0 make={} if=1 load=64",
        place.path("new").display()
    );
    for way in WAYS {
        let mut slot = slot(&place, &plan(command(&words)), way);
        let refused = slot.explore(&request(&table(&place), &[], true));
        let reason = match refused {
            Err(OracleError::NotForkable { reason }) => reason,
            other => panic!("{other:?}"),
        };
        assert_eq!(reason, "the recovery makes or removes other files");
        assert_eq!(one_by_one(&place, &mut slot).len(), 4);
    }
}

#[test]
fn a_program_that_is_started_without_the_runtime_is_not_explored() {
    let place = Place::new();
    for way in WAYS {
        let line = CommandLine::new(["env", "busybox", "cat", "{pool}"]);
        let mut slot = slot(&place, &plan(line), way);
        let refused = slot.explore(&request(&table(&place), &[], false));
        let is_refused = matches!(&refused, Err(OracleError::NotExplorable { .. }));
        assert!(is_refused, "{refused:?}");
    }
}

#[test]
fn both_engines_observe_the_same() {
    let place = Place::new();
    for way in WAYS {
        for (words, count) in [
            ("map={pool} load=0 if=1 load=64 exit=1", 4),
            ("map={pool} load=64 load=64 load=65 load=0 exit=1", 6),
            ("map={pool} load=64 if=2 crash=11 load=128 if=5 crash=6", 5),
            ("map={pool} say=a load=0 say=b load=64 say=c exit=1", 6),
            ("map={pool} load=64 flood=200000 load=0 exit=1", 6),
            ("map={pool} store=64:9 load=64 load=0 exit=1", 2),
            ("map={pool} load=4096 exit=1", 1),
        ] {
            let mut slot = slot(&place, &plan(command(words)), way);
            let forked = by_fork(&place, &mut slot);
            assert_eq!(forked.len(), count, "{words}: {forked:?}");
            assert_eq!(forked, one_by_one(&place, &mut slot), "{words}");
            prepare(&place);
            assert_eq!(forked, by_fork(&place, &mut slot));
            drop(slot);
            assert_no_process_of(&place);
        }
    }
}

#[test]
fn a_branch_that_hangs_is_ended_alone() {
    let place = Place::new();
    let hanging = plan(command("map={pool} load=64 if=2 hang load=0 exit=1"));
    let hanging = place.expiring(&hanging);
    for way in WAYS {
        let mut slot = slot(&place, &hanging, way);
        let forked = by_fork(&place, &mut slot);
        let hangs = forked.iter().filter(|(_, text)| text.contains("hang"));
        assert_eq!((forked.len(), hangs.count()), (5, 1), "{forked:?}");
        assert_eq!(forked, one_by_one(&place, &mut slot));
    }
}

#[test]
fn the_checker_goes_on_with_what_recovery_observed_and_wrote() {
    let place = Place::new();
    let mut checked = plan(command(
        "map={pool} load=0 if=1 store=4096:7 if=1 store=128:6",
    ));
    checked.checker = Some(command("map={pool} load=0 load=4096 load=128 exit=3"));
    for way in WAYS {
        let mut slot = slot(&place, &checked, way);
        let told = one_by_one(&place, &mut slot);
        let expected = [
            (vec![0], "checker 3: [0:1][4096:7][128:6]"),
            (vec![1, 0], "checker 3: [0:0][4096:0][128:5]"),
            (vec![1, 1], "checker 3: [0:0][4096:0][128:4]"),
        ];
        let expected = expected.map(|(choices, text)| (choices, text.to_owned()));
        assert_eq!(told, BTreeSet::from(expected));
    }
}

#[test]
fn what_recovery_reads_and_stores_is_told() {
    let place = Place::new();
    let words = "map={pool} load=64 load=4400 store=8000:3 exit=1";
    let mut slot = slot(&place, &plan(command(words)), WAYS[0]);
    let explored = slot.explore(&request(&table(&place), &[], true)).unwrap();
    assert_eq!(explored.executions.len(), 3);
    let read = |offset, lines| PageMask {
        pool: 0,
        offset,
        lines,
    };
    assert_eq!(explored.read, [read(0, 0b10), read(4096, 1 << 4)]);
    let stores = explored.executions[2]
        .log
        .iter()
        .find(|it| it.kind == LogKind::Store);
    let store = stores.unwrap();
    assert_eq!(
        (store.pool, store.offset, &store.bytes[..]),
        (0, 8000, &[3][..])
    );
    assert_eq!(store.choices, 1);
    // The location of the choice.
    let modules = slot.modules().unwrap();
    let (_, modules) = modules.iter().find(|it| it.0 == Stage::Recovery).unwrap();
    let frames = &explored.executions[0].choices[0].frames;
    let module = modules
        .iter()
        .find(|it| (it.load_address..it.load_address + it.len_bytes).contains(&frames[0]));
    assert_eq!(module.unwrap().path, program("mapped"));
}

#[test]
fn eager_runs_are_forked_too() {
    let place = Place::new();
    for way in WAYS {
        let mut slot = slot(
            &place,
            &plan(command("map={pool} load=0 store=64:9 exit=1")),
            way,
        );
        for _ in 0..10 {
            prepare(&place);
            let forked = slot.run().unwrap();
            let after = std::fs::read(place.private()).unwrap();
            prepare(&place);
            assert_eq!(forked, slot.run_plain().unwrap());
            assert!(after == std::fs::read(place.private()).unwrap());
        }
        assert_eq!(slot.snapshot_note(), None);
        assert!(slot.uses_snapshots());
    }
}
