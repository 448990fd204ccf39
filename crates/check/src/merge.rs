//! One result of several recordings of the same workload.

use powerfail_finding::{CoverageBuilder, Exploration, InferredCommitVariable, Totals};

use crate::coverage::TriedStacks;
use crate::crash::Crashed;
use crate::group::group;
use crate::lazy::states;

/// Puts the results of several traces together. The same bug is one finding, with the evidence of the
/// first trace that shows it.
pub(crate) fn merge(all: impl IntoIterator<Item = Crashed>) -> Crashed {
    let mut findings = Vec::new();
    let mut totals = Totals::default();
    let mut notes: Vec<String> = Vec::new();
    let mut is_interrupted = false;
    let mut coverage = CoverageBuilder::default();
    for crashed in all {
        coverage.add_all(&crashed.coverage);
        findings.extend(crashed.findings);
        is_interrupted |= crashed.is_interrupted;
        add(&mut totals, &crashed.totals);
        for note in crashed.notes {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    Crashed {
        findings: group(findings),
        totals,
        notes,
        is_interrupted,
        coverage: coverage.finish(),
        tried: TriedStacks::default(),
    }
}

/// What was done on another trace, besides. What its report left out is not counted here.
fn add(totals: &mut Totals, more: &Totals) {
    totals.events += more.events;
    totals.failure_points += more.failure_points;
    totals.failure_point_stacks = totals.failure_point_stacks.max(more.failure_point_stacks);
    totals.failure_points_run += more.failure_points_run;
    totals
        .failure_points_not_run
        .add(more.failure_points_not_run);
    totals.recovery_runs += more.recovery_runs;
    for variable in &more.commit_variables {
        let is_it = |known: &InferredCommitVariable| {
            (&known.pool, known.offset, known.len_bytes)
                == (&variable.pool, variable.offset, variable.len_bytes)
        };
        match totals.commit_variables.iter_mut().find(|it| is_it(it)) {
            Some(known) if known.confidence >= variable.confidence => {}
            Some(known) => *known = variable.clone(),
            None => totals.commit_variables.push(variable.clone()),
        }
    }
    if let Some(more) = &more.exploration {
        explore(totals.exploration.get_or_insert_default(), more);
    }
    if let Some(more) = &more.races {
        let races = totals.races.get_or_insert_default();
        races.failure_points += more.failure_points;
        races.watched += more.watched;
        races.unchanged += more.unchanged;
        races.refused += more.refused;
        races.not_tried += more.not_tried;
        races.executions += more.executions;
        races.confirmations += more.confirmations;
        races.pairs += more.pairs;
        races.confirmed += more.confirmed;
        races.validated += more.validated;
    }
}

fn explore(totals: &mut Exploration, more: &Exploration) {
    totals.failure_points += more.failure_points;
    totals.exhaustive += more.exhaustive;
    totals.unchanged += more.unchanged;
    totals.sampled += more.sampled;
    totals.not_tried += more.not_tried;
    totals.second_failures += more.second_failures;
    totals.executions += more.executions;
    totals.executions_saved += more.executions_saved;
    totals.choices += more.choices;
    let logs = [&totals.states, &more.states].map(|states| states::log10_of(states));
    totals.states = states::decimal(states::log10_of_sum(logs));
}

#[cfg(test)]
mod tests {
    use powerfail_finding::{Code, Finding, Role, SourcePlace, Totals};

    use super::merge;
    use crate::crash::Crashed;

    fn crashed(line: u32, note: &str) -> Crashed {
        let code = Code::StoreNotFlushed;
        let place = SourcePlace {
            file: Some("list.c".into()),
            line: Some(line),
            ..SourcePlace::new(Role::Store)
        };
        Crashed {
            findings: vec![Finding {
                id: "left over".into(),
                code,
                class: code.class(),
                severity: code.severity(),
                message: format!("line {line}"),
                count: 2,
                places: vec![place],
                suggestion: None,
                fix: None,
                explanation: None,
                evidence: None,
                read: None,
                consequences: Vec::new(),
                marks: powerfail_finding::Marks::NONE,
                durable_by: powerfail_finding::DurableBy::Flush,
                tree: None,
            }],
            totals: Totals {
                events: 10,
                failure_point_stacks: u64::from(line),
                ..Totals::default()
            },
            notes: vec![note.to_owned()],
            ..Crashed::default()
        }
    }

    #[test]
    fn the_same_bug_is_one_finding() {
        let merged = merge([crashed(1, "a"), crashed(2, "b"), crashed(1, "a")]);
        let shown: Vec<_> = merged
            .findings
            .iter()
            .map(|finding| (finding.message.as_str(), finding.count))
            .collect();
        assert_eq!(shown, [("line 1", 4), ("line 2", 2)]);
        assert_ne!(merged.findings[0].id, merged.findings[1].id);
        assert_eq!(merged.notes, ["a", "b"]);
        assert_eq!(merged.totals.events, 30);
        assert_eq!(merged.totals.failure_point_stacks, 2);
    }
}
