//! What the lint found, as findings.

use powerfail_finding::{Code, Finding, Role, Severity, SourcePlace};
use powerfail_lint::{Hit, LintOptions, lint as find};
use powerfail_trace::Trace;

use crate::error::CheckError;
use crate::group::group;
use crate::places::{Access, Places};

/// What a lint of a trace has to say.
#[derive(Debug)]
pub struct Linted {
    /// What was found.
    pub findings: Vec<Finding>,
    /// What limits it.
    pub notes: Vec<String>,
}

/// Lints a trace. What a crash would have to confirm is left out, unless warnings are wanted; but a store that
/// its transaction does not know of is a warning in any case: the trace proves that much.
pub fn lint(
    trace: &Trace,
    options: &LintOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<Linted, CheckError> {
    let mut places = Places::new(trace, &options.trust);
    let found = find(trace, options, &mut places, progress)?;
    let shown = found
        .hits
        .iter()
        .filter(|hit| hit.confirmed || options.warnings || hit.code == Code::StoreNotAdded);
    let findings = shown.map(|hit| {
        let mut finding = finding(hit, &mut places);
        if !hit.confirmed {
            // Only a crash can show that it is one.
            finding.severity = Severity::Warning;
        }
        finding
    });
    Ok(Linted {
        findings: group(findings.collect()),
        notes: note(&found).into_iter().collect(),
    })
}

/// What annotations leave out, if they do.
pub(crate) fn note(found: &powerfail_lint::Linted) -> Option<String> {
    let events = match found.out_of_scope {
        0 => return None,
        1 => "1 store, flush or fence".to_owned(),
        count => format!("{count} stores, flushes and fences"),
    };
    Some(format!(
        "annotations of the program leave out findings about {events}"
    ))
}

pub(crate) fn found(
    trace: &Trace,
    options: &LintOptions,
    places: &mut Places<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<powerfail_lint::Linted, CheckError> {
    Ok(find(trace, options, places, progress)?)
}

pub(crate) fn finding(hit: &Hit, places: &mut Places<'_>) -> Finding {
    let places: Vec<SourcePlace> = hit
        .sites
        .iter()
        .map(|site| {
            let access = Access {
                stack: site.stack,
                user: site.user,
                event: site.event,
                place: site.place,
                len_bytes: site.len_bytes,
                bytes: &site.bytes,
            };
            places.of_access(site.role, &access)
        })
        .collect();
    Finding {
        count: hit.count,
        suggestion: suggestion(hit, &places),
        ..Finding::new(hit.code, message(hit, &places), places)
    }
}

/// `in insert`, where that is known.
fn whereabouts(place: Option<&SourcePlace>) -> String {
    place
        .and_then(|place| place.function.as_deref())
        .map_or_else(String::new, |function| format!(" in {function}"))
}

fn message(hit: &Hit, places: &[SourcePlace]) -> String {
    let here = whereabouts(places.first());
    match hit.code {
        Code::StoreNotFlushed => format!("the store{here} is never flushed"),
        Code::FlushNotFenced => format!("what is flushed{here} is never fenced"),
        Code::PublishedBeforeDurable => {
            let publisher = whereabouts(places.iter().find(|place| place.role == Role::Publish));
            format!("the data stored{here} is published{publisher} before it is durable")
        }
        Code::ObjectNotPersisted => format!("the object changed{here} is never persisted"),
        Code::StoreNotAdded => not_added(places, ""),
        Code::DuplicateAdd => {
            format!("the range added{here} is part of the transaction already")
        }
        Code::AddWithoutStore => {
            format!("the range added{here} is not stored to before the commit")
        }
        Code::RedundantFlush => format!("the flush{here} has nothing new to write back"),
        Code::RedundantFence => format!("the fence{here} has nothing to wait for"),
        Code::VolatileFlush => format!("the flush{here} is of memory that is not persistent"),
        Code::TransientData => format!("what is stored{here} is never made durable"),
        Code::DirtyOverwrite => {
            format!("the store{here} is overwritten before it was made durable")
        }
        Code::SharedFlush => format!("several stores become durable by one flush{here}"),
        Code::UnorderedFlushes => {
            format!("several flushes{here} are completed by one fence, in any order")
        }
        code => format!("{}{here}", code.title()),
    }
}

/// What is wrong with a store that its transaction does not know of, and what came of it.
pub(crate) fn not_added(places: &[SourcePlace], what: &str) -> String {
    let here = whereabouts(places.first());
    format!("the store{here} is to memory that its transaction has not added{what}")
}

fn line_of(place: &SourcePlace) -> Option<String> {
    let file = place.file.as_deref()?;
    let name = file.rsplit('/').next().unwrap_or(file);
    Some(format!("{name}:{}", place.line?))
}

fn suggestion(hit: &Hit, places: &[SourcePlace]) -> Option<String> {
    let first = places.first().and_then(line_of);
    let at = first.as_deref().unwrap_or("this place");
    Some(match hit.code {
        Code::StoreNotFlushed => format!("flush the line after the store at {at}, then fence"),
        Code::FlushNotFenced => format!("add a fence after the flush of what is stored at {at}"),
        Code::PublishedBeforeDurable => {
            let publish = places
                .iter()
                .find(|place| place.role == Role::Publish)
                .and_then(line_of)
                .unwrap_or_else(|| "it is published".into());
            format!("flush what is stored at {at} and fence before {publish}")
        }
        Code::ObjectNotPersisted => {
            format!("persist it after the store at {at}, or change it in a transaction")
        }
        Code::StoreNotAdded => format!("add the range to the transaction before the store at {at}"),
        Code::DuplicateAdd if hit.of > Some(hit.count) => {
            format!("leave out the add at {at} where the range is there already")
        }
        Code::DuplicateAdd | Code::AddWithoutStore => format!("remove the add at {at}"),
        Code::RedundantFlush => format!("remove the flush at {at}"),
        Code::RedundantFence => format!("remove the fence at {at}"),
        Code::VolatileFlush => format!("remove the flush at {at}, or flush the pool instead"),
        Code::TransientData => {
            format!("keep it in volatile memory, or flush it after the store at {at}")
        }
        Code::DirtyOverwrite => format!("make the value of {at} durable first, or do not store it"),
        _ => return None,
    })
}
