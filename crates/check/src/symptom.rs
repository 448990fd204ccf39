//! What a verdict means.

use powerfail_finding::{Code, RecoveryOutcome};
use powerfail_oracle::{Backtrace, Stage, Verdict};

/// Something that recovery should not have done.
#[derive(Clone, Debug, PartialEq)]
pub struct Symptom {
    /// The kind of finding.
    pub code: Code,
    /// What recovery did.
    pub outcome: RecoveryOutcome,
    /// Where it was meanwhile, if that is known.
    pub backtrace: Option<Backtrace>,
    /// What differs from what should have been recovered.
    pub difference: Option<String>,
}

/// The symptom of a verdict, if recovery failed by itself.
pub(crate) fn symptom_of(verdict: &Verdict) -> Option<Symptom> {
    let Verdict::Failure(failure) = verdict else {
        return None;
    };
    let code = match (&failure.outcome, failure.stage) {
        (RecoveryOutcome::Timeout { .. }, _) => Code::RecoveryHangs,
        (RecoveryOutcome::Signal { .. }, _) => Code::RecoveryCrashes,
        (_, Stage::Checker) => Code::CheckerRejects,
        _ => Code::RecoveryRejects,
    };
    Some(Symptom {
        code,
        outcome: failure.outcome.clone(),
        backtrace: failure.backtrace.clone(),
        difference: None,
    })
}
