//! Recovery without a crash: it must succeed before any failure can be blamed on one.

use std::collections::BTreeSet;
use std::time::Duration;

use powerfail_finding::RecoveryOutcome;
use powerfail_model::EventIndex;
use powerfail_oracle::Verdict;
use powerfail_trace::Trace;

use crate::denials::Denials;
use crate::error::{CheckError, Undisturbed};
use crate::event::{CheckStep, Observer};
use crate::runner::{Runner, Trial};
use crate::symptom::{Symptom, symptom_of};

/// Recovery without a crash.
pub(super) struct UndisturbedRecovery {
    /// How long one takes.
    pub(super) each: Duration,
    /// Whether it opens a pool.
    pub(super) opens_pool: bool,
    /// What its dump printed, if it has one.
    pub(super) dump: Option<Vec<u8>>,
    /// Words that look like failures in what it writes.
    pub(super) harmless_words: BTreeSet<String>,
    /// What it was denied, although it succeeded.
    pub(super) denied: Option<Denials>,
}

/// Runs recovery where no crash is to blame.
pub(super) fn undisturbed(
    trace: &Trace,
    runner: &mut Runner<'_>,
    observer: &mut dyn Observer,
) -> Result<UndisturbedRecovery, CheckError> {
    const TIMES: usize = 2;
    observer.progress(CheckStep::Undisturbed, 0, 2);
    let end = Trial::prefix(EventIndex(trace.event_count()));
    let verdicts = runner.run_in_a_row(&end, TIMES, &|| observer.is_interrupted())?;
    let each = runner.time_in_a_row / TIMES as u32;
    let images = [Undisturbed::Final, Undisturbed::FinalAgain];
    for (image, verdict) in images.into_iter().zip(&verdicts) {
        if let Some(symptom) = symptom_of(verdict) {
            let is_interrupted = || observer.is_interrupted();
            return Err(failed(runner, &end, image, symptom, &is_interrupted)?);
        }
    }
    let opens_pool = runner.has_opened != Some(false);
    let dump = match verdicts.into_iter().next() {
        Some(Verdict::Success { dump }) => dump,
        _ => None,
    };
    observer.progress(CheckStep::Undisturbed, 1, 2);
    // A pool that had content existed before.
    if trace.initial_images().next_run()?.is_some() {
        let initial = Trial::prefix(EventIndex(0));
        let verdicts = runner.run_in_a_row(&initial, 1, &|| observer.is_interrupted())?;
        if let Some(symptom) = verdicts.first().and_then(symptom_of) {
            let is_interrupted = || observer.is_interrupted();
            let image = Undisturbed::Initial;
            return Err(failed(runner, &initial, image, symptom, &is_interrupted)?);
        }
    }
    let denied = Denials::of(runner.denied(&end, &|| observer.is_interrupted())?);
    let words = runner.take_suspects().into_keys();
    Ok(UndisturbedRecovery {
        each,
        opens_pool,
        dump,
        harmless_words: words.collect(),
        denied,
    })
}

/// Recovery failed although there was no crash: the set-up is wrong, or what recovery was denied is to blame.
fn failed(
    runner: &mut Runner<'_>,
    trial: &Trial,
    image: Undisturbed,
    symptom: Symptom,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<CheckError, CheckError> {
    // A hang is not caused by an error, and would be waited for once more.
    let denied = match symptom.outcome {
        RecoveryOutcome::Timeout { .. } => Vec::new(),
        _ => runner.denied(trial, is_interrupted)?,
    };
    Ok(CheckError::Undisturbed {
        image,
        outcome: Box::new(symptom.outcome),
        denied: Denials::of(denied),
    })
}
