//! Lost and reordered lines: what is found, how it is explained and replayed, and how the extent of the exploration is
//! reported.

use powerfail_finding::{Exploration, Finding, Report, Role};

use crate::common::{CLEAN, FINDINGS, Folder, RECOVER, Run};

fn folder(bug: u32) -> Folder {
    let folder = Folder::new();
    folder.build_own("bug", "lost_lines.c", &[&format!("-DBUG={bug}")]);
    folder.record();
    folder
}

fn crash(folder: &Folder, more: &[&str]) -> Run {
    let mut arguments = vec![
        "crash",
        "run.trace",
        "--recover",
        RECOVER,
        "--strategy",
        "lazy",
    ];
    arguments.extend(["--format", "json", "--out", "out"]);
    arguments.extend(more);
    folder.powerfail(&arguments)
}

fn exploration(report: &Report) -> Exploration {
    report.totals.exploration.clone().expect("it was explored")
}

/// The line of the source that has this text.
fn line(text: &str) -> u32 {
    let source = include_str!("programs/lost_lines.c");
    let found = source.lines().position(|line| line.contains(text));
    u32::try_from(found.expect("the text is there") + 1).expect("few lines")
}

fn line_of(finding: &Finding, role: Role) -> Option<u32> {
    let mut places = finding.places.iter();
    places.find(|place| place.role == role)?.line
}

/// The process that reads the pool is not always the command itself. Some wrappers clear the environment, others close descriptors.
#[test]
fn a_recovery_behind_wrappers_is_explored() {
    let folder = folder(1);
    let runs = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))";
    for recover in [
        format!("sh -c '{RECOVER}; exit $?'"),
        format!("timeout 60 env -i {RECOVER}"),
        format!("/usr/bin/python3 -c '{runs}' {RECOVER}"),
    ] {
        let run = folder.powerfail(&[
            "crash",
            "run.trace",
            "--recover",
            &recover,
            "--strategy",
            "lazy",
            "--format",
            "json",
        ]);
        let report = run.ends_with(FINDINGS).report();
        assert!(exploration(&report).choices > 0, "{recover}: {report:?}");
        assert_eq!(report.notes, Vec::<String>::new(), "{recover}");
    }
}

#[test]
fn a_flag_without_its_data_is_found_and_explained() {
    let folder = folder(1);
    let run = crash(&folder, &[]).ends_with(FINDINGS);
    let report = run.report();
    let [finding] = &report.findings[..] else {
        panic!("{}", run.stdout);
    };
    assert_eq!(line_of(finding, Role::Store), Some(line("pool->data = 7;")));
    let evidence = finding.evidence.as_ref().expect("a crash shows it");
    let decisive: Vec<_> = evidence.choices.iter().filter(|it| it.decisive).collect();
    assert!(!decisive.is_empty(), "{}", run.stdout);
    let reads = line("pool->state == DONE && pool->data");
    assert!(
        decisive.iter().all(|it| it.load.line == Some(reads)),
        "{}",
        run.stdout
    );
    let data = decisive
        .iter()
        .find(|it| it.load.pool_offset == Some(64))
        .expect("the data");
    let stores: Vec<Option<u32>> = data
        .sources
        .iter()
        .map(|source| source.store.as_ref().and_then(|store| store.line))
        .collect();
    assert_eq!(stores, [Some(line("pool->data = 7;")), None]);
    assert!(data.sources[1].taken);
    let suggestion = finding.suggestion.as_deref().expect("it says what to do");
    assert!(suggestion.contains("fence"), "{suggestion}");

    let id = finding.id.as_str();
    let again = folder
        .powerfail(&["replay", id, "--out", "out"])
        .ends_with(FINDINGS);
    assert!(again.stdout.contains("the same again"), "{}", again.stdout);
    assert!(
        again.stdout.contains("could read 2 values"),
        "{}",
        again.stdout
    );
}

#[test]
fn without_a_bug_everything_is_explored_and_nothing_found() {
    let folder = folder(0);
    let report = crash(&folder, &["--depth", "2"]).ends_with(CLEAN).report();
    let explored = exploration(&report);
    assert!(report.findings.is_empty());
    assert_eq!(explored.exhaustive, explored.failure_points);
    assert_eq!((explored.sampled, explored.not_tried), (0, 0));
    assert!(explored.second_failures > 0, "{explored:?}");
    assert!(
        explored.choices > 0 && explored.executions > 0,
        "{explored:?}"
    );
}

#[test]
fn forks_executions_and_workers_give_the_same() {
    for bug in [0, 1] {
        let folder = folder(bug);
        let forked = crash(&folder, &[]);
        for more in [&["--no-fork"][..], &["--jobs", "1"], &["--jobs", "4"]] {
            let other = crash(&folder, more);
            assert_eq!(forked.stdout, other.stdout, "{more:?}");
        }
    }
}

#[test]
fn a_bug_of_recovery_takes_a_second_failure() {
    let folder = folder(2);
    crash(&folder, &[]).ends_with(CLEAN);
    let run = crash(&folder, &["--depth", "2"]).ends_with(FINDINGS);
    let report = run.report();
    let [finding] = &report.findings[..] else {
        panic!("{}", run.stdout);
    };
    assert!(finding.message.contains("again"), "{}", finding.message);
    let lost = line("pool->data = pool->log;");
    assert_eq!(line_of(finding, Role::Store), Some(lost), "{}", run.stdout);
    let evidence = finding.evidence.as_ref().expect("a crash shows it");
    let again = evidence.failure.again.as_ref().expect("a second failure");
    assert_eq!(again.failures, 2);
    assert!(!again.written.is_empty());

    let id = finding.id.as_str();
    let shown = folder
        .powerfail(&["replay", id, "--out", "out"])
        .ends_with(FINDINGS);
    assert!(shown.stdout.contains("the same again"), "{}", shown.stdout);
    folder
        .powerfail(&["replay", id, "--out", "out", "--image", "image"])
        .ends_with(CLEAN);
}

/// Recovery does not store to the line that the first failure has lost before the second one.
#[test]
fn what_the_first_failure_has_lost_is_named_beside_the_second_one() {
    let folder = folder(4);
    crash(&folder, &[]).ends_with(CLEAN);
    let run = crash(&folder, &["--depth", "2"]).ends_with(FINDINGS);
    let report = run.report();
    let [finding] = &report.findings[..] else {
        panic!("{}", run.stdout);
    };
    let lost = line("pool->log = 7;");
    assert_eq!(line_of(finding, Role::Store), Some(lost), "{}", run.stdout);
    let failure = &finding.evidence.as_ref().expect("a crash shows it").failure;
    let [line] = &failure.lost_lines[..] else {
        panic!("{failure:?}");
    };
    let again = failure.again.as_ref().expect("a second failure");
    let mut written = again.written.iter();
    assert!(
        written.all(|it| it.pool_offset != line.pool_offset),
        "{failure:?}"
    );
    folder
        .powerfail(&["replay", &finding.id, "--out", "out"])
        .ends_with(FINDINGS);
}

#[test]
fn what_no_moment_explains_is_a_warning() {
    let folder = folder(3);
    assert!(
        crash(&folder, &[])
            .ends_with(CLEAN)
            .report()
            .findings
            .is_empty()
    );
    let run = crash(&folder, &["--warnings", "--only", "PF0603"]).ends_with(CLEAN);
    let finding = run.finding("PF0603");
    assert_eq!(line_of(&finding, Role::Store), Some(line("pool->log = 7;")));
    assert_eq!(
        line_of(&finding, Role::Survivor),
        Some(line("pool->hint = 9;"))
    );
    crash(&folder, &["--deny", "warnings", "--only", "PF0603"]).ends_with(FINDINGS);
}

#[test]
fn check_explores_unless_told_not_to() {
    let folder = Folder::new();
    folder.build_own("bug", "lost_lines.c", &["-DBUG=1"]);
    let check = |more: &[&str]| {
        let mut arguments = vec![
            "check",
            "--recover",
            RECOVER,
            "--format",
            "json",
            "--out",
            "out",
        ];
        arguments.extend(more);
        arguments.extend(["--", "./bug", "{pool}"]);
        folder.powerfail(&arguments)
    };
    let run = check(&[]).ends_with(FINDINGS);
    let with = exploration(&run.report());
    assert_eq!(with.exhaustive, with.failure_points);
    let without = check(&["--no-lazy"]);
    assert!(without.report().totals.exploration.is_none());
    let few = check(&["--max-executions", "1"]);
    let few = exploration(&few.report());
    assert!(few.not_tried > 0, "{few:?}");
    assert!(few.executions < with.executions);
}

#[test]
fn the_number_of_executions_is_a_limit() {
    let folder = folder(0);
    let all = exploration(&crash(&folder, &[]).ends_with(CLEAN).report());
    for script in [false, true] {
        if script {
            folder.write("recover.sh", "#!/bin/sh\nexec ./bug \"$1\" recover\n");
            let mut chmod = folder.command("chmod");
            chmod.args(["+x", "recover.sh"]).status().expect("chmod");
        }
        let recover = if script {
            "./recover.sh {pool}"
        } else {
            RECOVER
        };
        for max in 1..all.executions {
            let most = max.to_string();
            let arguments = [
                &[
                    "crash",
                    "run.trace",
                    "--strategy",
                    "lazy",
                    "--format",
                    "json",
                ][..],
                &["--recover", recover, "--max-executions", &most],
            ];
            let report = folder.powerfail(&arguments.concat()).report();
            let some = exploration(&report);
            assert!((1..=max).contains(&some.executions), "{max}: {some:?}");
            assert!(some.sampled + some.not_tried > 0, "{max}: {some:?}");
            let note = format!("--max-executions {max} is reached");
            let is_said = report.notes.iter().any(|it| it.contains(&note));
            assert_eq!(is_said, some.executions == max, "{:?}", report.notes);
            let run = some.exhaustive + some.sampled - some.unchanged;
            assert_eq!(report.totals.failure_points_run, run);
            assert_eq!(report.totals.failure_points, some.failure_points);
        }
    }
}

/// The runtime cannot be loaded into a script: its crash states are tried one by one, and a note says so.
#[test]
fn what_cannot_be_explored_is_sampled() {
    let folder = folder(1);
    folder.write("recover.sh", "#!/bin/sh\nexec ./bug \"$1\" recover\n");
    folder
        .command("chmod")
        .args(["+x", "recover.sh"])
        .status()
        .expect("chmod");
    let mut arguments = vec![
        "crash",
        "run.trace",
        "--strategy",
        "lazy",
        "--format",
        "json",
    ];
    arguments.extend(["--recover", "./recover.sh {pool}"]);
    let run = folder.powerfail(&arguments).ends_with(FINDINGS);
    assert!(!run.report().findings.is_empty());
}

#[test]
fn the_text_says_how_far_it_went() {
    let folder = folder(1);
    let arguments = [
        "crash",
        "run.trace",
        "--recover",
        RECOVER,
        "--strategy",
        "lazy",
    ];
    let run = folder.powerfail(&arguments).ends_with(FINDINGS);
    for words in [
        "explored exhaustively",
        "saved) with",
        "crash states",
        "(taken)",
    ] {
        assert!(run.stdout.contains(words), "no `{words}` in {}", run.stdout);
    }
}
