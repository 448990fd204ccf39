//! Exit statuses, signals, patterns, output, checker, dump, limits; and results that are not verdicts.

use std::time::Duration;

use powerfail_finding::RecoveryOutcome;
use powerfail_oracle::{CommandLine, Oracle, OracleError, Stage, Verdict};
use regex::bytes::Regex;

use crate::support::{PATIENCE, Place, WAYS, failure, is_success, output, plan, settings, shell};

#[test]
fn exit_statuses() {
    let place = Place::new();
    for way in WAYS {
        assert!(is_success(&place.run(&shell("exit 0"), way)));
        let failed = failure(place.run(&shell("echo why; exit 3"), way));
        assert_eq!(failed.stage, Stage::Recovery);
        let expected = RecoveryOutcome::Exit {
            status: 3,
            command: "recovery".into(),
            output: "why\n".into(),
        };
        assert_eq!(failed.outcome, expected);
        let mut lenient = shell("exit 3");
        lenient.ok_exit = vec![3];
        assert!(is_success(&place.run(&lenient, way)));
    }
}

#[test]
fn signals() {
    let place = Place::new();
    for way in WAYS {
        for signal in [6, 9, 11, 13, 15] {
            let script = format!("echo before >&2; kill -{signal} $$");
            let expected = RecoveryOutcome::Signal {
                signal,
                command: "recovery".into(),
                output: "before\n".into(),
            };
            assert_eq!(failure(place.run(&shell(&script), way)).outcome, expected);
        }
    }
}

#[test]
fn a_slot_runs_many_times() {
    let place = Place::new();
    for way in WAYS {
        let plan = shell("case $(cat {pool}) in good*) exit 0;; *) exit 1;; esac");
        let mut slot = place.slot(&plan, way);
        for round in 0..20 {
            let content = if round % 2 == 0 { "good" } else { "bad" };
            std::fs::write(place.private(), content).unwrap();
            assert_eq!(is_success(&slot.run().unwrap()), round % 2 == 0);
        }
    }
}

#[test]
fn a_pattern_in_the_output_is_a_failure_even_where_it_is_cut() {
    let place = Place::new();
    let mut plan = shell(
        "head -c 100000 /dev/zero | tr '\\0' x; echo; echo 'ERROR 42'; \
         head -c 100000 /dev/zero | tr '\\0' x",
    );
    plan.fail_patterns = vec![
        Regex::new("^WARN").unwrap(),
        Regex::new("^ERROR [0-9]+").unwrap(),
    ];
    let failed = failure(place.run(&plan, WAYS[0]));
    let RecoveryOutcome::Output { pattern, .. } = &failed.outcome else {
        panic!("{:?}", failed.outcome);
    };
    assert_eq!(pattern, "^ERROR [0-9]+");
    plan.fail_patterns.pop();
    assert!(is_success(&place.run(&plan, WAYS[0])));
}

#[test]
fn output_is_bounded_and_never_blocks() {
    let place = Place::new();
    for way in WAYS {
        let script = "echo first; head -c 5000000 /dev/zero; echo last >&2; exit 1";
        let failed = failure(place.run(&shell(script), way));
        let text = output(&failed);
        let errors = "last\n[powerfail: that was standard error; all output:]\n";
        assert!(text.starts_with(&format!("{errors}first\n")) && text.ends_with("last\n"));
        assert!(text.len() < 20_000, "{}", text.len());
        let cut = 5_000_011 - 16_384;
        assert!(text.contains(&format!("[powerfail: {cut} bytes left out]")));
    }
}

#[test]
fn input_is_nothing_or_a_file() {
    let place = Place::new();
    let mut plan = shell("test \"$(cat)\" = \"$EXPECTED\"");
    plan.environment = vec![("EXPECTED".into(), "".into())];
    assert!(is_success(&place.run(&plan, WAYS[0])));
    std::fs::write(place.path("input"), "commands").unwrap();
    plan.input = Some(place.path("input"));
    plan.environment = vec![("EXPECTED".into(), "commands".into())];
    let mut slot = place.slot(&plan, WAYS[0]);
    assert!(is_success(&slot.run().unwrap()));
    assert!(is_success(&slot.run().unwrap()));
}

#[test]
fn the_checker_judges_the_same_image() {
    let place = Place::new();
    for way in WAYS {
        std::fs::write(place.private(), "image").unwrap();
        let mut plan = shell("printf recovered > {pool}");
        plan.checker = Some(CommandLine::shell("test \"$(cat {pool})\" = recovered"));
        assert!(is_success(&place.run(&plan, way)));
        plan.checker = Some(CommandLine::shell("echo wrong; exit 9"));
        let failed = failure(place.run(&plan, way));
        assert_eq!(failed.stage, Stage::Checker);
        let expected = RecoveryOutcome::Exit {
            status: 9,
            command: "checker".into(),
            output: "wrong\n".into(),
        };
        assert_eq!(failed.outcome, expected);
    }
}

#[test]
fn the_dump_is_returned() {
    let place = Place::new();
    let mut plan = shell("true");
    plan.dump = Some(CommandLine::shell(
        "echo noise >&2; cat {pool}; head -c 300000 /dev/zero",
    ));
    let Verdict::Success { dump: Some(dump) } = place.run(&plan, WAYS[0]) else {
        panic!("no dump");
    };
    assert_eq!(dump.len(), 300_005);
    assert!(dump.starts_with(b"image\0"));
    plan.max_dump_bytes = 300_005;
    assert!(is_success(&place.run(&plan, WAYS[0])));
    plan.max_dump_bytes = 300_004;
    let error = place.slot(&plan, WAYS[0]).run().unwrap_err();
    assert!(matches!(error, OracleError::DumpTooLong { .. }));
    plan.dump = Some(CommandLine::shell("exit 5"));
    assert_eq!(failure(place.run(&plan, WAYS[0])).stage, Stage::Dump);
    plan.dump = Some(CommandLine::shell("yes"));
    let mut slot = place.slot(&plan, WAYS[0]);
    assert!(matches!(slot.run(), Err(OracleError::DumpTooLong { .. })));
}

#[test]
fn every_stage_has_a_timeout() {
    let place = Place::new();
    let hang = CommandLine::shell("echo here; echo > $EXPIRE; sleep 1000");
    for way in WAYS {
        for stage in [Stage::Recovery, Stage::Checker, Stage::Dump] {
            let mut plan = shell("true");
            match stage {
                Stage::Checker => plan.checker = Some(hang.clone()),
                Stage::Dump => plan.dump = Some(hang.clone()),
                _ => plan.recover = hang.clone(),
            }
            let failed = failure(place.run(&place.expiring(&plan), way));
            assert_eq!(failed.stage, stage);
            let RecoveryOutcome::Timeout {
                after_ms, command, ..
            } = failed.outcome
            else {
                panic!("{:?}", failed.outcome);
            };
            assert_eq!(u128::from(after_ms), PATIENCE.as_millis());
            assert_eq!(command, stage.as_str());
        }
    }
}

/// Independent of the load: the command never ends, so only its timeout can end it.
#[test]
fn time_alone_ends_a_command() {
    let place = Place::new();
    let mut plan = shell("sleep 1000");
    plan.timeout = Duration::from_millis(10);
    for way in WAYS {
        let failed = failure(place.run(&plan, way));
        let RecoveryOutcome::Timeout { after_ms, .. } = failed.outcome else {
            panic!("{:?}", failed.outcome);
        };
        assert_eq!(after_ms, 10);
    }
}

#[test]
fn limits_hold() {
    let place = Place::new();
    let mut plan = shell("head -c 100000 /dev/zero > {pool}");
    assert!(is_success(&place.run(&plan, WAYS[0])));
    plan.limits.file_bytes = Some(4096);
    let verdict = place.run(&plan, WAYS[0]);
    assert!(!is_success(&verdict), "{verdict:?}");
    assert_eq!(place.private().metadata().unwrap().len(), 4096);
    let mut plan = shell("x=$(head -c 200000000 /dev/zero | tr '\\0' x); test ${#x} = 200000000");
    plan.limits.memory_bytes = Some(100 << 20);
    assert!(!is_success(&place.run(&plan, WAYS[0])));
    let core = shell("ulimit -c; kill -SEGV $$");
    assert_eq!(output(&failure(place.run(&core, WAYS[0]))), "0\n");
}

#[test]
fn commands_run_as_they_were_recorded() {
    let place = Place::new();
    let mut plan = shell(
        "test \"$PMEM_IS_PMEM_FORCE\" = 1 && test \"$PMEM_MMAP_HINT\" = 100040000000 \
         && test \"$PWD\" = \"$HERE\" && test \"$MINE\" = here \
         && read one </proc/self/stat && test $(sh -c 'cat /proc/$$/personality') = 00040000",
    );
    plan.working_directory = Some(place.path("elsewhere"));
    plan.environment = vec![
        ("HERE".into(), place.path("elsewhere").into()),
        ("MINE".into(), "here".into()),
    ];
    for way in WAYS {
        let verdict = place.run(&plan, way);
        assert!(is_success(&verdict), "{verdict:?}");
    }
}

#[test]
fn a_wrong_set_up_is_an_error_in_one_sentence() {
    let place = Place::new();
    let text = place.path("elsewhere/text");
    std::fs::write(&text, "no program").unwrap();
    let error = |words: &[&str]| {
        let oracle = Oracle::new(plan(CommandLine::new(words)), settings(WAYS[0]));
        oracle.unwrap_err().to_string()
    };
    assert_eq!(
        error(&["no-such-program-anywhere"]),
        "no-such-program-anywhere (the recovery command) was not found; check the name and PATH"
    );
    assert_eq!(error(&[]), "the recovery command is empty");
    let name = text.to_str().unwrap();
    assert_eq!(
        error(&[name]),
        format!("{name} (the recovery command) is not executable; check its permissions")
    );
    let mut with_checker = shell("true");
    with_checker.checker = Some(CommandLine::new(["/no/checker"]));
    let refused = Oracle::new(with_checker, settings(WAYS[0])).unwrap_err();
    assert!(
        refused
            .to_string()
            .starts_with("/no/checker (the checker command)")
    );
    // The kernel detects this one.
    std::fs::set_permissions(&text, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for way in WAYS {
        let mut slot = place.slot(&plan(CommandLine::new([name])), way);
        let refused = slot.run().unwrap_err();
        assert!(matches!(refused, OracleError::Start { .. }), "{refused}");
        let again = slot.run().unwrap_err();
        assert!(matches!(again, OracleError::Start { .. }), "{again}");
    }
}
