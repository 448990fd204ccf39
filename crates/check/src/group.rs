//! One finding for one root cause.

use powerfail_finding::{Code, Finding, Role, Severity, SourcePlace, assign_ids};

/// A line to blame, and for what.
type Blamed = (Role, Option<String>, Option<u32>, Option<String>);

/// What makes two findings the same bug: the kind, and the lines to blame.
fn key(finding: &Finding) -> (Code, Vec<Blamed>) {
    // One store is to blame, whichever other one shows it.
    let is_of_one_store = matches!(finding.code, Code::StoreNotFlushed | Code::FlushNotFenced);
    let blamed = |place: &&SourcePlace| {
        if is_of_one_store {
            return place.role == Role::Store;
        }
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
            // What a crash has shown says more than what the trace says alone.
            Some(known) if known.evidence.is_none() && finding.evidence.is_some() => {
                let count = known.count.max(finding.count);
                *known = Finding { count, ..finding };
            }
            Some(known) if known.evidence.is_some() && finding.evidence.is_none() => {}
            Some(known) => known.count += finding.count,
            None => grouped.push(finding),
        }
    }
    // What recovery misses when it is lost is no transient data.
    let missed: Vec<_> = grouped
        .iter()
        .filter(|finding| finding.code == Code::StoreNotFlushed && finding.evidence.is_some())
        .flat_map(|finding| key(finding).1)
        .collect();
    grouped.retain(|finding| {
        finding.code != Code::TransientData
            || !key(finding).1.iter().any(|place| missed.contains(place))
    });
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
