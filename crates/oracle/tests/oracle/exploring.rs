//! Lazy executions, with a fake runtime that recovery tells where it chooses.

use std::collections::BTreeSet;

use powerfail_finding::RecoveryOutcome;
use powerfail_oracle::{
    Branch, Choice, ExploreRequest, LazyExecution, LazyExecutions, LineTable, Oracle, OracleError,
    PageMask, PathMode, ProcessMode, Ready, RecoveryPlan, Server, Slot, Stage, StageStart,
    TableLine, Verdict,
};

use crate::snapshots::assert_no_process_of;
use crate::support::{Place, WAYS, plan, program, recovery, recovery_command, shell, with_runtime};

type Way = (PathMode, ProcessMode);

fn slot(place: &Place, plan: &RecoveryPlan, way: Way) -> Slot {
    let oracle = Oracle::new(plan.clone(), with_runtime(way)).unwrap();
    oracle.slot(&[place.mapping()]).unwrap()
}

/// The fake runtime ignores contents, so they are arbitrary.
fn table(place: &Place, lines: u64) -> LineTable {
    LineTable {
        line_bytes: 64,
        pools: vec![place.original()],
        lines: (0..lines)
            .map(|number| TableLine {
                pool: 0,
                offset: 64 * number,
                contents: vec![0; 128],
            })
            .collect(),
        watched: vec![PageMask {
            pool: 0,
            offset: 0,
            lines: 0xff,
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

/// A command that started after this many choices.
fn begun(stage: Stage, choices: u32) -> StageStart {
    StageStart {
        stage,
        choices,
        notes: 0,
    }
}

/// The observed values and the outcome.
pub(crate) fn told(execution: &LazyExecution) -> (Vec<u16>, String) {
    let classes = execution.choices.iter().map(|it| it.class).collect();
    let verdict = match &execution.verdict {
        Verdict::Success { dump: None } => "success".into(),
        Verdict::Success { dump: Some(dump) } => String::from_utf8(dump.clone()).unwrap(),
        Verdict::Failure(failure) => {
            let stage = failure.stage;
            match &failure.outcome {
                RecoveryOutcome::Exit { status, output, .. } => {
                    format!("{stage} {status}: {output}")
                }
                RecoveryOutcome::Signal { signal, output, .. } => {
                    format!("{stage} signal {signal}: {output}")
                }
                RecoveryOutcome::Timeout { output, .. } => format!("{stage} hang: {output}"),
                other => format!("{other:?}"),
            }
        }
    };
    (classes, verdict)
}

fn all_told(explored: &LazyExecutions) -> Vec<(Vec<u16>, String)> {
    explored.executions.iter().map(told).collect()
}

fn by_fork(slot: &mut Slot, table: &LineTable) -> Vec<(Vec<u16>, String)> {
    let explored = slot.explore(&request(table, &[], true)).unwrap();
    assert!(explored.forked && !explored.stopped);
    all_told(&explored)
}

/// One by one, from a list of prefixes; the image is prepared each time.
fn one_by_one(place: &Place, slot: &mut Slot, table: &LineTable) -> Vec<(Vec<u16>, String)> {
    let mut told_all = Vec::new();
    let mut to_do: Vec<Vec<u32>> = vec![vec![]];
    while let Some(prefix) = to_do.pop() {
        std::fs::write(place.private(), "image").unwrap();
        let explored = slot.explore(&request(table, &prefix, false)).unwrap();
        assert!(!explored.forked);
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
        told_all.push(told(execution));
    }
    told_all
}

fn set<T: Ord>(items: Vec<T>) -> BTreeSet<T> {
    let count = items.len();
    let set: BTreeSet<T> = items.into_iter().collect();
    assert_eq!(set.len(), count, "something was done twice");
    set
}

#[test]
fn every_class_of_every_choice_is_taken_once() {
    let place = Place::new();
    let plan = recovery("say=a open={pool} say=b choose=0/2 say=c choose=1/3 say=d exit=1");
    for way in WAYS {
        let mut slot = slot(&place, &plan, way);
        let expected: Vec<_> = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
            .map(|(one, two)| {
                let text = format!("recovery 1: ab[0:{one}]c[1:{two}]d");
                (vec![one, two], text)
            })
            .into();
        for _ in 0..3 {
            assert_eq!(by_fork(&mut slot, &table(&place, 2)), expected);
        }
        let again = one_by_one(&place, &mut slot, &table(&place, 2));
        assert_eq!(set(again), set(expected));
    }
}

#[test]
fn branches_do_not_disturb_each_other() {
    let place = Place::new();
    for way in WAYS {
        for words in [
            // Output in the buffers of the C library, which a fork copies.
            "print=a open={pool} print=b choose=0/2 print=c choose=1/2 exit=1",
            "open={pool} choose=0/3 if=1 crash=11 choose=1/2 if=1 crash=6 exit=2",
            "open={pool} choose=0/2 daemon choose=1/2 daemon daemon exit=3",
            "open={pool} choose=0/3 if=1 flood=300000 choose=1/2 flood=100000 exit=4",
            "open={pool} choose=0/2 if=0 kill-group choose=1/2 say=end exit=5",
        ] {
            let mut slot = slot(&place, &recovery(words), way);
            let forked = by_fork(&mut slot, &table(&place, 2));
            let again = one_by_one(&place, &mut slot, &table(&place, 2));
            assert_eq!(set(forked), set(again), "{words}");
            drop(slot);
            assert_no_process_of(&place);
        }
    }
}

#[test]
fn a_branch_that_hangs_is_ended_alone() {
    let place = Place::new();
    for way in WAYS {
        let hanging = recovery("open={pool} choose=0/3 if=1 hang choose=1/2 exit=1");
        let plan = place.expiring(&hanging);
        let mut slot = slot(&place, &plan, way);
        let explored = slot
            .explore(&request(&table(&place, 2), &[], true))
            .unwrap();
        let expected = [
            (vec![0, 0], "recovery 1: [0:0][1:0]"),
            (vec![0, 1], "recovery 1: [0:0][1:1]"),
            (vec![1], "recovery hang: [0:1]"),
            (vec![2, 0], "recovery 1: [0:2][1:0]"),
            (vec![2, 1], "recovery 1: [0:2][1:1]"),
        ]
        .map(|(classes, text)| (classes, text.to_owned()));
        assert_eq!(all_told(&explored), expected);
        let Verdict::Failure(hang) = &explored.executions[2].verdict else {
            panic!("no hang");
        };
        let resolved = hang.backtrace.as_ref().unwrap().resolve();
        let mut names = resolved.iter().flat_map(|it| &it.frames);
        assert!(names.any(|it| it.function.as_deref() == Some("main")));
        let again = one_by_one(&place, &mut slot, &table(&place, 2));
        assert_eq!(set(again), set(expected.into()));
    }
}

#[test]
fn a_branch_that_ends_others_is_not_forked() {
    let place = Place::new();
    let mut plan = recovery("open={pool} choose=0/2 choose=1/2 if=1 kill-group exit=1");
    plan.environment = vec![("ONE_GROUP".into(), "1".into())];
    for way in WAYS {
        let mut slot = slot(&place, &plan, way);
        let lines = table(&place, 2);
        for _ in 0..2 {
            let refused = slot.explore(&request(&lines, &[], true)).unwrap_err();
            assert!(
                matches!(refused, OracleError::NotForkable { .. }),
                "{refused}"
            );
        }
        assert_eq!(one_by_one(&place, &mut slot, &lines).len(), 4);
    }
}

/// Waiting branches report the end of the branch that refused. That must not be mistaken for the end of the whole
/// execution, nor the end of the execution for the end of the next one.
#[test]
fn a_refusal_deep_in_a_tree_leaves_nothing_for_the_next_execution() {
    let place = Place::new();
    for way in WAYS {
        for depth in 1..4 {
            let choices: Vec<String> = (0..depth).map(|it| format!("choose={it}/2")).collect();
            let choices = choices.join(" ");
            for observed in [0, 1] {
                let words = format!("open={{pool}} {choices} if={observed} refuse-forked=no");
                let mut slot = slot(&place, &recovery(&words), way);
                let lines = table(&place, depth);
                for _ in 0..3 {
                    let refused = slot.explore(&request(&lines, &[], true)).unwrap_err();
                    assert_eq!(refused.to_string(), "recovery cannot be forked: no");
                    let told = set(one_by_one(&place, &mut slot, &lines));
                    assert_eq!(told.len(), 1 << depth, "{words}");
                    assert!(told.iter().all(|(_, text)| text == "success"), "{told:?}");
                }
                assert_eq!(slot.snapshot_note(), None);
                drop(slot);
                assert_no_process_of(&place);
            }
        }
    }
}

#[test]
fn it_stops_when_it_is_enough() {
    let place = Place::new();
    let words = "open={pool} choose=0/2 choose=1/2 choose=2/2 choose=3/2 exit=1";
    for way in WAYS {
        let mut slot = slot(&place, &recovery(words), way);
        let all = by_fork(&mut slot, &table(&place, 4));
        assert_eq!(all.len(), 16);
        let lines = table(&place, 4);
        for most in [1, 2, 5, 15, 16] {
            let mut limited = request(&lines, &[], true);
            limited.max_executions = most;
            let explored = slot.explore(&limited).unwrap();
            assert_eq!(all_told(&explored), all[..most as usize]);
            assert_eq!(explored.stopped, most < 16);
        }
        assert_eq!(by_fork(&mut slot, &lines), all);
        // Eager and lazy runs use the same snapshot.
        for _ in 0..4 {
            let verdict = slot.run().unwrap();
            assert!(matches!(verdict, Verdict::Failure(_)));
        }
        assert_eq!(by_fork(&mut slot, &lines), all);
        assert_eq!(slot.snapshot_note(), None);
    }
}

#[test]
fn what_was_asked_for_is_told() {
    let place = Place::new();
    let words = "open={pool} warn=careful choose=1/2 warn=careful choose=3/2";
    let mut slot = slot(&place, &recovery(words), WAYS[0]);
    // In another order than in the pool; the file numbers them in the order of the pool.
    let mut lines = table(&place, 4);
    lines.lines.reverse();
    let explored = slot.explore(&request(&lines, &[1], true)).unwrap();
    let choices: Vec<(u32, u16, u16)> = explored
        .executions
        .iter()
        .flat_map(|it| &it.choices)
        .map(|it: &Choice| (it.line, it.class, it.class_count))
        .collect();
    assert_eq!(choices, [(2, 1, 2), (0, 0, 2), (2, 1, 2), (0, 1, 2)]);
    assert_eq!(explored.warnings, ["careful"]);
    let read = PageMask {
        pool: 0,
        offset: 0,
        lines: 0b1010,
    };
    assert_eq!(explored.read, [read]);
    assert_eq!(explored.traps, 2);
    // The location of a choice can be resolved.
    let modules = slot.modules().unwrap();
    let [(Stage::Recovery, modules)] = &modules[..] else {
        panic!("{modules:?}");
    };
    let frame = explored.executions[0].choices[0].frames[0];
    let module = modules
        .iter()
        .find(|it| (it.load_address..it.load_address + it.len_bytes).contains(&frame));
    assert_eq!(module.unwrap().path, program("recovery"));
    assert_eq!(explored.executions[0].stages, [begun(Stage::Recovery, 0)]);
}

#[test]
fn later_commands_go_on_with_the_choices_of_earlier_ones() {
    let place = Place::new();
    let mut plan = recovery("open={pool} choose=0/2 if=1 write=other choose=1/2");
    plan.checker = Some(recovery_command(
        "open={pool} choose=2/2 if=1 exit=8 when=other choose=3/2",
    ));
    plan.dump = Some(recovery_command("open={pool} cat choose=4/2"));
    for way in WAYS {
        let mut slot = slot(&place, &plan, way);
        let told = set(one_by_one(&place, &mut slot, &table(&place, 5)));
        // The first choice, the second, and then: the checker fails, or it chooses once more if it sees what recovery
        // wrote, and the dump chooses.
        let of_each = |first: u16| if first == 1 { 1 + 2 * 2 } else { 1 + 2 };
        assert_eq!(told.len(), 2 * of_each(0) + 2 * of_each(1));
        let failed = told
            .iter()
            .filter(|(_, text)| text.starts_with("checker 8"));
        assert_eq!(failed.count(), 4);
        let dumps = told.iter().filter(|(_, text)| text.starts_with("other["));
        assert_eq!(dumps.count(), 8);
        let lines = table(&place, 5);
        let explored = slot
            .explore(&request(&lines, &[1, 1, 0, 1, 1], true))
            .unwrap();
        // The plan has more commands than a recovery, so it cannot be forked.
        assert!(!explored.forked);
        let stages = [
            begun(Stage::Recovery, 0),
            begun(Stage::Checker, 2),
            begun(Stage::Dump, 4),
        ];
        assert_eq!(explored.executions[0].stages, stages);
        assert_eq!(explored.executions[0].stage_of(1), Stage::Recovery);
        assert_eq!(explored.executions[0].stage_of(3), Stage::Checker);
        assert_eq!(explored.executions[0].stage_of(4), Stage::Dump);
    }
}

#[test]
fn commands_without_a_snapshot_are_explored_one_by_one() {
    let place = Place::new();
    let program = program("recovery");
    let script = format!(
        "{} open={{pool}} choose=0/2 exit=3; exit 6",
        program.display()
    );
    for way in WAYS {
        let mut slot = slot(&place, &shell(&script), way);
        let lines = table(&place, 1);
        let refused = slot.explore(&request(&lines, &[], true)).unwrap_err();
        assert!(
            matches!(refused, OracleError::NotForkable { .. }),
            "{refused}"
        );
        let told = set(one_by_one(&place, &mut slot, &lines));
        let expected = [0, 1].map(|class| (vec![class], format!("recovery 6: [0:{class}]")));
        assert_eq!(told, BTreeSet::from(expected));
    }
}

#[test]
fn servers_are_explored_with_their_clients() {
    let place = Place::new();
    let line = |role: &str| {
        let words = format!("{role} unix {{pool}}.socket {{pool}}");
        let program = program("server").into_os_string();
        let words = words.split(' ').map(Into::into).collect::<Vec<_>>();
        powerfail_oracle::CommandLine::new([program].into_iter().chain(words))
    };
    let mut served = plan(line("server"));
    served.server = Some(Server {
        ready: "unix:{pool}.socket".parse::<Ready>().unwrap(),
        client: Some(line("client")),
        stop: None,
        judge_exit: true,
    });
    for way in WAYS {
        let mut slot = slot(&place, &served, way);
        for content in ["good", "evil"] {
            std::fs::write(place.private(), content).unwrap();
            let lines = table(&place, 1);
            let explored = slot.explore(&request(&lines, &[], true)).unwrap();
            let [execution] = &explored.executions[..] else {
                panic!("{explored:?}");
            };
            let is_good = matches!(execution.verdict, Verdict::Success { .. });
            assert_eq!(is_good, content == "good", "{execution:?}");
            assert_eq!(execution.stages, [begun(Stage::Recovery, 0)]);
        }
    }
}

#[test]
fn what_cannot_be_explored_is_refused() {
    let place = Place::new();
    let lines = table(&place, 2);
    for way in WAYS {
        let words = "open={pool} choose=0/2 if=1 refuse=reasons exit=1";
        let mut refusing = slot(&place, &recovery(words), way);
        for _ in 0..2 {
            let refused = refusing.explore(&request(&lines, &[], true)).unwrap_err();
            assert_eq!(refused.to_string(), "recovery cannot be explored: reasons");
            let refused = refusing.explore(&request(&lines, &[1], false)).unwrap_err();
            assert_eq!(refused.to_string(), "recovery cannot be explored: reasons");
        }
        let explored = refusing.explore(&request(&lines, &[0], true)).unwrap();
        assert_eq!(explored.executions.len(), 1);
        let words = "open={pool} choose=0/2 if=1 refuse-forked=threads exit=1";
        let mut threaded = slot(&place, &recovery(words), way);
        let refused = threaded.explore(&request(&lines, &[], true)).unwrap_err();
        assert_eq!(refused.to_string(), "recovery cannot be forked: threads");
        drop((refusing, threaded));
        assert_no_process_of(&place);
    }
    let mut of_no_pool = lines.clone();
    of_no_pool.pools = vec!["/elsewhere".into()];
    let mut without_line = lines.clone();
    without_line.lines[0].contents.clear();
    let mut unaligned = lines.clone();
    unaligned.lines[0].offset = 3;
    let mut slot = slot(&place, &recovery("open={pool}"), WAYS[0]);
    for wrong in [of_no_pool, without_line, unaligned] {
        let refused = slot.explore(&request(&wrong, &[], true)).unwrap_err();
        assert!(matches!(refused, OracleError::NotExplorable { .. }));
    }
}

#[test]
fn without_a_runtime_nothing_is_explored() {
    let place = Place::new();
    let mut slot = place.slot(&recovery("open={pool}"), WAYS[0]);
    let refused = slot.explore(&request(&table(&place, 1), &[], true));
    assert!(matches!(refused, Err(OracleError::NotExplorable { .. })));
    assert_eq!(slot.modules().unwrap(), []);
}
