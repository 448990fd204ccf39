//! All that a file of outcomes can hold, read as a run reads it. Nothing is run.

use std::path::Path;

use powerfail_oracle::StageModules;

use crate::lazy::executor::KeptAttempt;
use crate::lazy::kept::KeptExecutions;
use crate::lazy::walk::Attempt;
use crate::outcomes::{OutcomesError, Stored};
use crate::runner::KeptRun;

/// Reads every outcome of an output directory in each way in which a run could read it. Returns how many can be read in the way
/// that fits most of them.
///
/// # Errors
/// The file is not one of outcomes, or cannot be read.
pub fn count_outcomes(out: &Path) -> Result<usize, OutcomesError> {
    let Some(stored) = Stored::read(out)? else {
        return Ok(0);
    };
    let executions = |kept: KeptAttempt<KeptExecutions>| {
        kept.attempt.execution_count();
    };
    let counts = [
        stored.count_decoded(drop::<KeptRun>)?,
        stored.count_decoded(drop::<KeptAttempt<Attempt>>)?,
        stored.count_decoded(executions)?,
        stored.count_decoded(drop::<Vec<StageModules>>)?,
    ];
    Ok(counts.into_iter().max().unwrap_or_default())
}
