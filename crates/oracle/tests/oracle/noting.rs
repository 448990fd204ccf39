//! One execution with the newest content everywhere, which notes first reads.

use powerfail_oracle::{
    Branch, CommandLine, ExploreRequest, LazyExecution, LazyExecutions, LineTable, Note, Oracle,
    PathMode, ProcessMode, RecoveryPlan, Slot, Stage, TableLine, Watch,
};
use powerfail_protocol::mark;

use crate::support::{Place, WAYS, plan, program, with_real_runtime};

fn command(words: &str) -> CommandLine {
    let program = program("mapped").into_os_string();
    let words = words.split_whitespace().map(Into::into);
    CommandLine::new([program].into_iter().chain(words))
}

fn slot(place: &Place, plan: &RecoveryPlan, way: (PathMode, ProcessMode)) -> Slot {
    std::fs::write(place.private(), image()).unwrap();
    let oracle = Oracle::new(plan.clone(), with_real_runtime(way)).unwrap();
    oracle.slot(&[place.mapping()]).unwrap()
}

fn image() -> Vec<u8> {
    let mut image = vec![0; 8192];
    image[0] = 7;
    image
}

/// The first byte of the first line is 7 or 6.
fn table(place: &Place) -> LineTable {
    let mut contents = vec![0; 128];
    (contents[0], contents[64]) = (7, 6);
    LineTable {
        line_bytes: 64,
        pools: vec![place.original()],
        lines: vec![TableLine {
            pool: 0,
            offset: 0,
            contents,
        }],
        watched: vec![],
    }
}

/// Two lines that are watched completely.
fn watches() -> [Watch; 2] {
    [4096, 128].map(|offset| Watch {
        pool: 0,
        reserved: 0,
        offset,
        bytes: u64::MAX,
    })
}

fn explore(place: &Place, slot: &mut Slot, prefix: &[u32]) -> LazyExecutions {
    let request = ExploreRequest {
        table: &table(place),
        prefix,
        branch: Branch::Never,
        watches: &watches(),
        observations: false,
        log: false,
        max_executions: 1,
    };
    slot.explore(&request).unwrap()
}

fn only(explored: &LazyExecutions) -> &LazyExecution {
    let [execution] = &explored.executions[..] else {
        panic!("{} executions", explored.executions.len());
    };
    execution
}

fn reads(execution: &LazyExecution) -> Vec<(u64, u64, u32)> {
    let reads = execution.notes.iter().filter(|it| it.code == 0);
    let told = |it: &Note| (it.offset, it.bytes, it.skipped);
    reads.map(told).collect()
}

#[test]
fn one_execution_takes_the_newest_and_leaves_the_image_alone() {
    let place = Place::new();
    let words = "map={pool} load=4097 load=0 store=130:5 load=130 load=131 load=4097 exit=1";
    for way in WAYS {
        let mut slot = slot(&place, &plan(command(words)), way);
        for _ in 0..3 {
            let explored = explore(&place, &mut slot, &[]);
            assert!(explored.kept && !explored.forked && !explored.stopped);
            assert!(std::fs::read(place.private()).unwrap() == image());
            let execution = only(&explored);
            let expected = [(4096, 1 << 1, 0), (128, 1 << 3, 0)];
            assert_eq!(reads(execution), expected);
            let [choice] = &execution.choices[..] else {
                panic!("{execution:?}");
            };
            let told = (choice.class_count, choice.class, choice.left, choice.notes);
            assert_eq!(told, (2, 0, 1, 1));
            let choices: Vec<u32> = execution.notes.iter().map(|it| it.choices).collect();
            assert_eq!(choices, [0, 1]);
        }
        // Another value, on request.
        let explored = explore(&place, &mut slot, &[1]);
        assert_eq!(only(&explored).choices[0].class, 1);
        let modules = slot.modules().unwrap();
        let (_, modules) = modules.iter().find(|it| it.0 == Stage::Recovery).unwrap();
        let frame = only(&explored).notes[0].frames[0];
        let module = modules
            .iter()
            .find(|it| (it.load_address..it.load_address + it.len_bytes).contains(&frame));
        assert_eq!(module.unwrap().path, program("mapped"));
    }
}

#[test]
fn the_checker_goes_on_with_what_recovery_read_and_wrote() {
    let place = Place::new();
    let mut checked = plan(command("map={pool} load=4097 store=128:1"));
    checked.checker = Some(command(
        "map={pool} load=4097 load=128 load=4098 load=0 exit=3",
    ));
    for way in WAYS {
        let mut slot = slot(&place, &checked, way);
        for _ in 0..2 {
            std::fs::write(place.private(), image()).unwrap();
            let explored = explore(&place, &mut slot, &[]);
            assert!(!explored.kept);
            let execution = only(&explored);
            let expected = [(4096, 1 << 1, 0), (4096, 1 << 2, 0)];
            assert_eq!(reads(execution), expected);
            assert_eq!(execution.stage_of_note(0), Stage::Recovery);
            assert_eq!(execution.stage_of_note(1), Stage::Checker);
            assert_eq!(execution.stage_of(0), Stage::Checker);
            assert_eq!(std::fs::read(place.private()).unwrap()[128], 1);
        }
    }
}

#[test]
fn what_needs_the_files_is_executed_on_them() {
    let place = Place::new();
    let words = format!(
        "map={{pool}} load=4096 make={} load=128",
        place.path("new").display()
    );
    for way in WAYS {
        let mut slot = slot(&place, &plan(command(&words)), way);
        for _ in 0..2 {
            let explored = explore(&place, &mut slot, &[]);
            assert!(!explored.kept);
            assert_eq!(reads(only(&explored)), [(4096, 1, 0), (128, 1, 0)]);
        }
    }
}

#[test]
fn a_region_of_interest_leaves_out_what_was_before_it() {
    let place = Place::new();
    let words = "map={pool} load=4096 load=0 interest=1 load=4097 commit=4104 interest=0 load=4098";
    let without = "map={pool} load=4096 load=0";
    for way in WAYS {
        let mut slot = slot(&place, &plan(command(words)), way);
        let explored = explore(&place, &mut slot, &[]);
        let execution = only(&explored);
        let expected = [(4096, 1, 1), (4096, 2, 0), (4096, 4, 1)];
        assert_eq!(reads(execution), expected);
        assert_eq!(execution.choices[0].skipped, 1);
        let codes: Vec<u32> = execution.notes.iter().map(|it| it.code).collect();
        let expected = [
            0,
            mark::INTEREST_BEGIN,
            0,
            mark::COMMIT_VARIABLE,
            mark::INTEREST_END,
            0,
        ];
        assert_eq!(codes, expected);
        let commit = &execution.notes[3];
        assert_eq!((commit.pool, commit.offset, commit.bytes), (0, 4104, 8));
        drop(slot);
        let mut slot = self::slot(&place, &plan(command(without)), way);
        let explored = explore(&place, &mut slot, &[]);
        assert_eq!(reads(only(&explored)), [(4096, 1, 0)]);
        assert_eq!(only(&explored).choices[0].skipped, 0);
    }
}
