//! One bug once: a race and what other crashes blame on the loss of the same store.

use powerfail_finding::{Code, Finding, NotDurable, Role, Severity, SourcePlace};

use crate::places::{CodeLine, line_of};
use crate::root_cause::{add_consequence, is_of_missing_flush, lacks_flush};

/// Adds races to what is known. Where recovery was seen to fail because of a race, whatever else is blamed on
/// the loss of the same store is the same bug, and the race says more about it: who reads it, and why that is not
/// safe. A race of which no run shows that it matters adds its reader to what is known about the store. So does one whose store
/// comes too early or too late even if nothing is lost.
pub(crate) fn fold(findings: &mut Vec<Finding>, mut races: Vec<Finding>) {
    // What others are folded into comes first.
    races.sort_by_key(|race| (race.severity != Severity::Error, race.evidence.is_none()));
    for mut race in races {
        let Some(writer) = store_of(&race).map(line_of) else {
            findings.push(race);
            continue;
        };
        let is_race = race.code == Code::CrossFailureRace;
        let is_about = |known: &Finding| blames(known, &writer);
        let needs_no_loss =
            |known: &&mut Finding| !is_about(known) && is_of_program_order(known, &race);
        let is_lost = findings.iter().any(is_about);
        if is_race
            && !is_lost
            && let Some(known) = findings.iter_mut().find(needs_no_loss)
        {
            // No flush helps: the moment between two stores is what is wrong.
            add_readers(known, race);
        } else if is_race && race.evidence.is_some() {
            let why = why_not_durable(&race);
            let is_part = |known: &Finding| {
                is_about(known)
                    || is_overwritten(known, &writer)
                    || is_unflushed(known, &writer, why)
            };
            while let Some(place) = findings.iter().position(is_part) {
                let known = findings.remove(place);
                absorb(&mut race, known);
            }
            findings.push(race);
        } else if is_race && let Some(known) = findings.iter_mut().find(|known| is_about(known)) {
            add_readers(known, race);
        } else {
            findings.push(race);
        }
    }
}

/// Whether one of two findings is a race, and the other says that the store that it reads is lost, or one that lacks the same flush.
pub(crate) fn are_about_one_store(one: &Finding, other: &Finding) -> bool {
    let is_it = |race: &Finding, known: &Finding| {
        let stores = race.places.iter().filter(|it| it.role == Role::Store);
        race.code == Code::CrossFailureRace
            && race.severity == Severity::Error
            && (is_of_program_order(known, race)
                || is_shown_by_another_loss(race) && makes_reachable(known, race)
                || stores.map(line_of).any(|writer| {
                    blames(known, &writer)
                        || is_overwritten(known, &writer)
                        || is_unflushed(known, &writer, why_not_durable(race))
                }))
    };
    is_it(one, other) || is_it(other, one)
}

/// Whether a race is shown by a crash that keeps its store and loses others.
fn is_shown_by_another_loss(race: &Finding) -> bool {
    const LINE_BYTES: u64 = 64;
    let lost = race.evidence.iter().flat_map(|it| &it.failure.lost_lines);
    let store = store_of(race).and_then(|it| it.pool_offset);
    let mut lost = lost.map(|line| line.pool_offset).peekable();
    lost.peek().is_some()
        && store.is_some_and(|store| lost.all(|line| !(line..line + LINE_BYTES).contains(&store)))
}

/// Whether the store of a race is what makes lost data reachable in a finding: that data is to blame.
fn makes_reachable(known: &Finding, race: &Finding) -> bool {
    let writer = store_of(race).map(line_of);
    let mut places = known.places.iter();
    known.severity == Severity::Error
        && places.any(|it| {
            matches!(it.role, Role::Survivor | Role::Publish) && Some(line_of(it)) == writer
        })
}

/// Adds races that the loss of other stores shows: what is known about that loss says which store is to blame, and gets
/// the reader. Nothing else is folded into these races.
pub(crate) fn fold_survivors(findings: &mut Vec<Finding>, races: Vec<Finding>) {
    for race in races {
        match findings
            .iter_mut()
            .find(|known| makes_reachable(known, &race))
        {
            Some(known) => add_readers(known, race),
            None => findings.push(race),
        }
    }
}

/// Adds the readers of a race that are not known yet, and what recovery does in its crash.
fn add_readers(known: &mut Finding, race: Finding) {
    let shown = race.evidence.iter().map(|it| &it.recovery);
    for outcome in shown.chain(&race.consequences) {
        add_consequence(known, outcome);
    }
    let readers = race.places.into_iter().filter(|it| it.role == Role::Load);
    for reader in readers {
        let line = line_of(&reader);
        let mut places = known.places.iter();
        if places.all(|it| it.role != Role::Load || line_of(it) != line) {
            known.places.push(reader);
        }
    }
}

fn store_of(finding: &Finding) -> Option<&SourcePlace> {
    finding
        .places
        .iter()
        .find(|place| place.role == Role::Store)
}

/// Whether a finding says that the store of a line is lost.
fn blames(finding: &Finding, writer: &CodeLine) -> bool {
    let is_lost = match finding.code {
        Code::CrossFailureRace | Code::CrossFailureSemantic | Code::UninitialisedRead => false,
        // With all stores before the failure in place, it is not this store that is missing.
        _ => finding
            .evidence
            .as_ref()
            .is_none_or(|it| !it.failure.lost_lines.is_empty() && it.failure.again.is_none()),
    };
    let mut stores = finding.places.iter().filter(|it| it.role == Role::Store);
    finding.severity == Severity::Error && is_lost && stores.any(|it| line_of(it) == *writer)
}

/// Whether a finding says that the store of a line is overwritten before it is durable: the flush that a race lacks makes
/// it durable before.
fn is_overwritten(finding: &Finding, writer: &CodeLine) -> bool {
    finding.code == Code::DirtyOverwrite
        && store_of(finding).is_some_and(|store| line_of(store) == *writer)
}

/// Whether the lint says that the store of a race is not flushed, and the race is one because of that.
fn is_unflushed(finding: &Finding, writer: &CodeLine, why: Option<NotDurable>) -> bool {
    why == Some(NotDurable::NeverFlushed)
        && finding.evidence.is_none()
        && lacks_flush(finding)
        && store_of(finding).is_some_and(|store| line_of(store) == *writer)
}

fn why_not_durable(race: &Finding) -> Option<NotDurable> {
    race.read.as_ref().and_then(|read| read.not_durable)
}

/// Whether recovery fails between two stores with every store in place up to there, and a race is about one of the two:
/// about the later one, or about the earlier one without a crash that loses it. Then it is the order of the stores that is
/// wrong, whether or not they are flushed.
fn is_of_program_order(finding: &Finding, race: &Finding) -> bool {
    let needs_no_loss = |finding: &Finding| {
        let evidence = finding.evidence.as_ref();
        evidence.is_some_and(|it| it.failure.lost_lines.is_empty() && it.failure.again.is_none())
    };
    let writer = store_of(race).map(line_of);
    let is_at = |role: Role| {
        let mut places = finding.places.iter().filter(|it| it.role == role);
        places.any(|it| Some(line_of(it)) == writer)
    };
    let is_early = is_at(Role::Survivor) && (race.evidence.is_none() || needs_no_loss(race));
    let is_between = finding.places.iter().any(|it| it.role == Role::Survivor);
    finding.severity == Severity::Error
        && !finding.code.class().is_of_reads()
        && needs_no_loss(finding)
        && is_between
        && (is_early || is_at(Role::Store))
}

/// Adds to a confirmed race what the lint says about the same store: that recovery has failed without it was not known there.
pub(crate) fn fold_unproven(findings: &mut Vec<Finding>) {
    let mut number = 0;
    while number < findings.len() {
        let other = &findings[number];
        let store = store_of(other).map(line_of);
        let is_of_same_store = |race: &Finding| {
            race.code == Code::CrossFailureRace
                && race.evidence.is_some()
                && store_of(race).map(line_of) == store
        };
        let race = findings.iter().position(is_of_same_store);
        match race.filter(|_| is_of_missing_flush(other.code) && other.evidence.is_none()) {
            Some(race) => {
                let other = findings.remove(number);
                absorb(&mut findings[race - usize::from(number < race)], other);
            }
            None => number += 1,
        }
    }
}

/// What fewer lost lines show is shown better. A fix belongs to the crash state that it makes impossible, and so do the
/// places of the failure and of recovery. What recovery does in the other crash is listed.
fn absorb(race: &mut Finding, mut known: Finding) {
    let lost = |finding: &Finding| {
        let evidence = finding.evidence.as_ref();
        evidence.map_or(usize::MAX, |it| it.failure.lost_lines.len())
    };
    let mut outcomes = std::mem::take(&mut race.consequences);
    outcomes.append(&mut known.consequences);
    let is_fixed = known.fix.is_some() && race.fix.is_none() && known.evidence.is_some();
    if is_fixed || lost(&known) < lost(race) {
        std::mem::swap(&mut race.evidence, &mut known.evidence);
        race.fix = known.fix.take();
        race.suggestion = known.suggestion.take();
        let of_crash = |place: &SourcePlace| matches!(place.role, Role::Failure | Role::Recovery);
        race.places.retain(|place| !of_crash(place));
        let shown = known.places.iter().filter(|place| of_crash(place));
        race.places.extend(shown.cloned());
    }
    for place in known.places {
        let is_new = race.places.iter().all(|it| it.role != place.role);
        if is_new && matches!(place.role, Role::Survivor | Role::Publish | Role::Flush) {
            race.places.push(place);
        }
    }
    outcomes.extend(known.evidence.map(|it| it.recovery));
    for outcome in &outcomes {
        add_consequence(race, outcome);
    }
}

#[cfg(test)]
mod tests {
    use powerfail_finding::{Evidence, FailurePoint, LostLine, RecoveryOutcome};

    use super::*;
    use crate::root_cause::tests::unsafe_read;

    fn place(role: Role, line: u32) -> SourcePlace {
        SourcePlace {
            file: Some("list.c".into()),
            line: Some(line),
            ..SourcePlace::new(role)
        }
    }

    fn ended_by(signal: i32) -> RecoveryOutcome {
        RecoveryOutcome::Signal {
            signal,
            command: "recovery".into(),
            output: String::new(),
        }
    }

    fn shown(code: Code, failure: u32, signal: i32, lost: usize) -> Finding {
        let line = LostLine {
            pool: 0,
            pool_offset: 0,
            version: 0,
            stores: None,
        };
        let evidence = Evidence {
            failure: FailurePoint {
                event: u64::from(failure),
                lost_lines: vec![line; lost],
                again: None,
                filled: Vec::new(),
            },
            recovery: ended_by(signal),
            last_good_event: None,
            next_good_event: None,
            trace: None,
            difference: None,
            torn: false,
            choices: Vec::new(),
        };
        let places = vec![place(Role::Store, 7), place(Role::Failure, failure)];
        Finding {
            evidence: Some(evidence),
            ..Finding::new(code, String::new(), places)
        }
    }

    fn folded(known: Vec<Finding>, race: Finding) -> Vec<Finding> {
        let mut findings = known;
        fold(&mut findings, vec![race]);
        findings
    }

    #[test]
    fn a_race_lists_what_the_findings_that_it_takes_in_do() {
        let mut first = shown(Code::StoreNotFlushed, 20, 11, 2);
        first.consequences = vec![ended_by(8)];
        let second = shown(Code::RecoveryCrashes, 21, 7, 3);
        let race = shown(Code::CrossFailureRace, 30, 6, 1);
        let findings = folded(vec![first, second], race);
        let [race] = &findings[..] else {
            panic!("{findings:?}");
        };
        assert_eq!(race.evidence.as_ref().map(|it| it.failure.event), Some(30));
        let others = [7, 8, 11].map(ended_by);
        assert_eq!(race.consequences, others);
    }

    #[test]
    fn a_store_that_is_overwritten_before_it_is_durable_is_part_of_its_race() {
        let overwritten = || {
            let places = vec![place(Role::Store, 7), place(Role::Overwrite, 9)];
            Finding::new(Code::DirtyOverwrite, String::new(), places)
        };
        let race = shown(Code::CrossFailureRace, 30, 6, 1);
        assert!(are_about_one_store(&race, &overwritten()));
        let codes = |findings: &[Finding]| findings.iter().map(|it| it.code).collect::<Vec<_>>();
        let findings = folded(vec![overwritten()], race.clone());
        assert_eq!(codes(&findings), [Code::CrossFailureRace]);
        // What nothing confirms is not hidden behind what only costs time.
        let unconfirmed = Finding {
            evidence: None,
            severity: Severity::Warning,
            ..race
        };
        assert_eq!(folded(vec![overwritten()], unconfirmed).len(), 2);
    }

    #[test]
    fn what_the_lint_says_about_the_missing_flush_of_a_race_is_part_of_it() {
        let lint = |code, line| Finding::new(code, String::new(), vec![place(Role::Store, line)]);
        let race = |why| Finding {
            read: Some(unsafe_read(30, why)),
            ..shown(Code::CrossFailureRace, 30, 6, 1)
        };
        let unflushed = || race(NotDurable::NeverFlushed);
        for code in [Code::TransientData, Code::StoreNotFlushed] {
            assert!(are_about_one_store(&lint(code, 7), &unflushed()));
            assert_eq!(folded(vec![lint(code, 7)], unflushed()).len(), 1);
            assert!(!are_about_one_store(&lint(code, 8), &unflushed()));
        }
        // It is flushed, and only the fence is missing.
        let transient = lint(Code::TransientData, 7);
        let fenced = race(NotDurable::NotFenced);
        assert!(!are_about_one_store(&transient, &fenced));
        assert_eq!(folded(vec![transient], fenced).len(), 2);
    }

    #[test]
    fn a_loss_of_any_store_that_a_race_shows_is_about_it() {
        let mut race = shown(Code::CrossFailureRace, 30, 6, 1);
        race.places.push(place(Role::Store, 55));
        let mut lost = shown(Code::StoreNotFlushed, 20, 11, 1);
        for (line, is_about) in [(7, true), (55, true), (56, false)] {
            lost.places[0].line = Some(line);
            assert_eq!(are_about_one_store(&lost, &race), is_about, "{line}");
        }
    }

    #[test]
    fn a_race_of_stores_in_the_wrong_order_adds_its_reader() {
        let early = || {
            let mut known = shown(Code::RecoveryRejects, 20, 11, 0);
            known.places.push(place(Role::Survivor, 6));
            known
        };
        let race = |line: u32, lost: usize| {
            let mut race = shown(Code::CrossFailureRace, 30, 6, lost);
            race.places[0].line = Some(line);
            race.places.push(place(Role::Load, 40));
            race
        };
        // The later store lost, and the earlier one in place.
        for race in [race(7, 1), race(6, 0)] {
            assert!(are_about_one_store(&race, &early()));
            let findings = folded(vec![early()], race);
            let [known] = &findings[..] else {
                panic!("{findings:?}");
            };
            assert_eq!(known.code, Code::RecoveryRejects);
            assert!(known.places.iter().any(|it| it.role == Role::Load));
        }
        // If the earlier one is lost, something else is wrong as well.
        assert_eq!(folded(vec![early()], race(6, 1)).len(), 2);
    }

    #[test]
    fn what_the_lint_says_about_the_store_of_a_race_is_part_of_it() {
        let unflushed = |line: u32| Finding {
            severity: Severity::Warning,
            ..Finding::new(
                Code::StoreNotFlushed,
                String::new(),
                vec![place(Role::Store, line)],
            )
        };
        let race = shown(Code::CrossFailureRace, 30, 6, 1);
        let mut findings = vec![unflushed(7), race, unflushed(7), unflushed(8)];
        fold_unproven(&mut findings);
        let codes: Vec<_> = findings.iter().map(|it| it.code).collect();
        assert_eq!(codes, [Code::CrossFailureRace, Code::StoreNotFlushed]);
    }

    #[test]
    fn the_places_of_a_crash_come_with_its_evidence() {
        let known = shown(Code::StoreNotFlushed, 20, 11, 1);
        let race = shown(Code::CrossFailureRace, 30, 6, 2);
        let findings = folded(vec![known], race);
        let [race] = &findings[..] else {
            panic!("{findings:?}");
        };
        assert_eq!(race.evidence.as_ref().map(|it| it.failure.event), Some(20));
        let failures = race.places.iter().filter(|it| it.role == Role::Failure);
        let lines: Vec<_> = failures.map(|it| it.line).collect();
        assert_eq!(lines, [Some(20)]);
        assert_eq!(race.consequences, [ended_by(6)]);
    }

    #[test]
    fn a_race_that_another_loss_shows_adds_what_recovery_does_there() {
        let mut known = shown(Code::StoreNotFlushed, 20, 11, 1);
        known.places.push(place(Role::Survivor, 9));
        let mut race = shown(Code::CrossFailureRace, 30, 6, 1);
        race.places[0].line = Some(9);
        let mut findings = vec![known];
        fold_survivors(&mut findings, vec![race]);
        let [known] = &findings[..] else {
            panic!("{findings:?}");
        };
        assert_eq!(known.consequences, [ended_by(6)]);
    }
}
