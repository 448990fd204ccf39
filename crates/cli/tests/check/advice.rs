//! What a finding advises does not break the program: what is needed in another execution of the same line stays.

use std::fs;
use std::path::Path;

use powerfail_finding::Finding;

use crate::common::{FINDINGS, Folder, Run};

/// Lints a recording of one part of `advice.c`.
fn lint(what: &str) -> Run {
    let folder = Folder::new();
    folder.build_own("bug", "advice.c", &["-O2"]);
    let record = ["record", "-o", "run.trace", "--", "./bug", "{pool}", what];
    folder.powerfail(&record).ends_with(crate::common::CLEAN);
    folder
        .powerfail(&["lint", "run.trace", "--format", "json"])
        .ends_with(FINDINGS)
}

/// The line of `advice.c` with a comment.
fn line(comment: &str) -> u32 {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/check/programs");
    let text = fs::read_to_string(folder.join("advice.c")).expect("a program");
    let comment = format!("/* {comment} */");
    let line = text.lines().position(|line| line.contains(&comment));
    line.expect("a line with the comment") as u32 + 1
}

fn advice(finding: &Finding) -> &str {
    finding.suggestion.as_deref().unwrap_or_default()
}

#[test]
fn a_fence_that_every_second_round_needs_stays() {
    let run = lint("rounds");
    assert_eq!(run.codes(), ["PF0502"]);
    let finding = run.finding("PF0502");
    assert_eq!(finding.places[0].line, Some(line("rounds")));
    assert_eq!(
        finding.message,
        "the fence in main has nothing to wait for, in 2 of 4 executions"
    );
    let at = format!("fence at advice.c:{} only where", line("rounds"));
    assert!(advice(&finding).starts_with(&at), "{finding:?}");
}

#[test]
fn a_function_that_is_inlined_is_not_useless_for_its_other_callers() {
    let run = lint("inlined");
    assert_eq!(run.codes(), ["PF0501"]);
    let finding = run.finding("PF0501");
    assert_eq!(finding.places[0].line, Some(line("inlined")));
    let at = format!("skip the flush in the call at advice.c:{}", line("inlined"));
    assert_eq!(advice(&finding), at);
}

#[test]
fn the_fence_of_a_useless_flush_stays_if_it_is_needed() {
    let run = lint("fence");
    assert_eq!(run.codes(), ["PF0501"]);
    let finding = run.finding("PF0501");
    assert_eq!(finding.places[0].line, Some(line("fence")));
    assert!(advice(&finding).contains("keep its fence"), "{finding:?}");
}

#[test]
fn no_two_findings_want_opposite_changes_of_a_line() {
    let run = lint("macro");
    let at_macro = |finding: &&Finding| finding.places[0].line == Some(line("macro"));
    let findings = run.report().findings;
    let codes: Vec<_> = findings
        .iter()
        .filter(at_macro)
        .map(|it| it.code.as_str())
        .collect();
    assert_eq!(codes, ["PF0101"], "{findings:?}");
}
