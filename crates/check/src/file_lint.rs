//! From hits of the lint of ordinary files to findings.

use powerfail_finding::{Code, Finding, Role, Severity, SourcePlace};
use powerfail_lint::files::{FileHit, FileLintOptions, lint_trace};
use powerfail_model::EventIndex;
use powerfail_trace::Trace;

use crate::error::CheckError;
use crate::places::Places;

/// The findings about the files of the trees of a trace. Candidates, which only a crash can confirm, are warnings and only
/// there if they are wanted.
pub(crate) fn findings(
    trace: &Trace,
    candidates: bool,
    places: &mut Places<'_>,
) -> Result<Vec<Finding>, CheckError> {
    let hits = hits(trace, candidates)?;
    hits.iter().map(|hit| finding(hit, places)).collect()
}

/// The patterns in a trace that are shown.
pub(crate) fn hits(trace: &Trace, candidates: bool) -> Result<Vec<FileHit>, CheckError> {
    let mut hits = lint_trace(trace, FileLintOptions::default())?;
    hits.retain(|hit| hit.confirmed || candidates);
    Ok(hits)
}

/// The finding of a pattern.
pub(crate) fn finding(hit: &FileHit, places: &mut Places<'_>) -> Result<Finding, CheckError> {
    let mut found = Vec::new();
    for site in &hit.sites {
        let mut place = places.of_event(site.role, EventIndex(site.index.0))?;
        let is_first = !found.iter().any(|it: &SourcePlace| it.role == site.role);
        place.operation = noun(hit.code, site.role, is_first).map(str::to_owned);
        found.push(place);
    }
    let mut finding = Finding {
        count: hit.count,
        ..Finding::new(hit.code, message(hit, &found), found)
    };
    if !hit.confirmed {
        finding.severity = Severity::Warning;
    }
    if let Some(help) = help(hit, &finding.places) {
        finding.explain(help);
    }
    Ok(finding)
}

/// What an operation with a part in a hit is called.
const fn noun(code: Code, role: Role, is_first: bool) -> Option<&'static str> {
    Some(match (code, role) {
        (Code::DirectoryNotSynced, Role::Store) => "change of a name",
        (Code::TemporaryElsewhere, Role::Store) => "copy",
        (_, Role::Store) => "write",
        (Code::RemovedBeforeSynced, Role::Publish) => "removal",
        (_, Role::Publish) => "rename",
        (_, Role::Overwrite) => "truncation",
        (Code::SyncRetried, Role::Flush) if is_first => "sync fails",
        (Code::SyncRetried, Role::Flush) => "sync succeeds",
        (_, Role::Flush) => "sync",
        _ => return None,
    })
}

/// ` in save`, where that is known.
fn function(places: &[SourcePlace], role: Role) -> String {
    let place = places.iter().find(|place| place.role == role);
    place.map_or_else(String::new, SourcePlace::in_function)
}

fn message(hit: &FileHit, places: &[SourcePlace]) -> String {
    let store = function(places, Role::Store);
    let publish = function(places, Role::Publish);
    match hit.code {
        Code::NamedBeforeSynced => {
            format!("the file written{store} gets its name{publish} before its data is durable")
        }
        Code::DirectoryNotSynced => {
            format!("the change of a name{store} is not made durable: its directory is not synced")
        }
        Code::WriteNotSynced => format!("the data written{store} is not synced"),
        Code::TruncatedInPlace => {
            let cut = function(places, Role::Overwrite);
            format!("the file truncated{cut} is rewritten in place{store}")
        }
        Code::RemovedBeforeSynced => {
            format!("the old file is removed{publish} before the data written{store} is durable")
        }
        Code::RedundantSync => {
            let sync = function(places, Role::Flush);
            let of = match hit.of {
                Some(all) if all > hit.count => {
                    format!(", in {} of {all} executions", hit.count)
                }
                _ => String::new(),
            };
            format!("the sync{sync} makes nothing durable that is not{of}")
        }
        Code::SyncRetried => {
            let sync = function(places, Role::Flush);
            format!(
                "the sync{sync} succeeds after it has failed, and the data written{store} may be lost"
            )
        }
        Code::TemporaryElsewhere => format!(
            "the rename{publish} crosses file systems, so the file is copied{store} and not replaced in one step"
        ),
        code => code.title().to_owned(),
    }
}

/// What to do.
fn help(hit: &FileHit, places: &[SourcePlace]) -> Option<String> {
    let line = |role: Role| {
        let place = places.iter().find(|place| place.role == role)?;
        place.file_and_line()
    };
    let publish = || line(Role::Publish).unwrap_or_else(|| "that".to_owned());
    Some(match hit.code {
        Code::NamedBeforeSynced | Code::RemovedBeforeSynced => {
            format!("an fsync of the new file before {} makes its data durable in time", publish())
        }
        Code::DirectoryNotSynced => {
            "an fsync of the directory makes the change of the name durable".to_owned()
        }
        Code::WriteNotSynced => "an fdatasync of the file makes the data durable".to_owned(),
        Code::TruncatedInPlace => {
            "a new file that is synced and renamed over the old one is there as a whole or not at all".to_owned()
        }
        Code::SyncRetried => {
            "after an error the kernel forgets the data: write it again, or stop and recover as after a crash".to_owned()
        }
        Code::TemporaryElsewhere => {
            "a temporary file in the directory of the file that it replaces can be renamed".to_owned()
        }
        Code::RedundantSync => {
            let range = hit.beside?.range;
            format!(
                "it covers {:#x}-{:#x}, and the data of the file that is not durable lies elsewhere: check the range",
                range.offset,
                range.end()
            )
        }
        _ => return None,
    })
}
