//! Why there are no findings.

use std::fmt;

use powerfail_finding::RecoveryOutcome;
use powerfail_image::ImageError;
use powerfail_oracle::OracleError;
use powerfail_trace::TraceError;

use crate::denials::Denials;
use crate::outcomes::OutcomesError;

/// An image on which recovery must succeed, because no crash made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undisturbed {
    /// The pools as the workload left them.
    Final,
    /// The same, after a recovery that succeeded.
    FinalAgain,
    /// The pools as the workload found them.
    Initial,
    /// The files as the workload left them.
    FinalTree,
    /// The same, after a recovery that succeeded.
    FinalTreeAgain,
    /// The files as the workload found them.
    InitialTree,
}

impl fmt::Display for Undisturbed {
    /// As the end of a sentence: `on the pool as the workload left it`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Final => "on the pool as the workload left it",
            Self::FinalAgain => "the second time in a row on the pool as the workload left it",
            Self::Initial => "on the pool as it was before the workload",
            Self::FinalTree => "on the files as the workload left them",
            Self::FinalTreeAgain => {
                "the second time in a row on the files as the workload left them"
            }
            Self::InitialTree => "on the files as they were before the workload",
        })
    }
}

/// Why there are no findings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Images cannot be made.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Recovery cannot be run.
    #[error(transparent)]
    Oracle(#[from] OracleError),
    /// Annotations contradict each other.
    #[error(transparent)]
    Commit(#[from] powerfail_races::CommitError),
    /// Recovery fails where no crash is to blame.
    #[error(
        "recovery fails without any crash, {image}: it {outcome}{}. {}",
        remark(outcome),
        remedy(denied.as_ref())
    )]
    Undisturbed {
        /// On what.
        image: Undisturbed,
        /// What it did.
        outcome: Box<RecoveryOutcome>,
        /// What its confinement denied it.
        denied: Option<Denials>,
    },
    /// The dump has nothing of what was acknowledged, where no crash is to blame.
    #[error(
        "without any crash, the dump has nothing that the workload has acknowledged. What the group of --ack matches must be a \
         line of the dump: the first such line would be `{first}`"
    )]
    NotDumped {
        /// What was acknowledged first.
        first: String,
    },
    /// The trace has no pool and no file that could be crashed.
    #[error("nothing was checked: the workload mapped no pool, and changed no file in a tree")]
    NoPool,
    /// There are fewer segments.
    #[error("there is no segment {wanted}: the trace has {count}, numbered from 0; see --segments")]
    NoSuchSegment {
        /// The last that was asked for.
        wanted: usize,
        /// How many there are.
        count: usize,
    },
    /// Nothing that recovery reads can be watched.
    #[error(
        "the reads of recovery cannot be watched: {reason}; powerfail crash tries what it survives"
    )]
    Unwatchable {
        /// Why.
        reason: String,
    },
    /// A file cannot be written.
    #[error("{}", path.display())]
    File {
        /// Its path.
        path: std::path::PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// Outcomes cannot be kept or read.
    #[error(transparent)]
    Outcomes(#[from] OutcomesError),
    /// Evidence in a report cannot be read.
    #[error("the report is damaged: its evidence has bytes that are not hexadecimal digits")]
    DamagedReport,
    /// The user wants to stop.
    #[error("interrupted")]
    Interrupted,
}

/// What to do about a recovery that fails without a crash.
fn remedy(denied: Option<&Denials>) -> String {
    match denied {
        Some(denied) => format!("Recovery was denied {denied}"),
        None => "Nothing can be blamed on crashes until it succeeds; see --recover".to_owned(),
    }
}

/// The rest of the sentence about an outcome: that there is no output to show, and that it is not that of recovery.
fn remark(outcome: &RecoveryOutcome) -> &'static str {
    match (outcome.output().is_empty(), outcome.command() == "checker") {
        (false, false) => "",
        (false, true) => " (the checker)",
        (true, false) => " and wrote nothing",
        (true, true) => " and wrote nothing (the checker)",
    }
}

#[cfg(test)]
mod tests {
    use powerfail_finding::RecoveryOutcome;

    use super::{CheckError, Undisturbed};

    fn refusal(command: &str, output: &str) -> String {
        let error = CheckError::Undisturbed {
            image: Undisturbed::Final,
            outcome: Box::new(RecoveryOutcome::Exit {
                status: 1,
                command: command.to_owned(),
                output: output.to_owned(),
            }),
            denied: None,
        };
        error.to_string()
    }

    #[test]
    fn a_refusal_says_that_there_is_no_output() {
        let silent = refusal("recovery", "");
        assert!(
            silent.contains("it exited with status 1 and wrote nothing. Nothing can"),
            "{silent}"
        );
        let checker = refusal("checker", "");
        assert!(
            checker.contains("status 1 and wrote nothing (the checker). Nothing"),
            "{checker}"
        );
        let loud = refusal("recovery", "pool is damaged");
        assert!(
            loud.contains("it exited with status 1. Nothing can"),
            "{loud}"
        );
    }
}
