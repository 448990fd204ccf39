//! Candidates of the lint: a crash has to confirm them.

use powerfail_finding::Finding;
use powerfail_lint::Hit;
use powerfail_trace::StackId;

use super::engine::Engine;
use super::finding::{Failed, evidence};
use crate::confirm;
use crate::error::CheckError;
use crate::event::CheckStep;
use crate::lint;
use crate::places::Places;
use crate::runner::Trial;

impl Engine<'_, '_> {
    /// Tries whether recovery fails where the store of a candidate is lost.
    pub(super) fn confirm(
        &mut self,
        hit: &Hit,
        places: &mut Places<'_>,
    ) -> Result<Option<Finding>, CheckError> {
        let rules = self.runner.rules();
        let trials = confirm::trials(self.trace, rules, hit)?;
        let tried = self.run(CheckStep::Reasons, &trials)?;
        for (trial, tried) in trials.iter().zip(&tried) {
            // Where even the state with nothing lost fails, the loss is not to blame.
            let Some(symptom) = self.judge(trial, tried) else {
                continue;
            };
            let whole = Trial::prefix(trial.at);
            let with_all = self.run(CheckStep::Reasons, std::slice::from_ref(&whole))?;
            if self.judge(&whole, &with_all[0]).is_some() {
                continue;
            }
            let mut finding = lint::finding(hit, places)?;
            let failed = Failed {
                trial: trial.clone(),
                state: tried.state.clone(),
                stack: StackId::NONE,
                symptom,
                count: 1,
            };
            finding.evidence = Some(evidence(&failed, self.runner.line_bytes()));
            return Ok(Some(finding));
        }
        Ok(None)
    }
}
