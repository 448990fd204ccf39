//! Recovery without a crash: it must succeed before any failure can be blamed on one.

use std::time::{Duration, Instant};

use powerfail_model::EventIndex;
use powerfail_trace::Trace;

use crate::error::{CheckError, Undisturbed};
use crate::event::{Observer, Step};
use crate::runner::{Runner, Trial};
use crate::symptom::symptom_of;

/// Runs recovery where no crash is to blame. Returns how long one recovery takes.
pub(super) fn undisturbed(
    trace: &Trace,
    runner: &mut Runner<'_>,
    observer: &mut dyn Observer,
) -> Result<Duration, CheckError> {
    const TIMES: usize = 2;
    observer.progress(Step::Undisturbed, 0, 2);
    let end = Trial::prefix(EventIndex(trace.event_count()));
    let begun = Instant::now();
    let verdicts = runner.run_in_a_row(&end, TIMES, &|| observer.is_interrupted())?;
    let each = begun.elapsed() / TIMES as u32;
    let images = [Undisturbed::Final, Undisturbed::FinalAgain];
    for (image, verdict) in images.into_iter().zip(&verdicts) {
        if let Some(symptom) = symptom_of(verdict) {
            return Err(CheckError::Undisturbed {
                image,
                outcome: Box::new(symptom.outcome),
            });
        }
    }
    observer.progress(Step::Undisturbed, 1, 2);
    // A pool that had content existed before.
    if trace.initial_images().next_run()?.is_some() {
        let verdicts = runner.run_in_a_row(&Trial::prefix(EventIndex(0)), 1, &|| {
            observer.is_interrupted()
        })?;
        if let Some(symptom) = verdicts.first().and_then(symptom_of) {
            return Err(CheckError::Undisturbed {
                image: Undisturbed::Initial,
                outcome: Box::new(symptom.outcome),
            });
        }
    }
    Ok(each)
}
