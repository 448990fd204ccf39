//! Which findings are reported: suppressions, the baseline, and `--only`, in this order.
//!
//! All commands that report findings come through here, and the event stream as well: a suppressed finding is not
//! announced.

use powerfail_config::{Baseline, Only, Suppression, sift};
use powerfail_finding::{Finding, Report, Totals};
use powerfail_trace::Trace;

use crate::event::{Event, Observer};

/// What decides which findings are reported.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sieve<'a> {
    /// Findings that these match are not reported.
    pub suppressions: &'a [Suppression],
    /// Findings of the baseline are not reported.
    pub baseline: Option<&'a Baseline>,
    /// Only findings that one of these admits are reported; with none, all are.
    pub only: &'a [Only],
}

/// A report, and the suppressions that nothing has matched.
#[derive(Clone, Debug)]
pub struct SiftedReport {
    /// The report.
    pub report: Report,
    /// Suppressions that match no finding.
    pub unused_suppressions: Vec<Suppression>,
}

impl Sieve<'_> {
    /// The report about a trace.
    pub fn report(
        &self,
        trace: &Trace,
        findings: Vec<Finding>,
        mut totals: Totals,
        notes: Vec<String>,
    ) -> SiftedReport {
        let sifted = sift(self.suppressions, findings);
        totals.suppressed = sifted.matched.iter().map(|(_, count)| count).sum();
        let mut findings = sifted.kept;
        if let Some(baseline) = self.baseline {
            let comparison = baseline.compare(findings);
            findings = comparison.new;
            totals.in_baseline = comparison.known;
            totals.fixed = comparison.fixed;
        }
        findings.retain(|finding| self.is_wanted(finding));
        let command = trace.meta().command.iter();
        let command = command.map(|word| word.to_string_lossy().into_owned());
        SiftedReport {
            report: Report {
                schema: 1,
                powerfail: env!("CARGO_PKG_VERSION").into(),
                command: command.collect(),
                findings,
                totals,
                notes,
            },
            unused_suppressions: sifted.unused,
        }
    }

    fn is_wanted(&self, finding: &Finding) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only.admits(finding.code))
    }

    /// Whether a finding is announced. The baseline knows findings by their ids, which exist only in the report.
    fn is_announced(&self, finding: &Finding) -> bool {
        self.is_wanted(finding) && !self.suppressions.iter().any(|it| it.matches(finding))
    }
}

/// An observer that does not hear of findings that are not reported.
pub struct SiftedEvents<'a> {
    /// What decides.
    pub sieve: Sieve<'a>,
    /// Hears of everything else.
    pub observer: &'a mut dyn Observer,
}

impl Observer for SiftedEvents<'_> {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Finding(finding) if !self.sieve.is_announced(finding) => {}
            event => self.observer.event(event),
        }
    }

    fn is_interrupted(&self) -> bool {
        self.observer.is_interrupted()
    }
}

#[cfg(test)]
mod tests {
    use powerfail_config::Config;
    use powerfail_finding::{Code, Finding};

    use super::{Sieve, SiftedEvents};
    use crate::event::{Event, Observer};

    #[derive(Default)]
    struct Codes(Vec<Code>);

    impl Observer for Codes {
        fn event(&mut self, event: Event<'_>) {
            if let Event::Finding(finding) = event {
                self.0.push(finding.code);
            }
        }
    }

    #[test]
    fn suppressed_findings_are_not_announced() {
        let code = Code::RecoveryHangs.as_str();
        let text = format!("[[suppress]]\ncode = \"{code}\"\nreason = \"a test\"\n");
        let config = Config::parse(&text).unwrap();
        let mut codes = Codes::default();
        let mut events = SiftedEvents {
            sieve: Sieve {
                suppressions: &config.suppress,
                ..Sieve::default()
            },
            observer: &mut codes,
        };
        for code in [Code::RecoveryHangs, Code::RecoveryCrashes] {
            events.event(Event::Finding(&Finding::new(
                code,
                String::new(),
                Vec::new(),
            )));
        }
        assert_eq!(codes.0, [Code::RecoveryCrashes]);
    }
}
