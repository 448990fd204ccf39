//! What a campaign has come to, for people and for machines.

use std::io::{self, Write};
use std::path::Path;

use powerfail_fuzz::{Stats, StoredFinding, Summary};
use powerfail_report::{count, plural};
use serde_json::{Value, json};

use super::panel;

/// As text.
pub(super) fn text(out: &mut dyn Write, at: &Path, summary: &Summary) -> io::Result<()> {
    let stats = &summary.stats;
    numbers(out, stats)?;
    if summary.findings.is_empty() {
        writeln!(out, "nothing was found")?;
    } else {
        findings(out, at, &summary.findings)?;
    }
    writeln!(
        out,
        "go on with: powerfail fuzz --resume --out {}",
        at.display()
    )
}

/// How far it has come.
pub(super) fn numbers(out: &mut dyn Write, stats: &Stats) -> io::Result<()> {
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
        "{}, {} ({} of crashes), stability {}",
        plural(stats.corpus, "test case"),
        plural(stats.images, "image"),
        count(stats.crash_images),
        panel::stability(stats),
    )?;
    if stats.checks_waiting > 0 {
        writeln!(
            out,
            "{} not checked yet; --resume goes on with that",
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

/// What was found, a line each.
pub(super) fn findings(out: &mut dyn Write, at: &Path, found: &[StoredFinding]) -> io::Result<()> {
    writeln!(out, "{}:", plural(found.len() as u64, "finding"))?;
    for stored in found {
        writeln!(out, "  {}", panel::finding(&stored.finding))?;
    }
    writeln!(
        out,
        "show one again with: powerfail replay ID --out {}",
        at.display()
    )
}

/// As JSON.
pub(super) fn json(at: &Path, summary: &Summary) -> Value {
    json!({
        "schema": 1,
        "powerfail": env!("CARGO_PKG_VERSION"),
        "out": at,
        "interrupted": summary.is_interrupted,
        "stats": summary.stats,
        "findings": summary.findings.iter().map(stored).collect::<Vec<_>>(),
    })
}

/// A finding with the place of its evidence.
pub(super) fn stored(stored: &StoredFinding) -> Value {
    json!({ "finding": stored.finding, "directory": stored.directory })
}
