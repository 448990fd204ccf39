//! The files of an output directory.

use std::fs;
use std::path::{Path, PathBuf};

use powerfail_finding::Report;
use serde::{Deserialize, Serialize};

use crate::error::EvidenceError;
use crate::recovery::Recovery;

/// Where evidence goes if nobody says.
pub const DEFAULT: &str = "powerfail-out";
/// The trace.
pub const TRACE: &str = "run.trace";
/// What was found.
pub const REPORT: &str = "report.json";
/// How recovery was run.
pub const RECOVERY: &str = "recovery.json";
/// Where a campaign has a directory for each finding.
pub const FINDINGS: &str = "findings";

fn write(path: &Path, value: &impl Serialize) -> Result<(), EvidenceError> {
    let text = serde_json::to_string_pretty(value).map_err(EvidenceError::damaged(path))?;
    fs::write(path, text + "\n").map_err(EvidenceError::file(path))
}

fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T, EvidenceError> {
    let text = fs::read_to_string(path).map_err(EvidenceError::file(path))?;
    serde_json::from_str(&text).map_err(EvidenceError::damaged(path))
}

/// Makes the directory. It belongs to this run for as long as the result lives.
pub fn create(out: &Path) -> Result<fs::File, EvidenceError> {
    fs::create_dir_all(out).map_err(EvidenceError::file(out))?;
    let directory = fs::File::open(out).map_err(EvidenceError::file(out))?;
    match directory.try_lock() {
        Ok(()) => Ok(directory),
        Err(fs::TryLockError::WouldBlock) => Err(EvidenceError::InUse {
            path: out.to_path_buf(),
        }),
        Err(fs::TryLockError::Error(error)) => Err(EvidenceError::file(out)(error)),
    }
}

/// Puts the trace into the directory, unless it is there.
pub fn keep_trace(out: &Path, trace: &Path) -> Result<(), EvidenceError> {
    let to = out.join(TRACE);
    let same = to.canonicalize().ok() == trace.canonicalize().ok();
    if !same {
        fs::copy(trace, &to).map_err(EvidenceError::file(&to))?;
    }
    Ok(())
}

/// Writes what a replay needs besides the trace.
pub fn save(out: &Path, report: &Report, recovery: &Recovery) -> Result<(), EvidenceError> {
    write(&out.join(REPORT), report)?;
    write(&out.join(RECOVERY), recovery)
}

/// The report and how recovery was run. What recovery reads lies in the directory, wherever that was moved to.
pub fn load(out: &Path) -> Result<(Report, Recovery), EvidenceError> {
    let report = read(&out.join(REPORT))?;
    let mut recovery: Recovery = read(&out.join(RECOVERY))?;
    recovery.find_input(out);
    Ok((report, recovery))
}

/// Where the evidence of a finding is: the directory itself, or the one that a campaign has made for it.
pub fn locate(out: &Path, id: &str) -> PathBuf {
    let own = [out.join(FINDINGS).join(id), out.join(id)];
    let found = own.into_iter().find(|it| it.join(REPORT).is_file());
    found.unwrap_or_else(|| out.to_path_buf())
}

/// Copies everything into a new directory.
pub fn export(out: &Path, to: &Path) -> Result<(), EvidenceError> {
    fs::create_dir(to).map_err(EvidenceError::file(to))?;
    let (report, recovery) = load(out)?;
    let evidence = report.findings.iter().filter_map(|it| it.evidence.as_ref());
    let mut names = vec![TRACE, REPORT, RECOVERY];
    names.extend(evidence.filter_map(|evidence| evidence.trace.as_deref()));
    let reads = report.findings.iter().filter_map(|it| it.read.as_ref());
    names.extend(reads.filter_map(|read| read.trace.as_deref()));
    names.extend(recovery.input_name());
    names.sort_unstable();
    names.dedup();
    for name in names {
        let (from, to) = (out.join(name), to.join(name));
        fs::copy(&from, &to).map_err(EvidenceError::file(&from))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{FINDINGS, REPORT, locate};

    #[test]
    fn a_campaign_has_a_directory_for_each_finding() {
        let out = tempfile::tempdir().unwrap();
        let own = out.path().join(FINDINGS).join("0123abcd");
        fs::create_dir_all(&own).unwrap();
        assert_eq!(locate(out.path(), "0123abcd"), out.path());
        fs::write(own.join(REPORT), "{}").unwrap();
        assert_eq!(locate(out.path(), "0123abcd"), own);
        assert_eq!(locate(&out.path().join(FINDINGS), "0123abcd"), own);
        assert_eq!(locate(out.path(), "other"), out.path());
    }
}
