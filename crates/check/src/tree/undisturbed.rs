//! Recovery without a crash, on the trees as the workload left and found them.

use std::collections::BTreeSet;

use powerfail_finding::RecoveryOutcome;
use powerfail_oracle::Verdict;

use super::runner::{TreeRunner, TreeTrial};
use crate::denials::Denials;
use crate::error::{CheckError, Undisturbed};
use crate::event::{CheckStep, Observer};
use crate::symptom::symptom_of;

/// Recovery without a crash.
pub(super) struct UndisturbedRecovery {
    /// What its dump printed, if it has one.
    pub(super) dump: Option<Vec<u8>>,
    /// Whether it succeeds on the trees as the workload found them. It need not if they were empty.
    pub(super) accepts_initial: bool,
    /// Words that look like failures in what it writes.
    pub(super) harmless_words: BTreeSet<String>,
    /// What it was denied, although it succeeded.
    pub(super) denied: Option<Denials>,
}

/// Runs recovery where no crash is to blame.
pub(super) fn undisturbed(
    runner: &mut TreeRunner<'_>,
    observer: &mut dyn Observer,
) -> Result<UndisturbedRecovery, CheckError> {
    const TIMES: usize = 2;
    observer.progress(CheckStep::Undisturbed, 0, 2);
    let end = TreeTrial::newest(runner.recording.len());
    let verdicts = runner.run_in_a_row(&end, TIMES, &|| observer.is_interrupted())?;
    let images = [Undisturbed::FinalTree, Undisturbed::FinalTreeAgain];
    for (image, verdict) in images.into_iter().zip(&verdicts) {
        fail(runner, &end, image, verdict, observer)?;
    }
    let dump = match verdicts.into_iter().next() {
        Some(Verdict::Success { dump }) => dump,
        _ => None,
    };
    observer.progress(CheckStep::Undisturbed, 1, 2);
    let initial = TreeTrial::newest(0);
    let verdicts = runner.run_in_a_row(&initial, 1, &|| observer.is_interrupted())?;
    // A tree that had files existed before.
    if runner.recording.has_initial_files() {
        for verdict in &verdicts {
            fail(
                runner,
                &initial,
                Undisturbed::InitialTree,
                verdict,
                observer,
            )?;
        }
    }
    let accepts_initial = verdicts.iter().all(|it| symptom_of(it).is_none());
    let denied = Denials::of(runner.denied(&end, &|| observer.is_interrupted())?);
    let words = runner.take_suspects().into_keys();
    Ok(UndisturbedRecovery {
        dump,
        accepts_initial,
        harmless_words: words.collect(),
        denied,
    })
}

/// An error if recovery failed although there was no crash: the set-up is wrong, or what recovery was denied is to blame.
fn fail(
    runner: &mut TreeRunner<'_>,
    trial: &TreeTrial,
    image: Undisturbed,
    verdict: &Verdict,
    observer: &dyn Observer,
) -> Result<(), CheckError> {
    let Some(symptom) = symptom_of(verdict) else {
        return Ok(());
    };
    // A hang is not caused by an error, and would be waited for once more.
    let denied = match symptom.outcome {
        RecoveryOutcome::Timeout { .. } => Vec::new(),
        _ => runner.denied(trial, &|| observer.is_interrupted())?,
    };
    Err(CheckError::Undisturbed {
        image,
        outcome: Box::new(symptom.outcome),
        denied: Denials::of(denied),
    })
}
