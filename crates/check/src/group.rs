//! One finding for one root cause.

use powerfail_finding::{Code, Finding, Role, Severity, SourcePlace, assign_ids};

/// A line to blame, and for what.
type Blamed = (Role, Option<String>, Option<u32>, Option<String>);

/// What makes two findings the same bug: the kind, and the lines to blame.
fn key(finding: &Finding) -> (Code, Vec<Blamed>) {
    let blamed = |place: &&SourcePlace| {
        matches!(
            place.role,
            Role::Store
                | Role::Survivor
                | Role::Overwrite
                | Role::Publish
                | Role::Flush
                | Role::Fence
        )
    };
    let places = finding.places.iter().filter(blamed);
    let lines = places.map(|place| {
        (
            place.role,
            place.file.clone(),
            place.line,
            place.function.clone(),
        )
    });
    (finding.code, lines.collect())
}

/// Puts findings of the same bug together, sorts them and gives them their ids.
pub(crate) fn group(findings: Vec<Finding>) -> Vec<Finding> {
    let mut grouped: Vec<Finding> = Vec::new();
    for finding in findings {
        match grouped.iter_mut().find(|known| key(known) == key(&finding)) {
            Some(known) => known.count += finding.count,
            None => grouped.push(finding),
        }
    }
    let order = |finding: &Finding| {
        let first = finding.places.first();
        (
            finding.severity != Severity::Error,
            finding.severity,
            finding.code,
            first.and_then(|place| place.file.clone()),
            first.and_then(|place| place.line),
            first.and_then(|place| place.event),
        )
    };
    grouped.sort_by_key(order);
    assign_ids(&mut grouped);
    grouped
}
