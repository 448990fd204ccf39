//! What a verdict means.

use powerfail_finding::{Code, RecoveryOutcome};
use powerfail_oracle::{Backtrace, Stage, Verdict};

/// Something that recovery should not have done.
#[derive(Clone, Debug, PartialEq)]
pub struct Symptom {
    /// The kind of finding.
    pub code: Code,
    /// What recovery did.
    pub outcome: RecoveryOutcome,
    /// Where it was meanwhile, if that is known.
    pub backtrace: Option<Backtrace>,
    /// What differs from what should have been recovered.
    pub difference: Option<String>,
    /// What recovery did after other crashes that count as the same failure, each once.
    pub others: Vec<RecoveryOutcome>,
}

impl Symptom {
    /// The signal that ended recovery, as a negative number, or its exit status: it tells outcomes of one kind apart.
    pub(crate) const fn number(&self) -> i32 {
        match &self.outcome {
            RecoveryOutcome::Signal { signal, .. } => -*signal,
            RecoveryOutcome::Exit { status, .. } => *status,
            _ => 0,
        }
    }

    /// Adds what recovery did in another failure that counts as the same. What it wrote is left out: which of these
    /// failures comes first may depend on the number of workers.
    pub(crate) fn also(&mut self, other: &Self) {
        for outcome in std::iter::once(&other.outcome).chain(&other.others) {
            add_outcome(&mut self.others, Some(&self.outcome), &silent(outcome));
        }
        // What is shown now may have been listed before.
        let shown = &self.outcome;
        self.others.retain(|it| !is_same(it, shown));
    }
}

/// Adds an outcome to a list beside the one that is shown, unless it is known. The worst come first.
pub(crate) fn add_outcome(
    others: &mut Vec<RecoveryOutcome>,
    shown: Option<&RecoveryOutcome>,
    outcome: &RecoveryOutcome,
) {
    let mut known = shown.into_iter().chain(others.iter());
    if known.any(|known| is_same(known, outcome)) {
        return;
    }
    let place = others.partition_point(|it| rank(it) <= rank(outcome));
    others.insert(place, outcome.clone());
}

/// Whether two outcomes are told in the same words. What recovery wrote differs from crash to crash and does not count.
fn is_same(one: &RecoveryOutcome, other: &RecoveryOutcome) -> bool {
    one.command() == other.command() && one.to_string() == other.to_string()
}

/// The smaller, the worse.
fn rank(outcome: &RecoveryOutcome) -> (u8, i32, &str) {
    let (kind, number) = match outcome {
        RecoveryOutcome::Signal { signal, .. } => (0, *signal),
        RecoveryOutcome::Timeout { .. } => (1, 0),
        RecoveryOutcome::Exit { status, .. } => (2, *status),
        RecoveryOutcome::Output { .. } => (3, 0),
        RecoveryOutcome::Content { .. } => (4, 0),
    };
    (kind, number, outcome.command())
}

/// An outcome without what was written.
fn silent(outcome: &RecoveryOutcome) -> RecoveryOutcome {
    let mut outcome = outcome.clone();
    match &mut outcome {
        RecoveryOutcome::Exit { output, .. }
        | RecoveryOutcome::Signal { output, .. }
        | RecoveryOutcome::Timeout { output, .. }
        | RecoveryOutcome::Output { output, .. }
        | RecoveryOutcome::Content { output } => output.clear(),
    }
    outcome
}

/// The symptom of a verdict, if recovery failed by itself.
pub(crate) fn symptom_of(verdict: &Verdict) -> Option<Symptom> {
    let Verdict::Failure(failure) = verdict else {
        return None;
    };
    let code = match (&failure.outcome, failure.stage) {
        (RecoveryOutcome::Timeout { .. }, _) => Code::RecoveryHangs,
        (RecoveryOutcome::Signal { .. }, _) => Code::RecoveryCrashes,
        (_, Stage::Checker) => Code::CheckerRejects,
        _ => Code::RecoveryRejects,
    };
    Some(Symptom {
        code,
        outcome: failure.outcome.clone(),
        backtrace: failure.backtrace.clone(),
        difference: None,
        others: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended_by(signal: i32, output: &str) -> Symptom {
        Symptom {
            code: Code::RecoveryCrashes,
            outcome: RecoveryOutcome::Signal {
                signal,
                command: "recovery".into(),
                output: output.into(),
            },
            backtrace: None,
            difference: None,
            others: Vec::new(),
        }
    }

    #[test]
    fn what_is_listed_does_not_depend_on_the_order() {
        let seen = [
            ended_by(6, "a"),
            ended_by(11, "b"),
            ended_by(11, "c"),
            ended_by(8, "d"),
        ];
        let list = |order: &[usize]| {
            let mut shown = seen[order[0]].clone();
            for number in &order[1..] {
                if *number == 0 {
                    // It becomes the one that is shown.
                    let before = std::mem::replace(&mut shown, seen[0].clone());
                    shown.also(&before);
                } else {
                    shown.also(&seen[*number]);
                }
            }
            shown
        };
        let signals = |symptom: &Symptom| {
            let others = symptom.others.iter();
            let others = others.map(|it| (it.to_string(), it.output().to_owned()));
            others.collect::<Vec<_>>()
        };
        let expected = [
            ("was killed by SIGFPE (signal 8)".to_owned(), String::new()),
            (
                "was killed by SIGSEGV (signal 11)".to_owned(),
                String::new(),
            ),
        ];
        for order in [[0, 1, 2, 3], [1, 2, 0, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
            let shown = list(&order);
            assert_eq!(signals(&shown), expected, "{order:?}");
            assert_eq!(shown.outcome.output(), "a");
        }
    }
}
