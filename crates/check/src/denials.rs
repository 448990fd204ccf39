//! What the confinement of recovery denied it, in words, and failures that this may have caused.

use std::fmt;
use std::path::{Path, PathBuf};

use powerfail_finding::{Evidence, NotChecked, RecoveryOutcome, Severity};
use powerfail_model::EventIndex;
use powerfail_oracle::DeniedAccess;

use crate::crash::Crashed;
use crate::error::CheckError;
use crate::replay::{overlay_of, state_of};
use crate::runner::{Runner, Survival, Trial};

/// What recovery was denied. There is at least one access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denials {
    /// The first one, in the order of their kinds and paths.
    example: DeniedAccess,
    /// How many different ones there are besides.
    others: usize,
}

impl Denials {
    /// `None` if nothing was denied.
    pub(crate) fn of(denied: Vec<(DeniedAccess, u64)>) -> Option<Self> {
        let others = denied.len().checked_sub(1)?;
        let (example, _) = denied.into_iter().next()?;
        Some(Self { example, others })
    }
}

impl fmt::Display for Denials {
    /// As the end of a sentence: what was denied, and how to allow it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { example, others } = self;
        write!(formatter, "{example}")?;
        match others {
            0 => {}
            1 => formatter.write_str(" and 1 other access")?,
            _ => write!(formatter, " and {others} other accesses")?,
        }
        match example.written().map(nearest) {
            Some(path) => write!(
                formatter,
                "; allow it with --writable {}, or everything with --no-confine",
                path.display()
            ),
            None => formatter.write_str("; --no-confine allows everything"),
        }
    }
}

/// The path itself, or the directory in which it would be made.
fn nearest(path: &Path) -> PathBuf {
    let existing = path.ancestors().find(|it| it.exists());
    existing.unwrap_or(path).to_path_buf()
}

/// Turns failures into warnings if confinement may be to blame: on their crash states, recovery is denied something that
/// it is not denied at the `end` of the trace, without a crash.
pub(crate) fn doubt(
    crashed: &mut Crashed,
    runner: &mut Runner<'_>,
    end: EventIndex,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<(), CheckError> {
    let mut usual = None;
    let mut unusual = Vec::new();
    let mut count = 0_u64;
    let errors = crashed.findings.iter_mut();
    for finding in errors.filter(|it| it.severity == Severity::Error) {
        let Some(evidence) = &finding.evidence else {
            continue;
        };
        // A hang is not caused by an error, and would be waited for once more.
        if matches!(evidence.recovery, RecoveryOutcome::Timeout { .. }) {
            continue;
        }
        let denied = runner.denied(&trial_of(evidence, runner)?, is_interrupted)?;
        if denied.is_empty() {
            continue;
        }
        if usual.is_none() {
            usual = Some(runner.denied(&Trial::prefix(end), is_interrupted)?);
        }
        let is_usual = |access: &DeniedAccess| usual.iter().flatten().any(|(it, _)| it == access);
        let before = unusual.len();
        // A recovery that changes mounts fails for another reason, and nothing could allow that.
        let is_cause = |it: &DeniedAccess| !matches!(it, DeniedAccess::Mount(_)) && !is_usual(it);
        unusual.extend(denied.into_iter().filter(|(it, _)| is_cause(it)));
        if unusual.len() > before {
            finding.severity = Severity::Warning;
            count += 1;
        }
    }
    unusual.sort();
    unusual.dedup_by(|one, other| one.0 == other.0);
    let Some(denied) = Denials::of(unusual) else {
        return Ok(());
    };
    let failures = match count {
        1 => "1 failure is a warning".to_owned(),
        _ => format!("{count} failures are warnings"),
    };
    crashed.notes.push(format!(
        "{failures}, because after the crash recovery was denied {denied}"
    ));
    let findings = &mut crashed.findings;
    findings.sort_by_key(|it| it.severity == Severity::Warning);
    if findings.iter().all(|it| it.severity != Severity::Error) {
        crashed.totals.not_checked = Some(NotChecked::NeedsFile);
    }
    Ok(())
}

/// The trial that shows a failure again.
fn trial_of(evidence: &Evidence, runner: &Runner<'_>) -> Result<Trial, CheckError> {
    let state = state_of(evidence, runner.rules());
    Ok(Trial {
        at: EventIndex(evidence.failure.event),
        state: Survival::Again(state, overlay_of(evidence)?),
    })
}
