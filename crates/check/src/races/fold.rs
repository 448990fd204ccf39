//! One bug once: a race and what other crashes blame on the loss of the same store.

use powerfail_finding::{Code, Evidence, Finding, Role, Severity, SourcePlace};

use crate::places::{CodeLine, line_of};

/// Adds races to what is known. Where recovery was seen to fail because of a race, whatever else is blamed on
/// the loss of the same store is the same bug, and the race says more about it: who reads it, and why that is not
/// safe. A race of which no run shows that it matters adds its reader to what is known about the store.
pub(crate) fn fold(findings: &mut Vec<Finding>, mut races: Vec<Finding>) {
    // What others are folded into comes first.
    races.sort_by_key(|race| (race.severity != Severity::Error, race.evidence.is_none()));
    for mut race in races {
        let Some(writer) = store_of(&race).map(line_of) else {
            findings.push(race);
            continue;
        };
        let needs_no_loss = evidence_of(&race).is_some_and(|it| it.failure.lost_lines.is_empty());
        let is_about =
            |known: &Finding| blames(known, &writer) || needs_no_loss && survives(known, &writer);
        if race.code == Code::CrossFailureRace && race.evidence.is_some() {
            while let Some(place) = findings.iter().position(is_about) {
                let known = findings.remove(place);
                absorb(&mut race, known);
            }
            findings.push(race);
        } else if race.code == Code::CrossFailureRace
            && let Some(known) = findings.iter_mut().find(|known| is_about(known))
        {
            add_readers(known, race);
        } else {
            findings.push(race);
        }
    }
}

/// Adds races that the loss of other stores shows: what is known about that loss says which store is to blame, and gets
/// the reader. Nothing else is folded into these races.
pub(crate) fn fold_survivors(findings: &mut Vec<Finding>, races: Vec<Finding>) {
    for race in races {
        let writer = store_of(&race).map(line_of);
        let is_about = |known: &&mut Finding| {
            let mut survivors = known.places.iter();
            known.severity == Severity::Error
                && survivors.any(|it| {
                    matches!(it.role, Role::Survivor | Role::Publish) && Some(line_of(it)) == writer
                })
        };
        match findings.iter_mut().find(is_about) {
            Some(known) => add_readers(known, race),
            None => findings.push(race),
        }
    }
}

/// Adds the readers of a race that are not known yet.
fn add_readers(known: &mut Finding, race: Finding) {
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

/// Whether recovery fails with every store in place, up to the store of a line.
fn survives(finding: &Finding, writer: &CodeLine) -> bool {
    let mut stores = finding.places.iter().filter(|it| it.role == Role::Survivor);
    finding.severity == Severity::Error
        && evidence_of(finding).is_some_and(|it| it.failure.lost_lines.is_empty())
        && stores.any(|it| line_of(it) == *writer)
}

fn evidence_of(finding: &Finding) -> Option<&Evidence> {
    finding.evidence.as_ref()
}

/// What fewer lost lines show is shown better. A fix belongs to the crash state that it makes impossible.
fn absorb(race: &mut Finding, known: Finding) {
    let lost = |finding: &Finding| {
        let evidence = finding.evidence.as_ref();
        evidence.map_or(usize::MAX, |it| it.failure.lost_lines.len())
    };
    let is_fixed = known.fix.is_some() && race.fix.is_none() && known.evidence.is_some();
    if is_fixed || lost(&known) < lost(race) {
        race.evidence = known.evidence;
        race.fix = known.fix;
        race.suggestion = known.suggestion;
    }
    for place in known.places {
        let is_new = race.places.iter().all(|it| it.role != place.role);
        if is_new && matches!(place.role, Role::Survivor | Role::Publish | Role::Flush) {
            race.places.push(place);
        }
    }
}
