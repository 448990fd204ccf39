//! The code quality report of GitLab: a list of issues, each with a place and a fingerprint.

use std::io::{self, Write};

use powerfail_finding::{Finding, Report, Severity};
use serde_json::{Value, json};

use super::location;
use crate::findings::{TextOptions, shown};

/// One issue for each finding. GitLab needs a place: without a source line it is the program of the workload.
pub fn gitlab(out: &mut dyn Write, report: &Report, options: &TextOptions<'_>) -> io::Result<()> {
    let issues: Vec<Value> = shown(report, options)
        .map(|finding| issue(finding, report, options))
        .collect();
    serde_json::to_writer_pretty(&mut *out, &issues)?;
    writeln!(out)
}

fn issue(finding: &Finding, report: &Report, options: &TextOptions<'_>) -> Value {
    let severity = match finding.severity {
        Severity::Error => "critical",
        Severity::Performance => "minor",
        Severity::Warning => "info",
    };
    let program = report.command.first().map_or("powerfail", String::as_str);
    let found = location::of_finding(finding, options.base);
    let (path, line) = match &found {
        Some(location) => (location.path.as_str(), location.line),
        None => (program, 1),
    };
    json!({
        "description": format!("{} [{}-{}]", finding.message, finding.code, finding.id),
        "check_name": finding.code.as_str(),
        "fingerprint": format!("{}-{}", finding.code, finding.id),
        "severity": severity,
        "categories": [match finding.severity {
            Severity::Performance => "Performance",
            Severity::Error | Severity::Warning => "Bug Risk",
        }],
        "location": {"path": path, "lines": {"begin": line}},
    })
}
