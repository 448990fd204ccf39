//! What `cargo xtask planted` counts: the findings of each program with a planted bug, and the processor time of its check
//! and of that of its twin.
//!
//! With `POWERFAIL_PLANTED` in the environment, each program leaves a file in that directory.

use std::fs;
use std::path::PathBuf;

use powerfail_finding::{Finding, Report};
use serde_json::{Value, json};

use crate::compare::is_at;
use crate::program::{Kind, Program};
use crate::run::Attempt;

/// Where the figures are kept, if they are wanted.
fn folder() -> Option<PathBuf> {
    std::env::var_os("POWERFAIL_PLANTED").map(PathBuf::from)
}

/// Whether figures are wanted.
pub(crate) fn are_wanted() -> bool {
    folder().is_some()
}

/// Keeps the figures of a program, if they are wanted.
pub(crate) fn keep(program: &Program, attempt: &Attempt) {
    let Some(folder) = folder() else { return };
    if program.is_refused() {
        return;
    }
    let (figures, extension) = match program.kind {
        Kind::Fail => (figures(program, attempt), "json"),
        Kind::Pass => (twin(program, attempt), "twin.json"),
    };
    let name = program.name().replace('/', "-");
    let path = folder.join(name).with_added_extension(extension);
    fs::write(path, figures.to_string()).expect("the folder is writable");
}

fn twin(program: &Program, attempt: &Attempt) -> Value {
    json!({ "twin": program.name(), "cpu_ms": attempt.cpu_ms })
}

fn figures(program: &Program, attempt: &Attempt) -> Value {
    let report: Report = serde_json::from_str(&attempt.stdout).expect("a report");
    // What newer fields say is read from the text.
    let text: Value = serde_json::from_str(&attempt.stdout).expect("a report");
    let is_documented = |finding: &Finding| {
        let mut expected = program.expectations.iter();
        expected.any(|it| it.is_unconfirmed() && is_at(program, it, finding))
    };
    let findings = report.findings.iter().enumerate();
    let findings = findings.filter(|(_, finding)| !is_documented(finding));
    let findings: Vec<Value> = findings
        .map(|(number, finding)| {
            let mut planted = { program.expectations.iter() }.filter(|it| !it.is_unconfirmed());
            json!({
                "code": finding.code,
                "is_first": planted.any(|it| is_at(program, it, finding)),
                "is_advised": finding.suggestion.is_some(),
                "is_verified": text["findings"][number]["fix"]["verified"] == true,
            })
        })
        .collect();
    json!({
        "program": program.name(),
        "bugs": program.bugs(),
        "findings": findings,
        "cpu_ms": attempt.cpu_ms,
    })
}
