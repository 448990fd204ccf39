//! `JUnit` XML: each finding is a test that fails, so that a CI system counts and shows it.

use std::io::{self, Write};

use powerfail_finding::{Finding, Report, Severity};
use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite};

use super::location;
use crate::findings::{TextOptions, coverage, finding, not_checked_sentence, shown};

/// The first test is whether anything was checked; it also says what. Then comes one test for each finding: a warning
/// passes, unless warnings count as bugs.
pub fn junit(
    out: &mut dyn Write,
    report: &Report,
    options: &TextOptions<'_>,
    denies_warnings: bool,
) -> io::Result<()> {
    let mut suite = TestSuite::new(report.command.join(" "));
    suite.add_test_case(checked(report));
    for finding in shown(report, options) {
        let is_bug = denies_warnings || finding.severity != Severity::Warning;
        suite.add_test_case(test_case(finding, options, is_bug)?);
    }
    let mut all = quick_junit::Report::new("powerfail");
    all.add_test_suite(suite);
    all.serialize(out).map_err(io::Error::other)
}

/// Whether anything was checked.
fn checked(report: &Report) -> TestCase {
    let status = match report.totals.not_checked {
        None => TestCaseStatus::success(),
        Some(reason) => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
            status.set_type("not-checked");
            status.set_message(not_checked_sentence(reason));
            status
        }
    };
    let mut case = TestCase::new("power failures were tried", status);
    case.set_classname("powerfail");
    let mut lines = vec![coverage(&report.totals)];
    lines.extend(report.notes.iter().map(|note| format!("note: {note}")));
    case.set_system_out(lines.join("\n"));
    case
}

fn test_case(subject: &Finding, options: &TextOptions<'_>, is_bug: bool) -> io::Result<TestCase> {
    let mut text = Vec::new();
    finding(&mut text, subject, options)?;
    let text = String::from_utf8_lossy(&text);
    let status = if is_bug {
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
        status.set_type(subject.code.as_str());
        status.set_message(subject.message.as_str());
        status.set_description(&*text);
        status
    } else {
        TestCaseStatus::success()
    };
    let name = format!("{}-{}: {}", subject.code, subject.id, subject.message);
    let mut case = TestCase::new(name, status);
    case.set_classname(format!("powerfail.{}", subject.class));
    if !is_bug {
        case.set_system_out(&*text);
    }
    if let Some(location) = location::of_finding(subject, options.base) {
        case.extra
            .insert("file".into(), location.path.as_str().into());
        case.extra
            .insert("line".into(), location.line.to_string().into());
    }
    Ok(case)
}
