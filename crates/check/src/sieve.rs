//! Which findings are reported: suppressions, the baseline, and `--only`, in this order.
//!
//! All commands that report findings come through here, and the event stream as well: a finding that the report hides
//! is not announced.

use powerfail_config::{Baseline, Only, Suppression, sift};
use powerfail_finding::{Finding, Report, Severity, Totals};
use powerfail_trace::Trace;

use crate::event::{CheckEvent, Observer};

/// What decides which findings are reported.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sieve<'a> {
    /// Findings that these match are not reported.
    pub(crate) suppressions: &'a [Suppression],
    /// Findings of the baseline are not reported.
    pub(crate) baseline: Option<&'a Baseline>,
    /// Only findings that one of these admits are reported; with none, all are.
    pub(crate) only: &'a [Only],
}

impl Sieve<'_> {
    /// The report about a trace. A note names each suppression that matches nothing.
    pub(crate) fn report(
        &self,
        trace: &Trace,
        findings: Vec<Finding>,
        mut totals: Totals,
        mut notes: Vec<String>,
    ) -> Report {
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
        notes.extend(sifted.unused.iter().map(Suppression::unused_note));
        Report {
            schema: 1,
            powerfail: env!("CARGO_PKG_VERSION").into(),
            command: command.collect(),
            findings,
            totals,
            notes,
        }
    }

    fn is_wanted(&self, finding: &Finding) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only.admits(finding.code))
    }

    /// Whether a finding is announced. In doubt it is not: the report may merge it with others, and decides then.
    fn is_announced(&self, finding: &Finding) -> bool {
        self.is_wanted(finding)
            && !self.suppressions.iter().any(|it| it.matches(finding))
            && !self.baseline.is_some_and(|it| it.may_know(finding))
    }
}

/// An observer that does not hear of findings that are not reported.
pub(crate) struct SiftedEvents<'a> {
    /// What decides.
    pub(crate) sieve: Sieve<'a>,
    /// Hears of everything else.
    pub(crate) observer: &'a mut dyn Observer,
    /// No correctness bug is certain, so none is announced.
    pub(crate) hides_failures: bool,
}

impl Observer for SiftedEvents<'_> {
    fn event(&mut self, event: CheckEvent<'_>) {
        match event {
            CheckEvent::Finding(finding) if !self.sieve.is_announced(finding) => {}
            CheckEvent::Finding(finding)
                if self.hides_failures && finding.severity == Severity::Error => {}
            CheckEvent::Failing { .. } if self.hides_failures => {}
            event => self.observer.event(event),
        }
    }

    fn is_interrupted(&self) -> bool {
        self.observer.is_interrupted()
    }
}

#[cfg(test)]
mod tests {
    use powerfail_config::{Baseline, Config};
    use powerfail_finding::{Code, Finding, Role, SourcePlace, Totals};
    use powerfail_trace::{Meta, Trace, TraceWriter, WriterOptions};

    use super::{Sieve, SiftedEvents};
    use crate::event::{CheckEvent, Observer};

    #[derive(Default)]
    struct Codes(Vec<Code>);

    impl Observer for Codes {
        fn event(&mut self, event: CheckEvent<'_>) {
            if let CheckEvent::Finding(finding) = event {
                self.0.push(finding.code);
            }
        }
    }

    fn finding(code: Code, function: &str) -> Finding {
        let place = SourcePlace {
            function: Some(function.into()),
            file: Some("map.c".into()),
            line: Some(7),
            ..SourcePlace::new(Role::Store)
        };
        Finding::new(code, String::new(), vec![place])
    }

    fn announced(sieve: Sieve<'_>, findings: &[Finding]) -> Vec<Code> {
        let mut codes = Codes::default();
        let mut events = SiftedEvents {
            sieve,
            observer: &mut codes,
            hides_failures: false,
        };
        for finding in findings {
            events.event(CheckEvent::Finding(finding));
        }
        codes.0
    }

    #[test]
    fn suppressed_findings_are_not_announced() {
        let code = Code::RecoveryHangs.as_str();
        let text = format!("[[suppress]]\ncode = \"{code}\"\nreason = \"a test\"\n");
        let config = Config::parse(&text).unwrap();
        let sieve = Sieve {
            suppressions: &config.suppress,
            ..Sieve::default()
        };
        let findings = [Code::RecoveryHangs, Code::RecoveryCrashes].map(|it| finding(it, "f"));
        assert_eq!(announced(sieve, &findings), [Code::RecoveryCrashes]);
    }

    #[test]
    fn findings_of_the_baseline_are_not_announced() {
        let trace = TraceWriter::new(Vec::new(), &Meta::default(), WriterOptions::default());
        let trace = Trace::from_bytes(trace.unwrap().finish_into(&[]).unwrap().0).unwrap();
        let mut known = finding(Code::RecoveryCrashes, "insert");
        // The report adds the reader to what was announced.
        let reader = SourcePlace {
            function: Some("lookup".into()),
            ..SourcePlace::new(Role::Load)
        };
        known.places.push(reader);
        let report = |sieve: Sieve<'_>, findings| {
            let totals = Totals::default();
            sieve.report(&trace, findings, totals, Vec::new())
        };
        let old = report(Sieve::default(), vec![known.clone()]);
        let baseline = Baseline::parse(&serde_json::to_string(&old).unwrap()).unwrap();
        let sieve = Sieve {
            baseline: Some(&baseline),
            ..Sieve::default()
        };
        let new = [
            finding(Code::RecoveryHangs, "insert"),
            finding(Code::RecoveryCrashes, "remove"),
        ];
        let mut all = vec![finding(Code::RecoveryCrashes, "insert")];
        all.extend(new.clone());
        assert_eq!(announced(sieve, &all), new.clone().map(|it| it.code));
        all[0] = known;
        assert_eq!(report(sieve, all).findings, new);
    }
}
