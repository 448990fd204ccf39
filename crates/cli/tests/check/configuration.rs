//! `powerfail.toml`: its values are used, flags override them, and mistakes are reported.

use crate::common::{CLEAN, FINDINGS, Folder, NOT_CHECKED, SETUP};

/// The constructor fails only with `--fill`, and has no finding of another kind.
fn folder_with_constructor() -> Folder {
    let folder = Folder::new();
    folder.build_own("bug", "constructor.c", &[]);
    folder
}

/// `check` with only these options.
fn check(folder: &Folder, options: &[&str]) -> crate::common::Run {
    let mut arguments = vec!["check", "--format", "json"];
    arguments.extend(options);
    folder.powerfail(&arguments)
}

const COMMAND: &str = "[check]\ncommand = [\"./bug\", \"{pool}\"]\n";

#[test]
fn values_are_used_and_flags_win() {
    let folder = folder_with_constructor();
    let recover = "recover = \"./bug {pool} recover\"\n";
    folder.write(
        "powerfail.toml",
        &format!("{COMMAND}{recover}fill = \"0xff\"\nout = \"elsewhere\"\n"),
    );
    let run = check(&folder, &[]).ends_with(FINDINGS);
    assert_eq!(run.codes(), ["PF0301"]);
    assert!(folder.path("elsewhere/report.json").exists());
    assert!(!folder.path("powerfail-out").exists());
    check(&folder, &["--fill", "0"]).ends_with(CLEAN);
    check(&folder, &["--recover", "/bin/true"]).ends_with(NOT_CHECKED);
    check(&folder, &["--out", "here"]).ends_with(FINDINGS);
    assert!(folder.path("here/report.json").exists());
}

#[test]
fn what_else_decides_the_result() {
    let folder = Folder::new();
    folder.build_planted("bug", "fail/atomicity/between_plain_stores.c");
    let recover = "recover = \"./bug {pool} recover\"\n";
    let write = |more: &str| {
        // A loss between two stores is found without a failure point there.
        let text = format!("{COMMAND}{recover}lazy = false\n{more}\n");
        folder.write("powerfail.toml", &text);
    };
    write("");
    check(&folder, &[]).ends_with(CLEAN);
    write("failure-points = \"store\"");
    check(&folder, &[]).ends_with(FINDINGS);
    check(&folder, &["--failure-points", "flush"]).ends_with(CLEAN);
    // A recovery whose failures all count as success cannot fail.
    write("failure-points = \"store\"\nok-exit = [1]");
    check(&folder, &[]).ends_with(NOT_CHECKED);
    check(&folder, &["--ok-exit", "2"]).ends_with(FINDINGS);
    write("failure-points = \"store\"\nonly = [\"durability\"]");
    check(&folder, &[]).ends_with(CLEAN);
    check(&folder, &["--only", "atomicity"]).ends_with(FINDINGS);
    write("failure-points = \"store\"\nper-stack = 1");
    let one = check(&folder, &[]).report().totals.failure_points_run;
    write("failure-points = \"store\"\nper-stack = 0");
    let all = check(&folder, &[]).report().totals;
    assert!(one < all.failure_points_run, "{one}, {all:?}");
    assert_eq!(all.failure_points_run, all.failure_points);
    write("failure-points = \"sometimes\"");
    check(&folder, &[]).is_refused_with(SETUP, &["sometimes"]);
}

#[test]
fn a_key_that_is_never_read() {
    let folder = folder_with_constructor();
    folder.write("powerfail.toml", &format!("{COMMAND}recovr = \"x\"\n"));
    let words = ["powerfail.toml", "line 3", "recovr", "`recover`"];
    check(&folder, &[]).is_refused_with(SETUP, &words);
    folder.write("powerfail.toml", "[chek]\n");
    check(&folder, &[]).is_refused_with(SETUP, &["line 1", "chek", "`check`"]);
    folder.write("powerfail.toml", "[check\n");
    check(&folder, &[]).is_refused_with(SETUP, &["powerfail.toml", "line 1"]);
}

#[test]
fn the_same_file_is_for_crash_and_lint() {
    let folder = folder_with_constructor();
    folder.record();
    folder.write(
        "powerfail.toml",
        "[check]\nrecover = \"./bug {pool} recover\"\nfill = \"0xff\"\n",
    );
    folder
        .powerfail(&["crash", "run.trace"])
        .ends_with(FINDINGS);
    folder.write("powerfail.toml", "[check]\nfil = \"0xff\"\n");
    for command in ["crash", "lint"] {
        let run = folder.powerfail(&[command, "run.trace"]);
        run.is_refused_with(SETUP, &["powerfail.toml", "line 2", "`fill`"]);
    }
}

#[test]
fn suppressions_that_match_and_that_do_not() {
    let folder = Folder::new();
    folder.build_planted("bug", "fail/redundant-flush/twice.c");
    folder.write(
        "powerfail.toml",
        &format!(
            "{COMMAND}
[[suppress]]
code = \"PF0501\"
file = \"twice.c\"
reason = \"it is on purpose\"

[[suppress]]
code = \"PF0101\"
function = \"cache_*\"
reason = \"a cache is rebuilt\"
"
        ),
    );
    let run = check(&folder, &[]).ends_with(CLEAN);
    let report = run.report();
    assert!(report.findings.is_empty(), "{}", run.stdout);
    assert_eq!(report.totals.suppressed, 1);
    let notes = report.notes.iter();
    let unmatched: Vec<_> = notes
        .filter(|it| it.contains("matches no finding"))
        .collect();
    assert_eq!(unmatched.len(), 1, "{:?}", report.notes);
    for word in ["PF0101", "cache_*", "line 9"] {
        assert!(unmatched[0].contains(word), "{:?}", report.notes);
    }
    let text = folder.powerfail(&["check"]).ends_with(CLEAN);
    assert!(
        text.stdout.contains("matches no finding"),
        "{}",
        text.stdout
    );
    let lint = ["lint", "powerfail-out/run.trace", "--format", "json"];
    let lint = folder.powerfail(&lint).ends_with(CLEAN);
    assert_eq!(lint.report().totals.suppressed, 1);
}

#[test]
fn a_suppression_without_a_reason() {
    let folder = folder_with_constructor();
    let entry = "[[suppress]]\ncode = \"PF0501\"\n";
    folder.write("powerfail.toml", &format!("{COMMAND}{entry}"));
    check(&folder, &[]).is_refused_with(SETUP, &["line 3", "reason"]);
}
