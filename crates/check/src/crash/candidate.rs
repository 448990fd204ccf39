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
use crate::symptom::Symptom;

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
        let mut shown: Option<Failed> = None;
        for (trial, tried) in trials.iter().zip(&tried) {
            let Some(symptom) = self.judge(trial, tried) else {
                continue;
            };
            let what = |symptom: &Symptom| (symptom.code, symptom.number());
            if shown
                .as_ref()
                .is_some_and(|it| what(&it.symptom) == what(&symptom))
            {
                continue;
            }
            // Where even the state with nothing lost fails, the loss is not to blame.
            let whole = Trial::prefix(trial.at);
            let with_all = self.run(CheckStep::Reasons, std::slice::from_ref(&whole))?;
            if self.judge(&whole, &with_all[0]).is_some() {
                continue;
            }
            match &mut shown {
                Some(shown) => shown.symptom.also(&symptom),
                None => {
                    shown = Some(Failed {
                        trial: trial.clone(),
                        state: tried.state.clone(),
                        stack: StackId::NONE,
                        symptom,
                        count: 1,
                    });
                }
            }
        }
        let Some(failed) = shown else {
            return Ok(None);
        };
        let mut finding = lint::finding(hit, places)?;
        finding.evidence = Some(evidence(&failed, self.runner.line_bytes()));
        finding.consequences = failed.symptom.others;
        Ok(Some(finding))
    }
}
