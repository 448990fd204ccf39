//! A crash of ordinary files: when the power failed, what was lost, on which file systems, what recovery did.

use powerfail_finding::{Evidence, Role, SourcePlace, TreeCrash};

use super::evidence::{difference, outcome};
use crate::text::{plural, printable};

pub(super) fn texts(
    evidence: &Evidence,
    crash: &TreeCrash,
    places: &[SourcePlace],
) -> Vec<(&'static str, String)> {
    let mut texts = vec![("failure", failure(evidence, crash, places))];
    let lost = lost(crash);
    if !lost.is_empty() {
        texts.push(("lost", lost));
    }
    if !crash.shows_on.is_empty() {
        let shows = crash.shows_on.iter().map(|it| {
            let shows = if it.shows { "yes" } else { "no" };
            format!("{}: {shows}", printable(&it.file_system))
        });
        texts.push(("shows on", shows.collect::<Vec<_>>().join(", ")));
    }
    texts.push(outcome(&evidence.recovery));
    texts.extend(difference(evidence));
    texts
}

fn failure(evidence: &Evidence, crash: &TreeCrash, places: &[SourcePlace]) -> String {
    let at = evidence.failure.event;
    let with = |role: Role| places.iter().find(move |it| it.role == role);
    // Where nothing is lost, the operation that would have helped may be the very next one.
    let here = with(Role::Failure).or_else(|| with(Role::Store).filter(|_| crash.is_prefix()));
    let mut text = match here.and_then(|it| it.operation.as_deref()) {
        Some(operation) => format!(
            "power fails before event {at}, the {}",
            printable(operation)
        ),
        None => format!("power fails before event {at}"),
    };
    if crash.is_prefix() {
        text += ", with everything before it durable";
    }
    if let Some(last) = evidence.last_good_event {
        text = format!("{text}\nrecovery succeeds before event {last}");
    }
    if let Some(next) = evidence.next_good_event {
        text = format!("{text}\nrecovery succeeds again before event {next}");
    }
    text
}

/// What is lost, in numbers: the places name what matters.
pub(crate) fn lost(crash: &TreeCrash) -> String {
    let mut parts = Vec::new();
    if !crash.lost.is_empty() {
        let operations = plural(crash.lost.len() as u64, "operation");
        parts.push(format!("{operations} on names"));
    }
    if !crash.lengths.is_empty() {
        parts.push(format!(
            "the newest length of {}",
            plural(crash.lengths.len() as u64, "file")
        ));
    }
    if !crash.pages.is_empty() {
        let pages = plural(crash.pages.len() as u64, "page");
        parts.push(format!("the newest content of {pages}"));
    }
    parts.join(", ")
}
