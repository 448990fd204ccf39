//! What holds for every report, whatever the program: what is advised is verified, what is called lost is lost, the place of
//! the failure is that of the evidence, recovery reads what that crash leaves, a value that it reads is what the store wrote
//! that is named with it, and no two findings ask for opposite changes of one line.

use std::collections::BTreeMap;

use powerfail_finding::{
    Action, Change, Choice, Code, DurableBy, Finding, LostLine, Operation, Role, Source,
    SourcePlace,
};

/// All sentences of findings that are not true, as far as the findings themselves tell.
pub(crate) fn untruths(findings: &[Finding]) -> Vec<String> {
    let each = findings
        .iter()
        .flat_map(|finding| {
            [
                advises_unverified(finding),
                names_survivor(finding),
                misplaces_failure(finding),
                misreads(finding),
                misnames_source(finding),
            ]
        })
        .flatten();
    each.chain(opposite_changes(findings)).collect()
}

fn advises_unverified(finding: &Finding) -> Option<String> {
    let is_verified = finding
        .fix
        .as_ref()
        .is_some_and(|fix| fix.verified && !fix.changes.is_empty());
    let is_true = match &finding.suggestion {
        Some(_) => is_verified,
        None => finding.fix.is_none(),
    };
    let code = finding.code;
    (!is_true).then(|| format!("{code} advises what is not verified: {finding:?}"))
}

/// A crash that loses lines has lost the store that comes first, unless the finding is about what survives.
fn names_survivor(finding: &Finding) -> Option<String> {
    let failure = &finding.evidence.as_ref()?.failure;
    let is_about_survivor =
        finding.code.class().is_of_reads() || finding.code == Code::StoreNotAdded;
    if is_about_survivor || failure.lost_lines.is_empty() || failure.again.is_some() {
        return None;
    }
    let store = finding.places.first().filter(|it| it.role == Role::Store)?;
    let is_lost = failure
        .lost_lines
        .iter()
        .any(|line| is_in(store, line, finding.durable_by));
    let is_before = store.event.is_none_or(|event| event < failure.event);
    let code = finding.code;
    (!is_lost || !is_before)
        .then(|| format!("{code} calls a store lost that survives: {finding:?}"))
}

/// The place of the failure is that of the crash that is shown: the event that it comes before, or follows.
fn misplaces_failure(finding: &Finding) -> Option<String> {
    let at = finding.evidence.as_ref()?.failure.event;
    let mut failures = finding.places.iter().filter(|it| it.role == Role::Failure);
    let is_it = |event: u64| event == at || event + 1 == at;
    let is_elsewhere = failures.any(|place| place.event.is_some_and(|event| !is_it(event)));
    let code = finding.code;
    is_elsewhere.then(|| format!("{code} shows another failure than its evidence: {finding:?}"))
}

/// Recovery reads what the crash that is shown leaves: the newest value of a line that is not lost, and of the line of the
/// store that is lost the newest one that is older than this store.
fn misreads(finding: &Finding) -> Option<String> {
    let evidence = finding.evidence.as_ref()?;
    let failure = &evidence.failure;
    let is_of_one_state = failure.again.is_none() && failure.filled.is_empty() && !evidence.torn;
    if !is_of_one_state || finding.code.class().is_of_reads() {
        return None;
    }
    let lost = finding.places.first().filter(|it| it.role == Role::Store);
    let is_wrong = |choice: &&Choice| {
        let taken = choice.sources.iter().position(|source| source.taken);
        let Some(taken) = taken else { return true };
        let mut lines = failure.lost_lines.iter();
        let Some(line) = lines.find(|line| is_in(&choice.load, line, finding.durable_by)) else {
            return taken != 0;
        };
        let event = |source: &Source| source.store.as_ref().and_then(|store| store.event);
        let limit = lost.filter(|store| is_in(store, line, finding.durable_by));
        let Some(limit) = limit.and_then(|store| store.event) else {
            return false;
        };
        let survive = choice.sources.iter().map(event);
        let newest = survive.filter(|event| event.is_none_or(|event| event < limit));
        newest.max() != Some(event(&choice.sources[taken]))
    };
    let code = finding.code;
    let wrong = evidence.choices.iter().find(is_wrong)?;
    Some(format!(
        "{code} shows a read that its crash does not permit: {wrong:?}: {finding:?}"
    ))
}

/// A value that recovery can read comes from the store that is named with it: at least one aligned word of it, or what it
/// has of one. Other words may be those of older stores, or of a part of the store that is lost.
fn misnames_source(finding: &Finding) -> Option<String> {
    let choices = &finding.evidence.as_ref()?.choices;
    let is_wrong = |choice: &&Choice| {
        let is_misnamed = |source: &Source| {
            let Some(store) = &source.store else {
                return false;
            };
            let stored = bytes_of(store.pool_offset, store.bytes.as_deref().unwrap_or(""));
            let read = bytes_of(choice.load.pool_offset, &source.bytes);
            let mut words: BTreeMap<u64, bool> = BTreeMap::new();
            for (at, byte) in &read {
                if let Some(wrote) = stored.get(at) {
                    *words.entry(at / 8).or_insert(true) &= wrote == byte;
                }
            }
            !words.is_empty() && words.values().all(|is_same| !is_same)
        };
        choice.sources.iter().any(is_misnamed)
    };
    let code = finding.code;
    let wrong = choices.iter().find(is_wrong)?;
    Some(format!(
        "{code} names a store that did not write the value: {wrong:?}: {finding:?}"
    ))
}

/// Bytes in hexadecimal, by their offset; of long ones the first.
fn bytes_of(offset: Option<u64>, digits: &str) -> BTreeMap<u64, u8> {
    let digits = digits.trim_end_matches('.').as_bytes();
    let pairs = digits.chunks_exact(2).map(std::str::from_utf8);
    let bytes = pairs.filter_map(|pair| u8::from_str_radix(pair.ok()?, 16).ok());
    let offset = offset.into_iter().flat_map(|first| first..);
    offset.zip(bytes).collect()
}

fn is_in(store: &SourcePlace, line: &LostLine, by: DurableBy) -> bool {
    let line_bytes = match by {
        DurableBy::Flush => 64,
        DurableBy::Sync => 512,
    };
    let (Some(begin), len) = (store.pool_offset, store.len_bytes.unwrap_or(1)) else {
        return false;
    };
    begin < line.pool_offset + line_bytes && line.pool_offset < begin + len.max(1)
}

fn opposite_changes(findings: &[Finding]) -> Vec<String> {
    let changes = findings.iter().filter_map(|it| it.fix.as_ref());
    let changes: Vec<&Change> = changes.flat_map(|fix| &fix.changes).collect();
    let removed = changes.iter().filter(|it| it.action == Action::Remove);
    let is_opposite = |removed: &&&Change| {
        let is_it = |inserted: &&Change| {
            inserted.action == Action::Insert
                && kind(inserted) == kind(removed)
                && removed.line.is_some()
                && (&inserted.file, inserted.line) == (&removed.file, removed.line)
        };
        changes.iter().any(is_it)
    };
    let opposite = removed.filter(is_opposite);
    opposite
        .map(|it| format!("opposite changes of one line: {it:?}"))
        .collect()
}

const fn kind(change: &Change) -> Operation {
    match change.operation {
        Operation::Sync => Operation::Flush,
        other => other,
    }
}

mod tests {
    use powerfail_finding::{Evidence, FailurePoint, Fix, RecoveryOutcome};

    use super::*;

    fn change(action: Action, line: u32) -> Change {
        Change {
            action,
            operation: Operation::Flush,
            event: 1,
            file: Some("map.c".into()),
            line: Some(line),
            pool: None,
            pool_offset: None,
            len_bytes: None,
        }
    }

    fn advised(action: Action, line: u32) -> Finding {
        Finding {
            suggestion: Some("do it".into()),
            fix: Some(Fix::verified(vec![change(action, line)])),
            ..Finding::new(Code::RedundantFlush, String::new(), Vec::new())
        }
    }

    #[test]
    fn opposite_changes_of_one_line_are_seen() {
        let insert = || advised(Action::Insert, 7);
        let remove = |line| advised(Action::Remove, line);
        assert_eq!(untruths(&[insert(), remove(7)]).len(), 1);
        assert_eq!(untruths(&[insert(), remove(8)]), Vec::<String>::new());
    }

    #[test]
    fn advice_without_a_fix_is_seen() {
        let words = Finding {
            fix: None,
            ..advised(Action::Insert, 7)
        };
        assert_eq!(untruths(&[words]).len(), 1);
    }

    fn shown(offset: u64, choices: Vec<Choice>) -> Finding {
        Finding {
            evidence: Some(Evidence {
                failure: FailurePoint {
                    event: 9,
                    lost_lines: vec![LostLine {
                        pool: 0,
                        pool_offset: 64,
                        version: 0,
                        stores: None,
                    }],
                    again: None,
                    filled: Vec::new(),
                },
                recovery: RecoveryOutcome::Content {
                    output: String::new(),
                },
                last_good_event: None,
                next_good_event: None,
                trace: None,
                difference: None,
                torn: false,
                choices,
            }),
            ..Finding::new(
                Code::StoreNotFlushed,
                String::new(),
                vec![SourcePlace {
                    pool_offset: Some(offset),
                    len_bytes: Some(8),
                    event: Some(4),
                    ..SourcePlace::new(Role::Store)
                }],
            )
        }
    }

    #[test]
    fn a_store_in_no_lost_line_is_seen() {
        assert_eq!(untruths(&[shown(120, Vec::new())]), Vec::<String>::new());
        assert_eq!(untruths(&[shown(128, Vec::new())]).len(), 1);
    }

    #[test]
    fn a_read_of_what_the_crash_does_not_leave_is_seen() {
        let source = |(number, event): (usize, Option<u64>), taken: usize| Source {
            store: event.map(|event| SourcePlace {
                event: Some(event),
                ..SourcePlace::new(Role::Store)
            }),
            bytes: String::new(),
            taken: number == taken,
        };
        let read = |offset: u64, taken: usize| Choice {
            load: SourcePlace {
                pool_offset: Some(offset),
                len_bytes: Some(8),
                ..SourcePlace::new(Role::Load)
            },
            sources: [Some(5), Some(3), None]
                .into_iter()
                .enumerate()
                .map(|it| source(it, taken))
                .collect(),
            decisive: true,
        };
        // The store of event 4 and what is newer is lost in this line.
        let wrong = [0, 1, 2].map(|taken| untruths(&[shown(64, vec![read(72, taken)])]).len());
        assert_eq!(wrong, [1, 0, 1]);
        let wrong = [0, 1, 2].map(|taken| untruths(&[shown(64, vec![read(0, taken)])]).len());
        assert_eq!(wrong, [0, 1, 1]);
    }

    #[test]
    fn a_value_of_another_store_is_seen() {
        let read = |bytes: &str| Choice {
            load: SourcePlace {
                pool_offset: Some(72),
                ..SourcePlace::new(Role::Load)
            },
            sources: vec![Source {
                store: Some(SourcePlace {
                    pool_offset: Some(64),
                    bytes: Some("07000000000000000800000000000000...".to_owned()),
                    event: Some(3),
                    ..SourcePlace::new(Role::Store)
                }),
                bytes: bytes.to_owned(),
                taken: true,
            }],
            decisive: true,
        };
        let untrue = |bytes| untruths(&[shown(64, vec![read(bytes)])]).len();
        assert_eq!(untrue("0800000000000000"), 0);
        assert_eq!(untrue("0000000000000000"), 1);
        // The next word is not what this store wrote, as far as that is known.
        assert_eq!(untrue("08000000000000000000000000000000"), 0);
    }
}
