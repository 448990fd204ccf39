//! Files beside a pool that crash images lack: journals that the workload writes with system calls.
//!
//! Recovery that needs such a file fails after a crash, although the program has no bug; and with the file, it can repair
//! what is not durable. So no correctness bug is certain then.

use std::path::PathBuf;

use powerfail_finding::{NotChecked, Severity};

use crate::crash::Crashed;

/// Turns correctness bugs into warnings if recovery may have needed one of these files.
pub(super) fn doubt(crashed: &mut Crashed, companions: &[PathBuf]) {
    let Some(first) = companions.first() else {
        return;
    };
    let mut count = 0_u64;
    for finding in &mut crashed.findings {
        if finding.severity == Severity::Error {
            finding.severity = Severity::Warning;
            count += 1;
        }
    }
    crashed
        .findings
        .sort_by_key(|finding| finding.severity == Severity::Warning);
    let name = first.file_name().unwrap_or(first.as_os_str()).display();
    let others = match companions.len() {
        1 => String::new(),
        all => format!(" and {} more beside the pool", all - 1),
    };
    let note = match count {
        0 => format!(
            "the workload wrote `{name}`{others} with system calls; crash images do not have what it wrote"
        ),
        _ => format!(
            "the workload wrote `{name}`{others} with system calls; crash images do not have what it wrote, so correctness \
             bugs are warnings"
        ),
    };
    crashed.notes.push(note);
    if count > 0 {
        crashed.totals.not_checked = Some(NotChecked::NeedsFile);
    }
}
