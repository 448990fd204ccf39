//! From hits of the lint to findings.

use powerfail_finding::{Code, Finding, Role, Severity, SourcePlace, Totals};
use powerfail_lint::{Caution, Hit, LintOptions, lint as find};
use powerfail_trace::Trace;

use crate::error::CheckError;
use crate::fresh_name::FreshName;
use crate::group::group;
use crate::marks::add_marks;
use crate::places::{Access, Places};
use crate::remedy::Remedy;

/// The result of a lint.
#[derive(Debug)]
pub struct LintFindings {
    /// The findings.
    pub findings: Vec<Finding>,
    /// What limits the result, for the report.
    pub notes: Vec<String>,
}

/// Lints a trace. Candidates that only a crash can confirm are left out, unless warnings are wanted. A store to memory
/// that its transaction has not added is always reported, as a warning: the trace proves that much.
pub fn lint(
    trace: &Trace,
    options: &LintOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<LintFindings, CheckError> {
    let mut places = Places::new(trace, &options.trust).of_domain(options.domain);
    let found = find(trace, options, &mut places, progress)?;
    let shown = found
        .hits
        .iter()
        .filter(|hit| hit.confirmed || options.warnings || hit.code == Code::StoreNotAdded);
    let findings = shown.map(|hit| {
        let mut finding = finding(hit, &mut places);
        if !hit.confirmed {
            // Only a crash can show that it is an error.
            finding.severity = Severity::Warning;
        }
        finding
    });
    let mut findings = group(findings.collect());
    places.name_syncs(&mut findings)?;
    add_marks(trace, &mut findings)?;
    let notes = note(&found).into_iter().chain(places.notes());
    let mut linted = LintFindings {
        findings,
        notes: notes.collect(),
    };
    let LintFindings { findings, notes } = &mut linted;
    FreshName::of(trace).hide_in(findings, &mut Totals::default(), notes);
    Ok(linted)
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
    let remedy = places.remedy();
    let places: Vec<SourcePlace> = hit
        .sites
        .iter()
        .map(|site| {
            let access = Access {
                stack: site.stack,
                user: site.user,
                inlined: site.inlined,
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
        suggestion: suggestion(hit, &places, remedy),
        ..Finding::new(hit.code, message(hit, &places, remedy), places)
    }
}

/// ` in insert`, where that is known.
fn in_function(place: Option<&SourcePlace>) -> String {
    place.map_or_else(String::new, SourcePlace::in_function)
}

fn message(hit: &Hit, places: &[SourcePlace], remedy: Remedy) -> String {
    let here = in_function(places.first());
    match hit.code {
        Code::StoreNotFlushed => format!("the store{here} is never {}", remedy.done()),
        Code::FlushNotFenced => format!("the flush{here} is never fenced"),
        Code::PublishedBeforeDurable => {
            let publisher = in_function(places.iter().find(|place| place.role == Role::Publish));
            format!("the data stored{here} is published{publisher} before it is durable")
        }
        Code::ObjectNotPersisted => format!("the object changed{here} is never persisted"),
        Code::StoreNotAdded => not_added(places, ""),
        Code::DuplicateAdd => {
            format!(
                "the range added{here} is already part of the transaction{}",
                how_often(hit)
            )
        }
        Code::AddWithoutStore => {
            format!("the range added{here} is not stored to before the commit")
        }
        Code::RedundantFlush => {
            let operation = remedy.operation();
            format!(
                "the {operation}{here} writes back nothing new{}",
                how_often(hit)
            )
        }
        Code::RedundantFence => {
            format!("the fence{here} has nothing to wait for{}", how_often(hit))
        }
        Code::VolatileFlush => {
            format!("the flush{here} is of volatile memory{}", how_often(hit))
        }
        Code::TransientData => format!("the data stored{here} is never made durable"),
        Code::DirtyOverwrite => {
            format!("the store{here} is overwritten before it is durable")
        }
        Code::SharedFlush => format!("one flush{here} makes several stores durable"),
        Code::UnorderedFlushes => {
            format!("one fence completes several flushes{here}, in any order")
        }
        code => format!("{}{here}", code.title()),
    }
}

/// `, in 3 of 4 executions`, if a line of code is useful in the others.
fn how_often(hit: &Hit) -> String {
    match hit.of {
        Some(all) if all > hit.count => format!(", in {} of {all} executions", hit.count),
        _ => String::new(),
    }
}

/// What to do about a flush, fence or add that is not needed. What is needed in another execution of the same line stays.
fn without(hit: &Hit, at: &str, remedy: Remedy) -> String {
    let (what, needed) = match hit.code {
        Code::RedundantFence => ("fence", "a flush or non-temporal store came before"),
        Code::VolatileFlush => ("flush", "the memory is in a pool"),
        Code::DuplicateAdd | Code::AddWithoutStore => ("add", "the range is not yet added"),
        _ => (remedy.operation(), "something new was stored"),
    };
    if hit.of > Some(hit.count) {
        return format!("{what} at {at} only where {needed}");
    }
    let call = if hit.is_caller { "in the call " } else { "" };
    let verb = if hit.is_caller { "skip" } else { "remove" };
    if hit.caution == Some(Caution::OrdersThreads) {
        format!(
            "{verb} the {what} {call}at {at}, unless other threads need it: the flush after it does not"
        )
    } else if hit.caution == Some(Caution::NeededFence) {
        format!(
            "{verb} the {what} {call}at {at}, but keep its fence, which completes other flushes"
        )
    } else {
        format!("{verb} the {what} {call}at {at}")
    }
}

/// The message about a store to memory that its transaction has not added; `what` continues it.
pub(crate) fn not_added(places: &[SourcePlace], what: &str) -> String {
    let here = in_function(places.first());
    format!("the store{here} is to memory that its transaction has not added{what}")
}

fn suggestion(hit: &Hit, places: &[SourcePlace], remedy: Remedy) -> Option<String> {
    let first = places.first().and_then(SourcePlace::file_and_line);
    let at = first.as_deref().unwrap_or("this place");
    Some(match hit.code {
        Code::StoreNotFlushed => remedy.after_store(at),
        Code::FlushNotFenced => format!("fence after the flush of the data stored at {at}"),
        Code::PublishedBeforeDurable => {
            let publish = places
                .iter()
                .find(|place| place.role == Role::Publish)
                .and_then(SourcePlace::file_and_line)
                .unwrap_or_else(|| "it is published".into());
            let durable = remedy.of(&format!("the data stored at {at}"));
            format!("{durable} before {publish}")
        }
        Code::ObjectNotPersisted => {
            format!("persist the object after the store at {at}, or change it in a transaction")
        }
        Code::StoreNotAdded => format!("add the range to the transaction before the store at {at}"),
        Code::DuplicateAdd
        | Code::AddWithoutStore
        | Code::RedundantFlush
        | Code::RedundantFence => without(hit, at, remedy),
        Code::VolatileFlush => format!("{}, or flush the pool instead", without(hit, at, remedy)),
        Code::TransientData => {
            let durable = remedy.of("it");
            format!(
                "{durable} after the store at {at}, or keep the data in volatile memory if it need not survive"
            )
        }
        Code::DirtyOverwrite => {
            format!("make the value stored at {at} durable first, or do not store it")
        }
        _ => return None,
    })
}
