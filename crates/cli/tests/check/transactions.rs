//! Stores that a transaction did not add: the effect of a crash before the commit.

use powerfail_finding::{RecoveryOutcome, Role, Severity};

use crate::common::{CLEAN, FINDINGS, Folder};

const CODE: &str = "PF0304";

/// The first crash shows it. Second failures in recovery by PMDK take as long as they may; one test tries them.
const ONE_FAILURE: [&str; 2] = ["--depth", "1"];

fn folder(flags: &[&str]) -> Folder {
    let folder = Folder::new();
    folder.build_own("bug", "not_added.c", flags);
    folder
}

#[test]
fn a_value_that_survives_rollback_is_an_error() {
    let folder = folder(&[]);
    let run = folder.check(&ONE_FAILURE).ends_with(FINDINGS);
    let finding = run.finding(CODE);
    assert_eq!(finding.severity, Severity::Error);
    assert!(
        finding.message.contains("survives rollback"),
        "{}",
        finding.message
    );
    assert_eq!(finding.count, 2);
    let roles: Vec<Role> = finding.places.iter().map(|place| place.role).collect();
    assert_eq!(roles, [Role::Store, Role::Transaction]);
    // The second iteration shows it.
    let evidence = finding.evidence.expect("a crash has shown it");
    let RecoveryOutcome::Content { output } = &evidence.recovery else {
        panic!("{evidence:?}");
    };
    assert_eq!(output, "0100000000000000");
    let replay = folder.powerfail(&["replay", &finding.id]);
    let replay = replay.ends_with(FINDINGS);
    assert!(
        replay.stdout.contains("the same again"),
        "{}",
        replay.stdout
    );
}

#[test]
fn a_value_that_recovery_puts_right_is_a_warning() {
    let folder = folder(&["-DREPAIRS"]);
    let run = folder.check(&ONE_FAILURE).ends_with(CLEAN);
    let finding = run.finding(CODE);
    assert_eq!(finding.severity, Severity::Warning);
    assert!(
        finding.message.contains("puts it right"),
        "{}",
        finding.message
    );
    assert_eq!(finding.evidence, None);
}

#[test]
fn a_recovery_that_fails_because_of_it_is_an_error() {
    let folder = folder(&["-DREFUSES"]);
    let run = folder.check(&ONE_FAILURE).ends_with(FINDINGS);
    let finding = run.finding(CODE);
    assert_eq!(finding.severity, Severity::Error);
    let evidence = finding.evidence.expect("a crash has shown it");
    assert!(
        matches!(evidence.recovery, RecoveryOutcome::Exit { status: 1, .. }),
        "{evidence:?}"
    );
}

/// Of two stores that are not added, each finding shows what recovery does because of its own.
#[test]
fn two_stores_fail_in_their_own_ways() {
    let folder = Folder::new();
    folder.build_planted("bug", "fail/transactions/split_with_two_not_added.c");
    let run = folder.check(&ONE_FAILURE).ends_with(FINDINGS);
    let findings = run.report().findings.into_iter();
    let statuses: Vec<_> = { findings.filter(|it| it.code.as_str() == CODE) }
        .map(|it| it.evidence.expect("a crash has shown it").recovery)
        .map(|it| match it {
            RecoveryOutcome::Exit { status, .. } => status,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(statuses, [1, 2]);
}

#[test]
fn without_a_recovery_it_is_a_warning() {
    let folder = folder(&[]);
    folder.record();
    let run = folder.powerfail(&["lint", "--format", "json", "run.trace"]);
    let finding = run.ends_with(CLEAN).finding(CODE);
    assert_eq!(finding.severity, Severity::Warning);
    let run = folder.powerfail(&["lint", "run.trace"]).ends_with(CLEAN);
    assert!(run.stdout.contains(CODE), "{}", run.stdout);
}

/// With `--no-trust`, the library's own flushes are reported, but not that it stores without adding.
#[test]
fn a_library_that_is_not_trusted_adds_nothing_to_its_own_transactions() {
    let folder = Folder::new();
    folder.build_planted("bug", "pass/transactions/missing_add.c");
    let run = folder.check(&["--no-trust", "libpmemobj", "--no-lazy"]);
    assert!(!run.codes().contains(&CODE), "{}", run.stdout);
}
