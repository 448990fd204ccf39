//! Recoveries forked from a snapshot: the same verdicts as for executed ones.

use powerfail_finding::RecoveryOutcome;
use powerfail_oracle::{
    CommandLine, Oracle, OracleError, PathMode, ProcessMode, RecoveryPlan, Slot, Stage, Verdict,
};

use crate::support::{
    Place, WAYS, failure, is_success, output, recovery, recovery_command, shell, with_runtime,
};

type Way = (PathMode, ProcessMode);

fn slot(place: &Place, plan: &RecoveryPlan, way: Way) -> Slot {
    let oracle = Oracle::new(plan.clone(), with_runtime(way)).unwrap();
    oracle.slot(&[place.mapping()]).unwrap()
}

/// Runs a slot until it no longer compares forked runs with executed ones.
fn past_comparison(place: &Place, slot: &mut Slot) {
    for _ in 0..3 {
        std::fs::write(place.private(), "image").unwrap();
        slot.run().unwrap();
    }
}

#[test]
fn verdicts_are_those_of_plain_execution() {
    let place = Place::new();
    for way in WAYS {
        for words in [
            "open={pool} exit=0",
            "say=before open={pool} say=after exit=3",
            "print=before open={pool} print=after exit=3",
            "open={pool} cat exit=7",
            "open={pool} say=x crash=6",
            "open={pool} say=x crash=9",
            "open={pool} flood=300000 exit=1",
            "input open={pool} input exit=1",
            "open={pool} write=changed cat exit=1",
            "open={pool} daemon say=x exit=1",
        ] {
            let mut plan = recovery(words);
            std::fs::write(place.path("input"), "commands").unwrap();
            plan.input = Some(place.path("input"));
            let mut slot = slot(&place, &plan, way);
            for _ in 0..8 {
                std::fs::write(place.private(), "image").unwrap();
                let forked = slot.run().unwrap();
                let after = std::fs::read(place.private()).unwrap();
                std::fs::write(place.private(), "image").unwrap();
                assert_eq!(forked, slot.run_plain().unwrap(), "{words}");
                assert_eq!(after, std::fs::read(place.private()).unwrap());
            }
            assert_eq!(slot.snapshot_note(), None, "{words}");
            assert!(slot.uses_snapshots());
        }
    }
}

#[test]
fn the_program_is_executed_once() {
    let place = Place::new();
    let plan = recovery("pid open={pool} exit=1");
    let mut slot = slot(&place, &plan, WAYS[0]);
    let note = |slot: &Slot| slot.snapshot_note().map(str::to_owned);
    // The process id is written before the snapshot, so it shows how often the program started. It differs each time
    // when the program is executed, which must not prevent forking.
    past_comparison(&place, &mut slot);
    assert_eq!(note(&slot), None);
    let first = output(&failure(slot.run().unwrap())).to_owned();
    for _ in 0..20 {
        assert_eq!(output(&failure(slot.run().unwrap())), first);
    }
    let executed = output(&failure(slot.run_plain().unwrap())).to_owned();
    assert_ne!(executed, first);
}

#[test]
fn images_are_exchanged_between_runs() {
    let place = Place::new();
    for way in WAYS {
        let mut slot = slot(&place, &recovery("open={pool} cat exit=1"), way);
        for round in 0..20 {
            let content = format!("image {round}");
            match round % 3 {
                0 => std::fs::write(place.private(), &content).unwrap(),
                1 => {
                    let other = place.path("image/other");
                    std::fs::write(&other, &content).unwrap();
                    std::fs::rename(other, place.private()).unwrap();
                }
                _ => {
                    std::fs::remove_dir_all(place.path("image")).unwrap();
                    std::fs::create_dir(place.path("image")).unwrap();
                    std::fs::write(place.private(), &content).unwrap();
                }
            }
            assert_eq!(output(&failure(slot.run().unwrap())), content);
        }
        assert_eq!(slot.snapshot_note(), None);
    }
}

#[test]
fn checker_and_dump_have_snapshots_of_their_own() {
    let place = Place::new();
    for way in WAYS {
        let mut plan = recovery("open={pool} write=recovered");
        plan.checker = Some(recovery_command("open={pool} cat write=checked__"));
        plan.dump = Some(recovery_command("say=> open={pool} cat"));
        let mut slot = slot(&place, &plan, way);
        for _ in 0..6 {
            std::fs::write(place.private(), "image").unwrap();
            let Verdict::Success { dump: Some(dump) } = slot.run().unwrap() else {
                panic!("no dump");
            };
            assert_eq!(String::from_utf8(dump).unwrap(), ">checked__");
        }
        assert_eq!(slot.snapshot_note(), None);
        let stages: Vec<Stage> = slot.modules().unwrap().iter().map(|it| it.0).collect();
        for stage in [Stage::Recovery, Stage::Checker, Stage::Dump] {
            assert!(stages.contains(&stage));
        }
    }
}

#[test]
fn a_dump_that_is_too_long_ends_its_execution() {
    let place = Place::new();
    let mut plan = recovery("open={pool}");
    plan.dump = Some(recovery_command("open={pool} flood=200000 hang"));
    plan.max_dump_bytes = 1000;
    let mut slot = slot(&place, &plan, WAYS[0]);
    for _ in 0..6 {
        assert!(matches!(slot.run(), Err(OracleError::DumpTooLong { .. })));
    }
}

#[test]
fn a_hang_is_found_and_does_not_disturb_the_next() {
    let place = Place::new();
    for way in WAYS {
        let plan = place.expiring(&recovery("open={pool} cat choose=0/2 daemon hang"));
        let mut slot = slot(&place, &plan, way);
        for content in ["first", "second", "third", "fourth", "fifth"] {
            std::fs::write(place.private(), content).unwrap();
            let failed = failure(slot.run().unwrap());
            assert!(matches!(failed.outcome, RecoveryOutcome::Timeout { .. }));
            assert_eq!(output(&failed), format!("{content}[0:0]"));
            let resolved = failed.backtrace.unwrap().resolve();
            let mut names = resolved.iter().flat_map(|it| &it.frames);
            assert!(names.any(|it| it.function.as_deref() == Some("main")));
        }
        assert_eq!(slot.snapshot_note(), None);
    }
}

#[test]
fn what_cannot_be_forked_is_executed_and_says_why() {
    let place = Place::new();
    let with_variable = |mut plan: RecoveryPlan| {
        plan.environment = vec![("NO_SNAPSHOT".into(), "because".into())];
        plan
    };
    let with_limit = |mut plan: RecoveryPlan| {
        plan.limits.memory_bytes = Some(1 << 30);
        plan
    };
    let log = format!("log={} open={{pool}} exit=4", place.path("log").display());
    for (plan, reason) in [
        (recovery("exit=4"), "ended before it opened a pool"),
        (recovery("thread open={pool} exit=4"), "several threads"),
        (recovery("daemon open={pool} exit=4"), "has children"),
        (recovery(&log), "open for writing"),
        (with_variable(recovery("open={pool} exit=4")), "because"),
        (with_limit(recovery("open={pool} exit=4")), "is limited"),
        (shell("cat {pool} >/dev/null; exit 4"), "its child process"),
    ] {
        for way in WAYS {
            let mut slot = slot(&place, &plan, way);
            for _ in 0..4 {
                let failed = failure(slot.run().unwrap());
                let expected = RecoveryOutcome::Exit {
                    status: 4,
                    command: "recovery".into(),
                    output: String::new(),
                };
                assert_eq!(failed.outcome, expected, "{reason}");
            }
            let note = slot.snapshot_note().unwrap();
            assert!(note.contains(reason), "{note} is not {reason}");
            assert!(!slot.uses_snapshots());
        }
    }
}

#[test]
fn a_program_that_never_comes_to_its_pool_hangs_as_it_does_without() {
    let place = Place::new();
    let plan = place.expiring(&recovery("say=x hang open={pool}"));
    let mut slot = slot(&place, &plan, WAYS[0]);
    let failed = failure(slot.run().unwrap());
    assert!(matches!(failed.outcome, RecoveryOutcome::Timeout { .. }));
    assert!(slot.snapshot_note().unwrap().contains("within the timeout"));
}

#[test]
fn a_program_that_a_script_executes_is_forked() {
    let place = Place::new();
    let program = crate::support::program("recovery");
    let line = format!("exec {} open={{pool}} cat exit=2", program.display());
    let mut slot = slot(&place, &shell(&line), WAYS[0]);
    past_comparison(&place, &mut slot);
    assert_eq!(slot.snapshot_note(), None);
    assert_eq!(output(&failure(slot.run().unwrap())), "image");
}

#[test]
fn only_some_commands_are_forked() {
    let place = Place::new();
    let mut plan = recovery("open={pool} write=recovered");
    plan.dump = Some(CommandLine::shell("cat {pool}"));
    for way in WAYS {
        let mut slot = slot(&place, &plan, way);
        for _ in 0..6 {
            std::fs::write(place.private(), "image").unwrap();
            let dump = Some(b"recovered".to_vec());
            assert_eq!(slot.run().unwrap(), Verdict::Success { dump });
        }
        assert!(slot.uses_snapshots());
        assert!(
            slot.snapshot_note()
                .unwrap()
                .starts_with("the dump command")
        );
    }
}

#[test]
fn a_recovery_that_behaves_differently_is_executed() {
    let place = Place::new();
    let mut slot = slot(&place, &recovery("open={pool} kill-parent say=x"), WAYS[0]);
    for _ in 0..4 {
        // It cannot end its supervisor, and fails for trying.
        let failed = failure(slot.run().unwrap());
        let is_trapped = matches!(failed.outcome, RecoveryOutcome::Signal { signal: 31, .. });
        assert!(is_trapped, "{:?}", failed.outcome);
    }
    let note = slot.snapshot_note().unwrap();
    assert!(note.contains("has a different outcome"), "{note}");
    assert!(!slot.uses_snapshots());
}

#[test]
fn a_snapshot_that_is_lost_is_said_and_done_without() {
    let place = Place::new();
    let plan = recovery("open={pool} when=evil kill-parent exit=2");
    for way in [WAYS[0], WAYS[2]] {
        let mut slot = slot(&place, &plan, way);
        past_comparison(&place, &mut slot);
        std::fs::write(place.private(), "evil").unwrap();
        let lost = slot.run().unwrap_err();
        assert!(matches!(lost, OracleError::SnapshotLost { .. }), "{lost}");
        assert!(!is_success(&slot.run().unwrap()));
        assert!(slot.snapshot_note().unwrap().contains("ended during a run"));
    }
}

#[test]
fn what_a_recovery_leaves_behind_is_gone() {
    let place = Place::new();
    for way in WAYS {
        let words = "open={pool} daemon daemon make={pool}.new kill-group";
        let mut slot = slot(&place, &recovery(words), way);
        for _ in 0..8 {
            let failed = failure(slot.run().unwrap());
            assert!(matches!(
                failed.outcome,
                RecoveryOutcome::Signal { signal: 9, .. }
            ));
        }
        assert_eq!(slot.snapshot_note(), None);
        drop(slot);
        assert_no_process_of(&place);
    }
}

#[test]
fn snapshots_end_with_their_slot() {
    let place = Place::new();
    for way in WAYS {
        let mut slot = slot(&place, &recovery("open={pool}"), way);
        past_comparison(&place, &mut slot);
        assert!(is_success(&slot.run().unwrap()));
        drop(slot);
        assert_no_process_of(&place);
    }
}

/// Arguments contain the directory of the test.
pub(crate) fn assert_no_process_of(place: &Place) {
    let marker = place.directory.path().to_str().unwrap();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        assert!(!line.contains(marker), "{line} is still there");
    }
}
