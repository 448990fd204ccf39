//! The same trace and the same seed give byte-identical reports.

use crate::common::{FINDINGS, Folder, RECOVER};

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
    "7",
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
