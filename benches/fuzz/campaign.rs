//! A campaign of `powerfail fuzz`, and its results.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use powerfail_benches::powerfail;
use powerfail_finding::{Finding, Report};
use powerfail_fuzz::CaseRecord;

use crate::shell::{JOBS, Shell};

/// A finding, and the test case that shows it.
pub(crate) struct Shown {
    pub(crate) finding: Finding,
    pub(crate) case: CaseRecord,
    pub(crate) input: String,
}

/// Runs a campaign, and returns its output directory.
pub(crate) fn run(shell: &Shell, name: &str, time: Duration, flags: &[&str]) -> PathBuf {
    let out = shell.folder.join(name);
    let mut fuzz = Command::new(powerfail());
    fuzz.arg("fuzz").arg("--seeds").arg(&shell.seeds);
    fuzz.arg("--out").arg(&out);
    fuzz.args(["--jobs", &JOBS.to_string()]);
    fuzz.args(["--time", &format!("{}s", time.as_secs())]);
    fuzz.args(flags).arg("--").arg(&shell.plain).arg("{pool}");
    let status = fuzz.stdin(Stdio::null()).stdout(Stdio::null()).status();
    let code = status.expect("powerfail can be run").code();
    // Findings are the expected result.
    assert!(
        matches!(code, Some(0 | 1)),
        "the campaign ended with {code:?}"
    );
    out
}

/// All findings of a campaign, in order of discovery.
pub(crate) fn findings(out: &Path) -> Vec<Shown> {
    let mut shown = Vec::new();
    for entry in fs::read_dir(out.join("findings")).expect("findings") {
        let directory = entry.expect("a finding").path();
        let read = |name: &str| fs::read(directory.join(name)).unwrap_or_default();
        let Ok(report) = serde_json::from_slice::<Report>(&read("report.json")) else {
            continue;
        };
        let case = read("case.json");
        let case: CaseRecord = serde_json::from_slice(&case).expect("a test case");
        let input = String::from_utf8_lossy(&read("input")).into_owned();
        shown.extend(report.findings.into_iter().map(|finding| Shown {
            finding,
            case: case.clone(),
            input: input.clone(),
        }));
    }
    shown.sort_by(|left, right| left.case.time_s.total_cmp(&right.case.time_s));
    shown
}
