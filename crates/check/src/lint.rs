//! From hits of the lint to findings.

use powerfail_finding::{
    Action, Change, Code, Finding, Fix, Operation, Role, Severity, SourcePlace, Totals,
};
use powerfail_lint::{Caution, Hit, LintOptions, lint_while as find};
use powerfail_model::Domain;
use powerfail_trace::{Module, Trace};

use crate::error::CheckError;
use crate::file_lint;
use crate::fix::{BadState, Missing};
use crate::fresh_name::FreshName;
use crate::group::group;
use crate::marks::add_marks;
use crate::places::{Access, Places};
use crate::remedy::Remedy;
use crate::tree::TreeRecording;

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
    let found = found(trace, options, &mut places, progress)?;
    let shown = found
        .hits
        .iter()
        .filter(|hit| hit.confirmed || options.warnings || hit.code == Code::StoreNotAdded);
    let mut findings = Vec::new();
    for hit in shown {
        let mut finding = finding(hit, &mut places)?;
        if !hit.confirmed {
            // Only a crash can show that it is an error.
            finding.severity = Severity::Warning;
        }
        findings.push(finding);
    }
    if TreeRecording::crashes(trace, options.domain) {
        findings.extend(file_lint::findings(trace, options.warnings, &mut places)?);
    }
    let mut findings = group(findings);
    places.name_syncs(&mut findings)?;
    add_marks(trace, &mut findings, &|| false)?;
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
    let found = found_while(trace, options, places, &mut |done| {
        progress(done);
        true
    })?;
    Ok(found.unwrap_or_default())
}

/// The same, while `progress` says that there is time; `None` if there was not enough.
pub(crate) fn found_while(
    trace: &Trace,
    options: &LintOptions,
    places: &mut Places<'_>,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Option<powerfail_lint::Linted>, CheckError> {
    let mut found = find(trace, options, places, progress)?;
    if let Some(found) = &mut found {
        found
            .hits
            .retain(|hit| !overwrites_module_addresses(trace, hit));
    }
    Ok(found)
}

/// Whether a store of an address in a module is overwritten by another such address, as constructors do with the pointer to
/// the virtual functions. It means nothing in another run, so it is not to be made durable.
fn overwrites_module_addresses(trace: &Trace, hit: &Hit) -> bool {
    let is_address = |role: Role| {
        let site = hit.sites.iter().find(|site| site.role == role);
        let bytes = site.and_then(|site| <[u8; 8]>::try_from(&site.bytes[..]).ok());
        let value = bytes.map(u64::from_le_bytes);
        let is_in = |module: &Module, value: u64| {
            let end = module.load_address.saturating_add(module.len_bytes);
            (module.load_address..end).contains(&value)
        };
        value.is_some_and(|value| trace.modules().iter().any(|module| is_in(module, value)))
    };
    hit.code == Code::DirtyOverwrite && is_address(Role::Store) && is_address(Role::Overwrite)
}

pub(crate) fn finding(hit: &Hit, places: &mut Places<'_>) -> Result<Finding, CheckError> {
    let remedy = places.remedy();
    let names_caller = !is_of_helper(hit, places)?;
    let mut found: Vec<SourcePlace> = Vec::new();
    for site in &hit.sites {
        let access = Access {
            stack: site.stack,
            user: site.user,
            inlined: site.inlined,
            event: site.event,
            place: site.place,
            len_bytes: site.len_bytes,
            bytes: &site.bytes,
            names_caller,
        };
        found.push(places.of_access(site.role, &access)?);
    }
    let mut finding = Finding {
        count: hit.count,
        ..Finding::new(hit.code, message(hit, &found, remedy), found)
    };
    advise(hit, &mut finding, places)?;
    Ok(finding)
}

/// Whether a helper is to blame, and not the line that calls it: it lacks a flush in each of its executions. What is
/// useless is attributed to the right line already.
fn is_of_helper(hit: &Hit, places: &mut Places<'_>) -> Result<bool, CheckError> {
    let Some(site) = hit.sites.first().filter(|site| site.role == Role::Store) else {
        return Ok(true);
    };
    let stores = places.stores_of_helper(site.stack)?;
    Ok(stores.is_some_and(|stores| hit.count >= stores))
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
        Code::SharedFlush => {
            let operation = remedy.operation();
            format!("one {operation}{here} makes several stores durable")
        }
        Code::UnorderedFlushes => {
            format!("one fence completes several flushes{here}, in any order")
        }
        Code::NeighbourFlush => {
            format!("the store{here} is durable only because it shares a line with what is flushed")
        }
        Code::LateFlush => format!("the store{here} stays dirty over many fences"),
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
        format!("{verb} the {what} {call}at {at}, unless other threads need it")
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

/// Adds what to do, where that is verified.
fn advise(hit: &Hit, finding: &mut Finding, places: &mut Places<'_>) -> Result<(), CheckError> {
    match hit.code {
        Code::StoreNotAdded => add_range(hit, finding),
        Code::DuplicateAdd
        | Code::AddWithoutStore
        | Code::RedundantFlush
        | Code::RedundantFence
        | Code::VolatileFlush => remove(hit, finding, places.remedy()),
        _ => make_durable(hit, finding, places)?,
    }
    if hit.code == Code::VolatileFlush {
        finding.explain("if data in a pool was meant, this does not flush it".to_owned());
    }
    if hit.code == Code::DirtyOverwrite {
        finding.explain(
            "if recovery does not need the first value, not storing it costs less than a flush"
                .to_owned(),
        );
    }
    if hit.code == Code::TransientData {
        finding.explain("data that need not survive can be kept in volatile memory".to_owned());
    }
    Ok(())
}

/// Where a finding is.
fn at(finding: &Finding) -> String {
    let first = finding.places.first().and_then(SourcePlace::file_and_line);
    first.unwrap_or_else(|| "this place".to_owned())
}

/// Adds what makes the store of a hit durable in time.
fn make_durable(
    hit: &Hit,
    finding: &mut Finding,
    places: &mut Places<'_>,
) -> Result<(), CheckError> {
    let remedy = places.remedy();
    let site = |role: Role| hit.sites.iter().find(|site| site.role == role);
    let line = |role: Role| {
        let mut places = finding.places.iter();
        let place = places.find(|place| place.role == role);
        place.and_then(SourcePlace::file_and_line)
    };
    let at = at(finding);
    let before = |role: Role, otherwise: &str| {
        let durable = remedy.of(&format!("the data stored at {at}"));
        let line = line(role).unwrap_or_else(|| otherwise.to_owned());
        format!("{durable} before {line}")
    };
    let Some((store, place)) = site(Role::Store).and_then(|it| Some((it, it.place?))) else {
        return Ok(());
    };
    let (until, missing, words) = match hit.code {
        Code::StoreNotFlushed | Code::TransientData => (None, None, remedy.after_store(&at)),
        Code::ObjectNotPersisted => {
            let words = format!("persist the object after the store at {at}");
            (None, None, words)
        }
        Code::FlushNotFenced => {
            // A store past the cache is its own flush.
            let flush = site(Role::Flush).map_or(store.event, |it| it.event);
            let words = format!("fence after the flush of the data stored at {at}");
            (None, Some(Missing::Fence(flush)), words)
        }
        Code::PublishedBeforeDurable => (
            site(Role::Publish),
            None,
            before(Role::Publish, "it is published"),
        ),
        Code::DirtyOverwrite => (
            site(Role::Overwrite),
            None,
            format!(
                "if recovery needs the first value, {}",
                before(Role::Overwrite, "it is overwritten")
            ),
        ),
        _ => return Ok(()),
    };
    let bad = BadState::never_durable(place, store.len_bytes, store.event, remedy.0);
    let bad = bad.until(until.map(|site| site.event.0));
    let missing = missing.unwrap_or(Missing::Flush(store.event));
    Ok(places.advise(finding, missing, &bad, words)?)
}

/// Lets the transaction of a store know its range. The store is inside of the transaction, so a rollback undoes it then.
fn add_range(hit: &Hit, finding: &mut Finding) {
    let at = at(finding);
    finding.suggestion = Some(format!(
        "add the range to the transaction before the store at {at}"
    ));
    finding.fix = change(hit, finding, Action::Insert, Operation::Add);
}

/// Removes what is useless in every execution of its line, or in those that the words name: the lint has looked at each.
fn remove(hit: &Hit, finding: &mut Finding, remedy: Remedy) {
    let operation = match hit.code {
        Code::DuplicateAdd | Code::AddWithoutStore => Operation::Add,
        Code::RedundantFence => Operation::Fence,
        _ if remedy == Remedy(Domain::PageCache) => Operation::Sync,
        _ => Operation::Flush,
    };
    finding.suggestion = Some(without(hit, &at(finding), remedy));
    finding.fix = change(hit, finding, Action::Remove, operation);
}

fn change(hit: &Hit, finding: &Finding, action: Action, operation: Operation) -> Option<Fix> {
    let (site, place) = (hit.sites.first()?, finding.places.first()?);
    Some(Fix::verified(vec![Change {
        action,
        operation,
        event: site.event.0,
        file: place.file.clone(),
        line: place.line,
        pool: site.place.map(|at| at.pool.0),
        pool_offset: site.place.map(|at| at.offset.0),
        len_bytes: (site.len_bytes > 0).then_some(site.len_bytes),
    }]))
}
