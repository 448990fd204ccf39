//! One bug is one finding that lists everything that recovery does because of it, in every strategy.

use std::fs;
use std::path::Path;

use powerfail_finding::{Finding, Severity};

use crate::common::{FINDINGS, Folder};

/// What recovery does, depending on how far the program went on.
const OUTCOMES: [&str; 4] = ["SIGABRT", "SIGSEGV", "status 1", "status 2"];

/// The line of the program with this comment.
fn line_with(comment: &str) -> u32 {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/check/programs/outcomes.c");
    let text = fs::read_to_string(source).expect("a source");
    let line = text.lines().position(|line| line.ends_with(comment));
    line.expect("the comment") as u32 + 1
}

/// The only error of a run.
fn error_of(folder: &Folder, command: &[&str], mode: &str) -> Finding {
    let recover = format!("./bug {{pool}} {mode}");
    let mut arguments = command.to_vec();
    arguments.extend(["--format", "json", "--jobs", "2", "--recover", &recover]);
    let run = folder.powerfail(&arguments).ends_with(FINDINGS);
    let findings = run.report().findings.into_iter();
    let mut errors: Vec<Finding> = findings
        .filter(|finding| finding.severity == Severity::Error)
        .collect();
    assert_eq!(errors.len(), 1, "{command:?} {mode}: {}", run.stdout);
    errors.remove(0)
}

fn outcomes(finding: &Finding) -> Vec<String> {
    let shown = finding.evidence.iter().map(|it| &it.recovery);
    let all = shown.chain(&finding.consequences);
    let mut all: Vec<String> = all.map(ToString::to_string).collect();
    all.sort_by_key(|outcome| OUTCOMES.iter().position(|it| outcome.contains(it)));
    all
}

fn assert_lists_all(finding: &Finding, command: &[&str]) {
    let listed = outcomes(finding);
    let is_all = listed.len() == OUTCOMES.len()
        && listed
            .iter()
            .zip(OUTCOMES)
            .all(|(it, name)| it.contains(name));
    assert!(is_all, "{command:?}: {listed:?}");
}

#[test]
fn every_strategy_lists_all_outcomes_of_one_lost_store() {
    let folder = Folder::new();
    folder.build_own("bug", "outcomes.c", &[]);
    folder.record();
    let crash = |strategy| ["crash", "run.trace", "--strategy", strategy];
    let commands: [&[&str]; 3] = [&crash("eager"), &crash("lazy"), &["races", "run.trace"]];
    for command in commands {
        let finding = error_of(&folder, command, "loss");
        let first = finding.places.first().and_then(|place| place.line);
        assert_eq!(
            first,
            Some(line_with("/* lost */")),
            "{command:?}: {finding:?}"
        );
        assert_lists_all(&finding, command);
    }
    let strategies = ["prefix", "eager", "lazy"].map(crash);
    for command in &strategies {
        let finding = error_of(&folder, command, "order");
        let mut places = finding.places.iter();
        let early = Some(line_with("/* too early */"));
        assert!(
            places.any(|place| place.line == early),
            "{command:?}: {finding:?}"
        );
        assert_lists_all(&finding, command);
    }
}
