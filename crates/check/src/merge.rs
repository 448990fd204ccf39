//! One result of several recordings of the same workload.

use std::collections::BTreeSet;

use powerfail_finding::{CoverageBuilder, Exploration, InferredCommitVariable, Totals};

use crate::coverage::TriedStacks;
use crate::crash::{Crashed, NeededLine};
use crate::group::group;
use crate::lazy::states;

/// Puts the results of several traces together. The same bug is one finding, with the evidence of the
/// first trace that shows it.
pub(crate) fn merge(all: impl IntoIterator<Item = Crashed>) -> Crashed {
    let mut all: Vec<Crashed> = all.into_iter().collect();
    drop_needed(&mut all);
    let mut findings = Vec::new();
    let mut totals = Totals::default();
    let mut notes: Vec<String> = Vec::new();
    let (mut is_interrupted, mut depends_on_pools, mut threads) = (false, false, 0);
    let mut coverage = CoverageBuilder::default();
    for crashed in all {
        coverage.add_all(&crashed.coverage);
        findings.extend(crashed.findings);
        is_interrupted |= crashed.is_interrupted;
        depends_on_pools |= crashed.depends_on_pools;
        threads = threads.max(crashed.threads);
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
        depends_on_pools,
        threads,
        coverage: coverage.finish(),
        tried: TriedStacks::default(),
        needed: BTreeSet::new(),
    }
}

/// Removes findings that call a flush, fence or add useless which another trace needs: who flushes first is a matter of the order
/// of threads.
fn drop_needed(all: &mut [Crashed]) {
    let needed: Vec<BTreeSet<NeededLine>> = { all.iter_mut() }
        .map(|crashed| std::mem::take(&mut crashed.needed))
        .collect();
    for (number, crashed) in all.iter_mut().enumerate() {
        let others = { needed.iter().enumerate() }.filter(|(other, _)| *other != number);
        let others: Vec<_> = others.map(|(_, lines)| lines).collect();
        crashed.findings.retain(|finding| {
            let place = finding.places.first();
            let line = place.and_then(|it| Some((finding.code, it.file.clone()?, it.line?)));
            line.is_none_or(|line| others.iter().all(|lines| !lines.contains(&line)))
        });
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
                beside: Vec::new(),
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
    fn what_another_trace_needs_is_not_useless() {
        let useless = |line| {
            let mut crashed = crashed(line, "");
            crashed.findings[0].code = Code::RedundantFlush;
            crashed
        };
        let needs = |line| Crashed {
            needed: [(Code::RedundantFlush, "list.c".to_owned(), line)].into(),
            ..Crashed::default()
        };
        let merged = merge([useless(1), needs(1), useless(2), needs(3)]);
        let lines: Vec<_> = { merged.findings.iter() }
            .map(|it| it.places[0].line)
            .collect();
        assert_eq!(lines, [Some(2)]);
        // Where only some executions of a line are useless, its own trace says so.
        let mut both = useless(1);
        both.needed = needs(1).needed;
        assert_eq!(merge([both, useless(2)]).findings.len(), 2);
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
