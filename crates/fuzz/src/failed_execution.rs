//! Explains why an execution of the fuzzer failed: because of a power failure, or because of the program alone.
//!
//! If the execution ran on a crash image, the run that made the image is recorded again, and the power fails at the
//! same moment. If recovery fails there, and not without the power failure, the power failure is the cause, and the
//! finding names lines of code as usual. Otherwise the program fails by itself.

use std::fs;
use std::sync::Arc;

use powerfail_explore::PointKeys;
use powerfail_finding::{Code, Finding, Role};
use powerfail_fuzz_store::TestCase;
use powerfail_model::{Event, EventIndex};
use powerfail_recorder::TargetStatus;
use powerfail_trace::{Body, Trace};
use rustc_hash::FxHashSet;

use crate::check_worker::CheckWorker;
use crate::crash_test::{CrashTest, CrashTestResult};
use crate::error::CampaignError;
use crate::findings::{Basis, RECOVERY_INPUT};
use crate::job::ExecutionFailure;
use crate::options::Checks;
use crate::point_selection::PointsAt;
use crate::recording::Recording;

impl CheckWorker<'_, '_> {
    /// Finds out why an execution failed, and reports it.
    pub(crate) fn explain(
        &mut self,
        case: &TestCase,
        failure: ExecutionFailure,
    ) -> Result<(), CampaignError> {
        let of_program = match failure {
            ExecutionFailure::GaveUp => None,
            ExecutionFailure::Signal(_) | ExecutionFailure::Timeout => {
                match self.plain_run(case, failure)? {
                    Some(finding) => Some(finding),
                    // The failure does not happen again.
                    None => return Ok(()),
                }
            }
        };
        let node = self.shared.campaign.images.node(case.image)?;
        let crash = node.parent.zip(node.failure_point);
        if let Some((parent, at)) = crash
            && self.is_caused_by_crash(case, parent, EventIndex(at))?
        {
            return Ok(());
        }
        let Some((finding, recording)) = of_program else {
            return Ok(());
        };
        if self.shared.findings.contains(&finding) {
            return Ok(());
        }
        let again = if crash.is_some() {
            // Another recording has replaced the trace of the plain run.
            let contents = self.shared.campaign.images.load(case.image)?;
            self.record(&contents, &case.input)?
        } else {
            Some(recording)
        };
        match again {
            Some(recording) => self.report_program(case, finding, &recording),
            None => Ok(()),
        }
    }

    /// Records the run that made the image again, and lets the power fail at the same moment; returns whether that
    /// explains the failure.
    fn is_caused_by_crash(
        &mut self,
        case: &TestCase,
        parent: powerfail_image::ImageId,
        at: EventIndex,
    ) -> Result<bool, CampaignError> {
        let images = &self.shared.campaign.images;
        let Some(edge) = images.edge(case.image)? else {
            return Ok(false);
        };
        let contents = images.load(parent)?;
        let Some(recording) = self.record(&contents, &edge.input)? else {
            return Ok(false);
        };
        let trace = &recording.trace;
        let made = TestCase {
            image: parent,
            input: edge.input.clone(),
        };
        let keys = PointKeys::of(trace)?;
        let usual = self.tester.recovery_for(trace)?;
        let mut recoveries = vec![(usual.clone(), None)];
        if !case.input.is_empty() {
            let file = self.recorder.directory().join(RECOVERY_INPUT);
            fs::write(&file, &case.input).map_err(CampaignError::file(&file))?;
            let recovery = self.tester.recovery_with(&case.input, &file, &usual);
            recoveries.push((recovery, Some(case.input.as_slice())));
        }
        let is_tried = !self.shared.history.claim_crash(keys.at(at));
        for (recovery, input) in recoveries {
            if input.is_none() && is_tried {
                continue;
            }
            let test = CrashTest {
                checks: Checks {
                    prefix: true,
                    ..Checks::NONE
                },
                selection: Arc::new(PointsAt {
                    events: equivalent_moments(trace, at)?,
                    candidates: false,
                }),
                recovery,
                budget: self.shared.options.check_budget,
                seed: self.shared.options.seed,
                tests_oracle: false,
            };
            let CrashTestResult::Findings { findings, .. } = self.run_test(trace, &test)? else {
                continue;
            };
            // Only findings with the evidence of a crash are about this crash.
            let shown: Vec<Finding> = findings
                .into_iter()
                .filter(|finding| finding.evidence.is_some())
                .collect();
            if shown.is_empty() {
                continue;
            }
            let basis = Basis {
                trace: &recording.path,
                command: self.command(),
                recovery: &test.recovery,
                recovery_input: input,
                case: &made,
                record: self.record_of(&made)?,
            };
            self.shared.report(shown, &basis)?;
            return Ok(true);
        }
        Ok(is_tried && case.input.is_empty())
    }

    /// Runs the test case without the fuzzer. If it fails there, too, returns the finding about the program and the
    /// recording.
    fn plain_run(
        &self,
        case: &TestCase,
        failure: ExecutionFailure,
    ) -> Result<Option<(Finding, Box<Recording>)>, CampaignError> {
        let contents = self.shared.campaign.images.load(case.image)?;
        let Some(recording) = self.record(&contents, &case.input)? else {
            return Ok(None);
        };
        let summary = &recording.summary;
        let (code, how) = match (summary.timed_out, summary.status) {
            (true, _) => (Code::ProgramHangs, "hangs".to_owned()),
            // It wrote a longer file than powerfail allows.
            (false, TargetStatus::Killed(libc::SIGXFSZ)) => return Ok(None),
            (false, TargetStatus::Killed(signal)) => (
                Code::ProgramCrashes,
                format!("is killed by signal {signal}"),
            ),
            (false, TargetStatus::Exited(_)) => {
                if failure == ExecutionFailure::Timeout {
                    self.shared.warn(
                        "some executions are slower than --timeout but do not hang; consider a longer --timeout",
                    );
                }
                return Ok(None);
            }
        };
        let trust = self.tester.recovery().trusted();
        let place = powerfail_check::place_before_end(&recording.trace, &trust, Role::Failure)?;
        let function = place.as_ref().and_then(|place| place.function.clone());
        let after = function.map_or_else(String::new, |function| format!(" after {function}"));
        let message = format!("the program {how}{after}, without any power failure");
        let mut finding = Finding::new(code, message, place.into_iter().collect());
        powerfail_finding::assign_ids(std::slice::from_mut(&mut finding));
        Ok(Some((finding, recording)))
    }

    /// The finding that the program fails by itself on a test case.
    pub(crate) fn failure_of_program(
        &self,
        case: &TestCase,
    ) -> Result<Option<Finding>, CampaignError> {
        let failed = self.plain_run(case, ExecutionFailure::Signal(None))?;
        Ok(failed.map(|(finding, _)| finding))
    }

    /// Reports that the program fails by itself.
    fn report_program(
        &self,
        case: &TestCase,
        finding: Finding,
        recording: &Recording,
    ) -> Result<(), CampaignError> {
        let basis = Basis {
            trace: &recording.path,
            command: self.command(),
            recovery: self.tester.recovery(),
            recovery_input: None,
            case,
            record: self.record_of(case)?,
        };
        self.shared.report(vec![finding], &basis)
    }
}

/// The moments at which a crash leaves the same image as at this one, with all stores so far durable. Images are also
/// made before fences, while a check lets the power fail only before the flush that precedes the fence.
fn equivalent_moments(
    trace: &Trace,
    at: EventIndex,
) -> Result<FxHashSet<EventIndex>, CampaignError> {
    let (mut first, mut last) = (0, trace.event_count());
    let mut records = trace.records_from(EventIndex(0));
    while let Some(record) = records.next_record()? {
        if !matches!(
            record.body,
            Body::Pm(Event::Store { .. } | Event::Resize { .. })
        ) {
            continue;
        }
        if record.index >= at {
            last = record.index.0;
            break;
        }
        first = record.index.0 + 1;
    }
    Ok((first..=last).map(EventIndex).collect())
}
