//! The result of a campaign, for people and for machines.

use std::io::{self, Write};
use std::path::Path;

use powerfail_finding::NotChecked;
use powerfail_fuzz_store::{MinimisedInput, MinimisedState, Stats, StoredFinding, Unchecked};
use serde_json::{Value, json};

use super::panel;
use crate::findings::not_checked_text;
use crate::{count, plural};

/// Writes the summary of a campaign in the directory `at`.
pub fn write_summary(
    out: &mut dyn Write,
    at: &Path,
    stats: &Stats,
    findings: &[StoredFinding],
    unchecked: Option<Unchecked>,
) -> io::Result<()> {
    write_numbers(out, stats)?;
    match unchecked {
        Some(reason) => {
            let (why, help) = unchecked_text(reason);
            // What the lint has found needs no power failure.
            let what = match findings {
                [] => "nothing was checked",
                _ => "no power failure was checked",
            };
            writeln!(out, "{what}: {why}")?;
            writeln!(out, "help: {help}")?;
        }
        None if findings.is_empty() => writeln!(out, "no findings")?,
        None => {}
    }
    if !findings.is_empty() {
        write_findings(out, at, findings)?;
    }
    writeln!(
        out,
        "continue with: powerfail fuzz --resume --out {}",
        at.display()
    )
}

/// Why a campaign has checked nothing, and what to do.
const fn unchecked_text(reason: Unchecked) -> (&'static str, &'static str) {
    match reason {
        Unchecked::NoTime => (
            "the campaign ended before the first power failure was tried",
            "continue it with --resume, or give it more with --time or --execs",
        ),
        Unchecked::NoPool => (
            "in no test case the target mapped a pool or changed a file",
            "see `powerfail record --help` for what counts as a pool; {pool} stands for its path",
        ),
        Unchecked::NoStore => not_checked_text(NotChecked::NoStore),
        Unchecked::NoFailurePoint => (
            "there is no flush, fence or msync after a store, so there is no moment at which to let the power fail",
            "--domain says what makes stores durable",
        ),
        Unchecked::NeedsFile => not_checked_text(NotChecked::NeedsFile),
        Unchecked::RecoveryCannotFail => not_checked_text(NotChecked::RecoveryCannotFail),
        Unchecked::PoolNotOpened => not_checked_text(NotChecked::PoolNotOpened),
        Unchecked::FilesNotOpened => not_checked_text(NotChecked::FilesNotOpened),
        Unchecked::RecoveryFails => (
            "recovery fails without any power failure",
            "give a command that succeeds on each pool that the target leaves, with --recover",
        ),
    }
}

/// Writes the statistics of a campaign.
pub fn write_numbers(out: &mut dyn Write, stats: &Stats) -> io::Result<()> {
    writeln!(
        out,
        "{} in {}, {} over {}",
        plural(stats.execs, "execution"),
        panel::duration(stats.time_s),
        plural(stats.pm_paths, "PM path"),
        plural(stats.pm_locations, "location"),
    )?;
    writeln!(
        out,
        "{}, {} ({} from crashes), stability {}",
        plural(stats.corpus, "test case"),
        plural(stats.images, "image"),
        count(stats.crash_images),
        panel::stability(stats),
    )?;
    if stats.checks_waiting > 0 {
        writeln!(
            out,
            "{} not checked yet; continue with --resume",
            match stats.checks_waiting {
                1 => "1 test case is".into(),
                many => format!("{} test cases are", count(many)),
            }
        )?;
    }
    if !stats.speed.is_empty() {
        writeln!(out, "{}", stats.speed)?;
    }
    Ok(())
}

/// Writes a line for each finding.
pub fn write_findings(
    out: &mut dyn Write,
    at: &Path,
    findings: &[StoredFinding],
) -> io::Result<()> {
    writeln!(out, "{}:", plural(findings.len() as u64, "finding"))?;
    for stored in findings {
        writeln!(out, "  {}", panel::finding_line(&stored.finding))?;
        write_minimised(out, at, stored)?;
    }
    write_not_minimised(out, at, findings)?;
    writeln!(
        out,
        "show one with: powerfail replay ID --out {}",
        at.display()
    )
}

/// Writes where the minimised input of a finding is.
fn write_minimised(out: &mut dyn Write, at: &Path, stored: &StoredFinding) -> io::Result<()> {
    let Some(minimised) = stored.minimised else {
        return Ok(());
    };
    if minimised.state == MinimisedState::NotReproduced {
        return writeln!(
            out,
            "    not minimised: its test case did not show it a second time"
        );
    }
    let name = stored.directory.file_name().unwrap_or_default();
    let input = at.join("findings").join(name).join("minimised.input");
    writeln!(
        out,
        "    input of {}, minimised from {}: {}",
        plural(minimised.to_bytes, "byte"),
        count(minimised.from_bytes),
        input.display()
    )
}

/// How far an input is minimised.
pub fn minimised_sentence(minimised: &MinimisedInput) -> String {
    let tried = plural(minimised.trials, "trial");
    let (from, to) = (plural(minimised.from_bytes, "byte"), minimised.to_bytes);
    match minimised.state {
        MinimisedState::NotReproduced => {
            "its test case does not show it a second time, so it cannot be minimised".to_owned()
        }
        MinimisedState::Complete if minimised.from_bytes == to => {
            format!("nothing can be left out of {from}, after {tried}")
        }
        _ => format!("minimised from {from} to {}, in {tried}", count(to)),
    }
}

/// Writes how many findings can be minimised further, and how.
fn write_not_minimised(
    out: &mut dyn Write,
    at: &Path,
    findings: &[StoredFinding],
) -> io::Result<()> {
    let is_open = |stored: &&StoredFinding| {
        let minimised = stored.minimised;
        minimised.is_none_or(|it| it.state == MinimisedState::CutShort)
    };
    let open = findings.iter().filter(is_open).count() as u64;
    if open == 0 {
        return Ok(());
    }
    let what = match open {
        1 => "1 finding is".to_owned(),
        _ => format!("{} findings are", count(open)),
    };
    writeln!(
        out,
        "{what} not minimised to the end; continue with --resume, or with: powerfail fuzz tmin {} ID",
        at.display()
    )
}

/// The summary as JSON.
pub fn summary_json(
    at: &Path,
    stats: &Stats,
    findings: &[StoredFinding],
    unchecked: Option<Unchecked>,
    is_interrupted: bool,
) -> Value {
    let mut summary = json!({
        "schema": 1,
        "powerfail": env!("CARGO_PKG_VERSION"),
        "out": at,
        "interrupted": is_interrupted,
        "stats": stats,
        "findings": findings.iter().map(stored_json).collect::<Vec<_>>(),
    });
    if let Some(reason) = unchecked {
        summary["not_checked"] = json!(reason);
    }
    summary
}

/// A finding with the directory of its evidence, as JSON.
pub fn stored_json(stored: &StoredFinding) -> Value {
    json!({
        "finding": stored.finding,
        "directory": stored.directory,
        "minimised": stored.minimised,
    })
}
