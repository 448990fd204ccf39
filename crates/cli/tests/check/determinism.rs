//! The same trace, and the same command, give byte-identical reports with the same seed.

use crate::common::{FINDINGS, Folder, RECOVER, Run};

/// How often each command is repeated.
const RUNS: usize = 3;

/// Every stack has more failure points than are tried, so the choice is random.
const CRASH: [&str; 10] = [
    "crash",
    "run.trace",
    "--recover",
    RECOVER,
    "--format",
    "json",
    "--failure-points",
    "all",
    "--seed",
    "4",
];

fn crash(folder: &Folder, more: &[&str]) -> String {
    let mut arguments = CRASH.to_vec();
    arguments.extend(more);
    folder.powerfail(&arguments).ends_with(FINDINGS).stdout
}

#[test]
fn crashes_of_one_trace() {
    let folder = Folder::new();
    folder.build_own("bug", "many.c", &[]);
    folder.record();
    let first = crash(&folder, &[]);
    assert!(first.contains("PF0301"), "{first}");
    assert_eq!(first, crash(&folder, &[]));
    for jobs in ["1", "4"] {
        assert_eq!(first, crash(&folder, &["--jobs", jobs]), "--jobs {jobs}");
    }
}

#[test]
fn lint_of_one_trace() {
    let folder = Folder::new();
    folder.build_planted("bug", "fail/redundant-flush/each_element.c");
    folder.record();
    let lint = || {
        let run = folder.powerfail(&["lint", "run.trace", "--format", "json"]);
        run.ends_with(FINDINGS)
    };
    let first = lint();
    assert_eq!(first.codes(), ["PF0501"]);
    assert_eq!(first.stdout, lint().stdout);
}

/// Checks `./bug` several times, and compares the reports byte for byte.
fn checks_are_the_same(folder: &Folder, recover: &str, options: &[&str]) -> Run {
    let mut arguments = vec!["check", "--format", "json", "--recover", recover];
    arguments.extend(options);
    arguments.extend(["--", "./bug", "{pool}"]);
    let first = folder.powerfail(&arguments);
    for _ in 1..RUNS {
        let again = folder.powerfail(&arguments);
        assert_eq!((first.code, &first.stdout), (again.code, &again.stdout));
    }
    assert!(
        !first.stdout.contains("powerfail-fresh"),
        "{}",
        first.stdout
    );
    first
}

#[test]
fn checks_of_one_program() {
    let folder = Folder::new();
    folder.build_planted("bug", "fail/atomicity/count_before_entry.c");
    let run = checks_are_the_same(&folder, RECOVER, &["--seed", "3"]).ends_with(FINDINGS);
    assert!(run.stdout.contains(r#""pool": "{pool}""#), "{}", run.stdout);
}

#[test]
fn checks_whose_recovery_names_its_pool() {
    let folder = Folder::new();
    folder.build_planted("bug", "fail/atomicity/count_before_entry.c");
    let recover =
        "sh -c './bug {pool} recover || { echo {pool} is bad, not $(dirname {pool})/x; exit 1; }'";
    let run = checks_are_the_same(&folder, recover, &["--no-lazy"]).ends_with(FINDINGS);
    let words = "{pool} is bad, not {pool}/../x";
    assert!(run.stdout.contains(words), "{}", run.stdout);
}

#[test]
fn checks_of_threads_in_orders_that_are_recorded() {
    let folder = Folder::new();
    folder.build_planted("bug", "fail/ordering/copy_of_unflushed_value.c");
    let options = ["--no-lazy", "--schedules", "6", "--seed", "4"];
    let run = checks_are_the_same(&folder, RECOVER, &options);
    assert!(run.report().totals.distinct_schedules > 1, "{}", run.stdout);
}
