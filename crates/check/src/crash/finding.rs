//! From a failure of recovery to a finding with evidence.

use powerfail_finding::{Code, Evidence, FailurePoint, Finding, LostLine, Role, SourcePlace};
use powerfail_model::CrashState;
use powerfail_oracle::Backtrace;
use powerfail_trace::StackId;

use super::engine::Engine;
use super::words::message;
use crate::diagnose::Diagnosis;
use crate::error::CheckError;
use crate::places::Places;
use crate::runner::{Survival, Trial};
use crate::symptom::Symptom;

/// A failure point at which something went wrong.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) trial: Trial,
    pub(crate) state: CrashState,
    pub(crate) stack: StackId,
    pub(crate) symptom: Symptom,
    pub(crate) count: u64,
}

impl Failed {
    /// Counts another failure that is the same, and keeps what recovery did there.
    pub(crate) fn see_again(&mut self, symptom: &Symptom, count: u64) {
        self.symptom.also(symptom);
        self.count += count;
    }
}

impl Engine<'_, '_> {
    /// A failure of which nothing is known but that it is there.
    pub(crate) fn undiagnosed(
        &mut self,
        failed: &Failed,
        places: &mut Places<'_>,
    ) -> Result<Finding, CheckError> {
        let mut found = Vec::new();
        if let Some(store) = self.first_lost_store(failed)? {
            found.push(places.of_event(Role::Store, store)?);
        }
        found.push(places.of_event(Role::Failure, failed.trial.at)?);
        let code = failed.symptom.code;
        let finding = Finding {
            count: failed.count,
            evidence: Some(evidence(failed, self.runner.line_bytes())),
            consequences: failed.symptom.others.clone(),
            ..Finding::new(code, message(code, &found), found)
        };
        self.announce(&finding);
        Ok(finding)
    }

    /// The finding of a diagnosis, with where recovery was.
    pub(crate) fn diagnosed(
        &mut self,
        diagnosis: &Diagnosis,
        count: u64,
        places: &mut Places<'_>,
    ) -> Result<Finding, CheckError> {
        let mut finding = diagnosis.finding(places, self.runner.line_bytes(), count)?;
        let backtrace = match diagnosis.symptom.code {
            Code::RecoveryCrashes if !self.is_interrupted => self.runner.backtrace(&Trial {
                at: diagnosis.at,
                state: Survival::Exactly(diagnosis.state.clone()),
            })?,
            _ => diagnosis.symptom.backtrace.clone(),
        };
        let recovery = backtrace.map(|backtrace| places.of_backtrace(Role::Recovery, &backtrace));
        finding.places.extend(recovery);
        self.announce(&finding);
        Ok(finding)
    }

    /// Completes a finding with where recovery was.
    pub(super) fn finish(
        &mut self,
        failed: &Failed,
        mut found: Vec<SourcePlace>,
        message: String,
        explanation: Option<String>,
        evidence: Evidence,
        places: &mut Places<'_>,
    ) -> Result<Finding, CheckError> {
        let backtrace = self.backtrace_of(failed)?;
        if let Some(backtrace) = &backtrace {
            found.push(places.of_backtrace(Role::Recovery, backtrace));
        }
        let finding = Finding {
            count: failed.count,
            explanation,
            evidence: Some(evidence),
            consequences: failed.symptom.others.clone(),
            ..Finding::new(failed.symptom.code, message, found)
        };
        self.announce(&finding);
        Ok(finding)
    }

    /// Where recovery was when it failed.
    pub(crate) fn backtrace_of(
        &mut self,
        failed: &Failed,
    ) -> Result<Option<Backtrace>, CheckError> {
        match failed.symptom.code {
            Code::RecoveryCrashes if !self.is_interrupted => {
                let state = match &failed.trial.state {
                    again @ Survival::Again(..) => again.clone(),
                    _ => Survival::Exactly(failed.state.clone()),
                };
                self.runner.backtrace(&Trial {
                    at: failed.trial.at,
                    state,
                })
            }
            _ => Ok(failed.symptom.backtrace.clone()),
        }
    }
}

/// What shows a failure again.
pub(crate) fn evidence(failed: &Failed, line_bytes: u64) -> Evidence {
    let lost = failed
        .state
        .versions
        .iter()
        .map(|(line, version)| LostLine {
            pool: line.pool.0,
            pool_offset: line.line.0 * line_bytes,
            version: *version,
            stores: None,
        });
    Evidence {
        failure: FailurePoint {
            event: failed.trial.at.0,
            lost_lines: lost.collect(),
            again: None,
            filled: Vec::new(),
        },
        recovery: failed.symptom.outcome.clone(),
        last_good_event: None,
        next_good_event: None,
        trace: None,
        difference: failed.symptom.difference.clone(),
        torn: false,
        choices: Vec::new(),
    }
}
