//! Executions of the fuzzer that failed: what is to blame?
//!
//! On an image that a crash left, it is the power failure, if the same input succeeds where no power failed.
//! The run that made the image is recorded again, and the power fails at that moment: then the finding
//! has its lines of code as usual. Otherwise the program fails by itself.

use std::fs;
use std::sync::Arc;

use powerfail_explore::PointKeys;
use powerfail_finding::{Code, Finding, Role};
use powerfail_fuzz_engine::End;
use powerfail_fuzz_store::TestCase;
use powerfail_model::{Event, EventIndex};
use powerfail_recorder::TargetStatus;
use powerfail_trace::{Body, Trace};
use rustc_hash::FxHashSet;

use crate::checker::Checker;
use crate::error::CampaignError;
use crate::findings::{Basis, RECOVERY_INPUT};
use crate::judge::{Judged, Question};
use crate::known::OnlyThese;
use crate::options::Checks;
use crate::recording::Recording;

impl Checker<'_, '_> {
    /// Finds out what is to blame for an execution that ended by a signal, hung, or gave up on a crash image.
    pub(crate) fn blame(&mut self, case: &TestCase, end: Option<End>) -> Result<(), CampaignError> {
        let failure = match end {
            Some(end) => match self.plain_run(case, end)? {
                Some(failure) => Some(failure),
                // Whatever it was, it does not happen again.
                None => return Ok(()),
            },
            None => None,
        };
        let node = self.shared.kept.images().node(case.image)?;
        let crash = node.parent.zip(node.failure_point);
        if let Some((parent, at)) = crash
            && self.blame_crash(case, parent, EventIndex(at))?
        {
            return Ok(());
        }
        let Some((finding, recording)) = failure else {
            return Ok(());
        };
        if self.shared.findings.knows(&finding) {
            return Ok(());
        }
        let again = if crash.is_some() {
            // The trace of the plain run was replaced by another one meanwhile.
            let contents = self.shared.kept.images().load(case.image)?;
            self.record(&contents, &case.input)?
        } else {
            Some(recording)
        };
        match again {
            Some(recording) => self.report_program(case, finding, &recording),
            None => Ok(()),
        }
    }

    /// Lets the power fail where it failed when the image was made. Whether that is to blame.
    fn blame_crash(
        &mut self,
        case: &TestCase,
        parent: powerfail_image::ImageId,
        at: EventIndex,
    ) -> Result<bool, CampaignError> {
        let images = self.shared.kept.images();
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
        let mut recoveries = vec![(self.judge.recovery().clone(), None)];
        if !case.input.is_empty() {
            let file = self.recorder.directory().join(RECOVERY_INPUT);
            fs::write(&file, &case.input).map_err(CampaignError::file(&file))?;
            let recovery = self.judge.recovery_with(&case.input, &file);
            recoveries.push((recovery, Some(case.input.as_slice())));
        }
        let is_tried = !self.shared.known.claim_crash(keys.at(at));
        for (recovery, input) in recoveries {
            if input.is_none() && is_tried {
                continue;
            }
            let question = Question {
                checks: Checks {
                    prefix: true,
                    ..Checks::NONE
                },
                selection: Arc::new(OnlyThese {
                    moments: moments_alike(trace, at)?,
                    candidates: false,
                }),
                recovery,
                budget: self.shared.options.check_budget,
                seed: self.shared.options.seed,
            };
            let Judged::Findings(findings) = self.ask(trace, &question)? else {
                continue;
            };
            // Only what a crash has shown is about this one.
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
                recovery: &question.recovery,
                recovery_input: input,
                case: &made,
                record: self.record_of(&made)?,
            };
            self.shared.report(shown, &basis)?;
            return Ok(true);
        }
        Ok(is_tried && case.input.is_empty())
    }

    /// What there is to say if the program fails in a plain run, too, and by itself, and that run.
    fn plain_run(
        &self,
        case: &TestCase,
        end: End,
    ) -> Result<Option<(Finding, Box<Recording>)>, CampaignError> {
        let contents = self.shared.kept.images().load(case.image)?;
        let Some(recording) = self.record(&contents, &case.input)? else {
            return Ok(None);
        };
        let summary = &recording.summary;
        let (code, how) = match (summary.timed_out, summary.status) {
            (true, _) => (Code::ProgramHangs, "does not end".to_owned()),
            // The target has written more than it may.
            (false, TargetStatus::Killed(libc::SIGXFSZ)) => return Ok(None),
            (false, TargetStatus::Killed(signal)) => {
                (Code::ProgramCrashes, format!("is ended by signal {signal}"))
            }
            (false, TargetStatus::Exited(_)) => {
                if end == End::Timeout {
                    self.shared.warn(
                        "some executions only take longer than --timeout: a plain run of them ends",
                    );
                }
                return Ok(None);
            }
        };
        let trust = self.judge.recovery().trusted();
        let place = powerfail_check::place_before_end(&recording.trace, &trust, Role::Failure)?;
        let function = place.as_ref().and_then(|place| place.function.clone());
        let whereabouts =
            function.map_or_else(String::new, |function| format!(" after {function}"));
        let mut finding = Finding {
            id: String::new(),
            code,
            class: code.class(),
            severity: code.severity(),
            message: format!("the program {how}{whereabouts}, without any power failure"),
            count: 1,
            places: place.into_iter().collect(),
            suggestion: None,
            evidence: None,
            read: None,
        };
        powerfail_finding::assign_ids(std::slice::from_mut(&mut finding));
        Ok(Some((finding, recording)))
    }

    /// The program fails by itself.
    fn report_program(
        &self,
        case: &TestCase,
        finding: Finding,
        recording: &Recording,
    ) -> Result<(), CampaignError> {
        let basis = Basis {
            trace: &recording.path,
            command: self.command(),
            recovery: self.judge.recovery(),
            recovery_input: None,
            case,
            record: self.record_of(case)?,
        };
        self.shared.report(vec![finding], &basis)
    }
}

/// The moments at which a crash leaves what it leaves at this one, with all stores so far. Images are made
/// before fences, too; a check lets the power fail before the flush already, and there only.
fn moments_alike(trace: &Trace, at: EventIndex) -> Result<FxHashSet<EventIndex>, CampaignError> {
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
