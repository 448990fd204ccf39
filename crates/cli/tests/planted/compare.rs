//! Compares findings with expectations.

use std::path::Path;

use powerfail_finding::{Finding, Report, Role, SourcePlace};

use crate::program::{Expectation, Kind, Program};
use crate::run::Attempt;
use crate::truth::untruths;

/// Exit codes of powerfail.
const CLEAN: i32 = 0;
const FINDINGS: i32 = 1;
const SETUP: i32 = 2;
const UNCHECKED: i32 = 5;

/// All differences between the output of `check` and the expectations, as sentences.
pub(crate) fn complaints(program: &Program, attempt: &Attempt) -> Vec<String> {
    let expected_code = match program.kind {
        Kind::Fail if program.is_unchecked() => UNCHECKED,
        Kind::Fail if program.is_refused() => SETUP,
        Kind::Fail => FINDINGS,
        Kind::Pass => CLEAN,
    };
    let mut complaints = Vec::new();
    if attempt.code != Some(expected_code) {
        complaints.push(format!(
            "exit code {:?} instead of {expected_code}: {}",
            attempt.code, attempt.stderr
        ));
    }
    if program.is_refused() {
        if attempt.stderr.trim().is_empty() {
            complaints.push("refused without a reason".to_owned());
        }
        return complaints;
    }
    match serde_json::from_str::<Report>(&attempt.stdout) {
        Ok(report) => {
            complaints.extend(compare(program, &report.findings));
            complaints.extend(untruths(&report.findings));
        }
        Err(error) => complaints.push(format!("no report: {error}: {}", attempt.stdout)),
    }
    complaints
}

fn compare(program: &Program, findings: &[Finding]) -> Vec<String> {
    let missed = program
        .expectations
        .iter()
        .filter(|expectation| {
            !findings
                .iter()
                .any(|found| is_at(program, expectation, found))
        })
        .map(|expectation| {
            let Expectation {
                code,
                severity,
                lines,
                ..
            } = expectation;
            format!("{code} ({severity:?}) is not found at {lines:?}")
        });
    let surplus = findings
        .iter()
        .filter(|found| !is_allowed(program, found))
        .map(|found| {
            let place = line_in(program, found).map_or_else(
                || format!("at another place: {:?}", found.places.first()),
                |line| format!("at line {line}"),
            );
            let Finding {
                code,
                severity,
                message,
                ..
            } = found;
            format!("{code} ({severity:?}) is found {place}: {message}")
        });
    let unsaid = program.directive("says").filter(|words| {
        let mut findings = findings.iter();
        !findings.any(|found| found.message.contains(words))
    });
    let unsaid = unsaid.map(|words| format!("no finding says `{words}`"));
    let undone = program.directive("does").filter(|outcomes| {
        let mut findings = findings.iter();
        !findings.any(|found| does(found, outcomes))
    });
    let undone = undone.map(|outcomes| format!("no finding lists exactly `{outcomes}`"));
    missed.chain(surplus).chain(unsaid).chain(undone).collect()
}

/// Whether a finding lists exactly these outcomes, which are separated by commas.
fn does(finding: &Finding, outcomes: &str) -> bool {
    let shown = finding.evidence.iter().map(|it| &it.recovery);
    let listed: Vec<String> = shown
        .chain(&finding.consequences)
        .map(ToString::to_string)
        .collect();
    let wanted: Vec<&str> = outcomes.split(", ").collect();
    let is_listed = |wanted: &&str| listed.iter().any(|it| it.contains(wanted));
    wanted.len() == listed.len() && wanted.iter().all(is_listed)
}

/// The line of a finding's first place, if that is in the program itself.
fn line_in(program: &Program, finding: &Finding) -> Option<u32> {
    line_of(program, finding.places.first()?)
}

fn line_of(program: &Program, place: &SourcePlace) -> Option<u32> {
    let file = Path::new(place.file.as_ref()?);
    file.ends_with(program.name()).then_some(place.line)?
}

/// A finding is located at its first place. If the program marks the lost store, that must be it.
pub(crate) fn is_at(program: &Program, expectation: &Expectation, finding: &Finding) -> bool {
    let first = finding.places.first();
    let place = first.filter(|it| !expectation.is_lost || it.role == Role::Store);
    finding.code == expectation.code
        && finding.severity == expectation.severity
        && place
            .and_then(|place| line_of(program, place))
            .is_some_and(|line| expectation.lines.contains(&line))
}

fn is_allowed(program: &Program, finding: &Finding) -> bool {
    let at = line_in(program, finding).map(|line| (finding.code, line));
    program
        .expectations
        .iter()
        .any(|expectation| is_at(program, expectation, finding))
        || at.is_some_and(|at| program.allowances.contains(&at))
}

/// The comparison itself, on made-up reports for an existing program.
mod tests {
    use powerfail_finding::Report;
    use serde_json::json;

    use super::{CLEAN, FINDINGS, complaints};
    use crate::program::{self, Kind, Program};
    use crate::run::Attempt;

    fn program(kind: Kind) -> Program {
        let mut programs = program::all(kind).into_iter();
        let found = programs.find(|program| program.name() == "durability/unflushed_time.c");
        found.expect("the program is there")
    }

    /// The output of `check` if it found these codes at these lines of the program.
    fn attempt(program: &Program, code: i32, found: &[(&str, u32)]) -> Attempt {
        attempt_with(program, code, found, "error")
    }

    /// The same, with a severity for the findings.
    fn attempt_with(
        program: &Program,
        code: i32,
        found: &[(&str, u32)],
        severity: &str,
    ) -> Attempt {
        let findings: Vec<_> = found
            .iter()
            .map(|(code, line)| {
                json!({
                    "id": "1", "code": code, "class": "durability", "severity": severity,
                    "message": "made up", "count": 1,
                    "places": [{
                        "role": "store", "file": program.source, "line": line, "function": "main"
                    }],
                })
            })
            .collect();
        let report = json!({
            "schema": 1, "powerfail": "0", "command": ["a"], "findings": findings,
            "totals": serde_json::to_value(powerfail_finding::Totals::default()).expect("JSON"),
        });
        let report: Report = serde_json::from_value(report).expect("a report");
        Attempt {
            code: Some(code),
            stdout: serde_json::to_string(&report).expect("JSON"),
            stderr: String::new(),
            cpu_ms: None,
        }
    }

    fn planted_line(program: &Program) -> u32 {
        let lines = &program.expectations[0].lines;
        *lines.first().expect("a line")
    }

    #[test]
    fn the_planted_finding_is_enough() {
        let program = program(Kind::Fail);
        let found = [("PF0101", planted_line(&program))];
        let attempt = attempt(&program, FINDINGS, &found);
        assert_eq!(complaints(&program, &attempt), Vec::<String>::new());
    }

    #[test]
    fn another_line_is_both_missed_and_surplus() {
        let program = program(Kind::Fail);
        let found = [("PF0101", planted_line(&program) + 1)];
        let attempt = attempt(&program, FINDINGS, &found);
        assert_eq!(complaints(&program, &attempt).len(), 2);
    }

    #[test]
    fn another_code_beside_the_planted_one_is_surplus() {
        let program = program(Kind::Fail);
        let line = planted_line(&program);
        let attempt = attempt(&program, FINDINGS, &[("PF0101", line), ("PF0504", line)]);
        assert_eq!(complaints(&program, &attempt).len(), 1);
    }

    #[test]
    fn nothing_found_is_missed_and_the_wrong_exit_code() {
        let program = program(Kind::Fail);
        let attempt = attempt(&program, CLEAN, &[]);
        assert_eq!(complaints(&program, &attempt).len(), 2);
    }

    #[test]
    fn a_lost_store_is_asked_for_wherever_its_survivor_is() {
        let mut programs = program::all(Kind::Fail).into_iter();
        let found = programs.find(|program| program.expectations.iter().any(|it| it.is_lost));
        let program = found.expect("a program with a lost store");
        let expectation = &program.expectations[0];
        let (code, line) = (expectation.code.to_string(), planted_line(&program));
        let lost = attempt(&program, FINDINGS, &[(&code, line)]);
        let survivor = r#""role":"survivor""#;
        let with_survivor = format!(r#"}},{{{survivor},"line":1,"file":"elsewhere.c"}}]"#);
        let both = Attempt {
            stdout: lost.stdout.replacen("}]", &with_survivor, 1),
            ..lost
        };
        assert!(both.stdout.contains(survivor));
        assert_eq!(complaints(&program, &both), Vec::<String>::new());
        let other = Attempt {
            stdout: both.stdout.replacen(r#""role":"store""#, survivor, 1),
            ..both
        };
        assert_eq!(complaints(&program, &other).len(), 2);
    }

    #[test]
    fn a_warning_is_not_the_planted_error() {
        let program = program(Kind::Fail);
        let found = [("PF0101", planted_line(&program))];
        let attempt = attempt_with(&program, FINDINGS, &found, "warning");
        assert_eq!(complaints(&program, &attempt).len(), 2);
    }

    #[test]
    fn a_twin_may_ask_for_a_warning() {
        let mut programs = program::all(Kind::Pass).into_iter();
        let found = programs.find(|program| program.expectations.len() == 1);
        let program = found.expect("a twin with a warning");
        let expectation = &program.expectations[0];
        let (code, line) = (expectation.code.to_string(), planted_line(&program));
        let warned = attempt_with(&program, CLEAN, &[(&code, line)], "warning");
        assert_eq!(complaints(&program, &warned), Vec::<String>::new());
        let confirmed = attempt(&program, CLEAN, &[(&code, line)]);
        assert_eq!(complaints(&program, &confirmed).len(), 2);
        let silent = attempt(&program, CLEAN, &[]);
        assert_eq!(complaints(&program, &silent).len(), 1);
    }

    #[test]
    fn anything_in_a_twin_is_surplus() {
        let program = program(Kind::Pass);
        let silent = attempt(&program, CLEAN, &[]);
        assert_eq!(complaints(&program, &silent), Vec::<String>::new());
        let loud = attempt(&program, FINDINGS, &[("PF0501", 3)]);
        assert_eq!(complaints(&program, &loud).len(), 2);
    }
}
