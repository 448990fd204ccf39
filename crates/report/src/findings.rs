//! Findings: on their source lines for people, and as JSON for machines.
//!
//! A finding looks like a compiler error: what is wrong, the source lines, the call stacks, what a crash
//! showed, what to do. `snippet.rs` has the lines, `label.rs` the
//! words beside them, `stack.rs` the calls, `evidence.rs` what recovery did, `choices.rs` what it could have
//! read, `mark.rs` the marks of the program, `read.rs` an unsafe read, `commits.rs` proposed commit variables,
//! `tree.rs` a crash of ordinary files, `summary.rs` the end.
//! Source files are shown if they exist; a report without them is complete.

mod choices;
mod combinations;
mod commits;
mod evidence;
mod label;
mod mark;
mod read;
mod snippet;
mod stack;
mod summary;
mod tree;

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use annotate_snippets::{Group, Level, Renderer};
use powerfail_finding::{
    Code, DurableBy, Evidence, Finding, RecoveryOutcome, Report, Role, Severity, SourcePlace,
};
use schemars::Schema;

use crate::text::{count, plural, printable, shell_word};

pub use combinations::combinations;
pub(crate) use label::label;
pub(crate) use summary::not_checked_text;
pub use summary::summary;
pub(crate) use summary::{coverage, not_checked_sentence};
pub(crate) use tree::lost as lost_of_tree;

/// How wide text may be where no terminal says.
const DEFAULT_WIDTH: usize = 120;

/// What the caller decides about the text.
#[derive(Clone, Copy, Debug)]
pub struct TextOptions<'a> {
    /// The width of the terminal, if there is one.
    pub width: Option<usize>,
    /// The directory against which relative source paths are read; paths below it are shown without
    /// it. The working directory, usually.
    pub base: &'a Path,
    /// The output directory, for the command that reproduces a finding. Without it nothing can be
    /// replayed.
    pub out: Option<&'a Path>,
    /// Whether warnings are shown, or only counted.
    pub warnings: bool,
}

/// The whole report: each finding, then the summary.
pub fn report(out: &mut dyn Write, report: &Report, options: &TextOptions<'_>) -> io::Result<()> {
    let mut sources = snippet::Sources::new(options.base);
    for finding in shown(report, options) {
        one(out, finding, options, &mut sources)?;
        writeln!(out)?;
    }
    commits::commits(out, &report.totals.commit_variables)?;
    summary(out, report, options)
}

/// The end of what recovery wrote, in lines that are indented.
pub fn outcome_output(outcome: &RecoveryOutcome) -> String {
    let (_, text) = evidence::outcome(outcome);
    text.lines().skip(1).collect::<Vec<_>>().join("\n")
}

/// When the power failed and what recovery did then, in one sentence.
pub(crate) fn outcome_sentence(evidence: &Evidence) -> String {
    let again = match &evidence.failure.again {
        Some(_) => " and another one during recovery",
        None => "",
    };
    format!(
        "after a power failure before event {}{again}, {} {}",
        evidence.failure.event,
        evidence.recovery.command(),
        evidence.recovery
    )
}

/// What will be tried.
pub fn plan_sentence(
    runs: u64,
    points: u64,
    estimate: Duration,
    budget: Option<Duration>,
) -> String {
    let most = budget.map_or_else(String::new, |budget| {
        format!(
            "; everything together takes {} s at most (--budget)",
            (budget.as_secs_f64() * 10.0).round() / 10.0
        )
    });
    format!(
        "{} on crash images, for {}, about {:.1} s{most}",
        plural(runs, "recovery run"),
        plural(points, "failure point"),
        estimate.as_secs_f64()
    )
}

/// One line about a failure whose cause is not known yet.
pub fn failing_notice(code: Code, event: u64) -> String {
    format!(
        "recovery fails ({}) if the power fails before event {event}; looking for the cause",
        code.class().as_str()
    )
}

/// One line about a finding that was just confirmed. The report says the rest.
pub fn notice(finding: &Finding) -> String {
    let severity = match finding.severity {
        Severity::Error => "error",
        Severity::Performance => "performance",
        Severity::Warning => "warning",
    };
    let place = finding.places.first();
    let place = place.and_then(|place| Some((place.file.as_deref()?, place.line?)));
    let place = place.map_or_else(String::new, |(file, line)| {
        format!(" ({}:{line})", printable(file))
    });
    format!(
        "found {severity}[{}]: {}{place}",
        finding.code.as_str(),
        printable(&finding.message)
    )
}

/// How many distinct thread orders several recordings gave.
pub fn schedules_sentence(recordings: u64, distinct: u64) -> String {
    let recordings = plural(recordings, "recording");
    match distinct {
        1 => format!("{recordings} of the workload, all with the same thread order"),
        distinct => format!(
            "{recordings} of the workload, with {} distinct thread orders",
            count(distinct)
        ),
    }
}

/// One finding.
pub fn finding(
    out: &mut dyn Write,
    finding: &Finding,
    options: &TextOptions<'_>,
) -> io::Result<()> {
    let mut sources = snippet::Sources::new(options.base);
    one(out, finding, options, &mut sources)
}

pub(crate) fn shown<'a>(
    report: &'a Report,
    options: &TextOptions<'_>,
) -> impl Iterator<Item = &'a Finding> {
    let warnings = options.warnings;
    let findings = report.findings.iter();
    // Warnings about reads are shown even if recovery survives them: the user asked for races. So is what the trace
    // proves to be lost, or not to be rolled back.
    findings.filter(move |finding| {
        warnings
            || finding.severity != Severity::Warning
            || finding.read.is_some()
            || is_proved(finding.code)
    })
}

/// Whether a trace proves a finding with this code, whatever recovery makes of it.
const fn is_proved(code: Code) -> bool {
    matches!(
        code,
        Code::StoreNotAdded
            | Code::StoreNotFlushed
            | Code::FlushNotFenced
            | Code::ObjectNotPersisted
    )
}

fn one(
    out: &mut dyn Write,
    finding: &Finding,
    options: &TextOptions<'_>,
    sources: &mut snippet::Sources<'_>,
) -> io::Result<()> {
    let level = match finding.severity {
        Severity::Error => Level::ERROR,
        Severity::Performance => Level::WARNING.with_name("performance"),
        Severity::Warning => Level::WARNING,
    };
    let title = level
        .primary_title(printable(&finding.message).into_owned())
        .id(finding.code.as_str());
    let mut group = Group::with_title(title);
    group = snippet::add_places(group, finding, sources);
    let mut fact = |name: &'static str, text: String| {
        let level = match name {
            "help" => Level::HELP,
            "note" => Level::NOTE,
            _ => Level::NOTE.with_name(name),
        };
        let element = level.message(text);
        let taken = std::mem::replace(&mut group, Group::with_level(Level::NOTE));
        group = taken.element(element);
    };
    let accesses = finding.places.iter();
    for (is_file, text) in accesses.filter_map(|place| access_text(finding, place)) {
        fact(if is_file { "file" } else { "pool" }, text);
    }
    for (name, text) in stack::texts(finding, sources) {
        fact(name, text);
    }
    for (name, text) in facts(finding, sources) {
        fact(name, text);
    }
    if !finding.consequences.is_empty() {
        fact("also", consequences_text(&finding.consequences));
    }
    if finding.count > 1 && finding.read.is_none() {
        fact("note", format!("seen {} times", count(finding.count)));
    }
    if let Some(explanation) = &finding.explanation {
        fact("note", printable(explanation).into_owned());
    }
    if let Some(suggestion) = &finding.suggestion {
        fact("help", printable(suggestion).into_owned());
    }
    if (finding.evidence.is_some() || finding.read.is_some())
        && let Some(evidence) = options.out
    {
        let (id, evidence) = (printable(&finding.id), evidence.display().to_string());
        let evidence = shell_word(&printable(&evidence));
        fact("replay", format!("powerfail replay {id} --out {evidence}"));
    }
    let renderer = Renderer::styled().term_width(options.width.unwrap_or(DEFAULT_WIDTH));
    writeln!(out, "{}", renderer.render(&[group]))
}

/// What is known of the failure: what recovery read and did, what was lost, where in the work of the program.
fn facts(finding: &Finding, sources: &snippet::Sources<'_>) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    if let Some(read) = &finding.read {
        facts.push(("read", read::text(read, finding)));
    }
    if let Some(evidence) = &finding.evidence {
        facts.extend(match &finding.tree {
            Some(crash) => tree::texts(evidence, crash, &finding.places),
            None => evidence::texts(evidence, finding.durable_by),
        });
        let choice = choices::text(&evidence.choices, sources);
        facts.extend(choice.map(|text| ("choice", text)));
    }
    facts.extend(mark::texts(&finding.marks));
    facts
}

/// The same for a page, which shows in its own way what recovery did. Files beside the first one have no directory.
pub(crate) fn facts_of_page(finding: &Finding) -> Vec<(&'static str, String)> {
    let file = finding.places.first().and_then(|it| it.file.as_deref());
    let base = file.and_then(|it| Path::new(it).parent());
    let sources = snippet::Sources::new(base.unwrap_or(Path::new("")));
    let facts = facts(finding, &sources).into_iter();
    let facts = facts.filter(|it| !["recovery", "difference"].contains(&it.0));
    let plain = facts.map(|(name, text)| (name, anstream::adapter::strip_str(&text).to_string()));
    plain.collect()
}

/// What else recovery does, a line each: `recovery exited with status 1`.
fn consequences_text(consequences: &[RecoveryOutcome]) -> String {
    const NAMED_MAX: usize = 8;
    let named = consequences.iter().take(NAMED_MAX);
    let mut lines: Vec<String> = named.map(|it| format!("{} {it}", it.command())).collect();
    let more = consequences.len().saturating_sub(NAMED_MAX);
    if more > 0 {
        lines.push(format!(
            "{} in the JSON report",
            plural(more as u64, "more outcome")
        ));
    }
    lines.join("\n")
}

/// What was accessed: `a.pool, offset 0x40, 8 bytes: 2a00000000000000`; and whether it is an ordinary file.
fn access_text(finding: &Finding, place: &SourcePlace) -> Option<(bool, String)> {
    if let (Some(operation), Some(path)) = (&place.operation, &place.pool)
        && place.pool_offset.is_none()
    {
        return Some((
            true,
            format!("{} ({})", printable(path), printable(operation)),
        ));
    }
    let offset = place.pool_offset?;
    let mut text = match &place.pool {
        Some(pool) => format!("{}, offset {offset:#x}", printable(pool)),
        None => format!("offset {offset:#x}"),
    };
    if let Some(len) = place.len_bytes {
        text = format!("{text}, {}", crate::text::plural(len, "byte"));
    }
    if let Some(bytes) = &place.bytes {
        let cut = place
            .len_bytes
            .is_some_and(|len| bytes.len() as u64 / 2 < len);
        text = format!(
            "{text}: {}{}",
            printable(bytes),
            if cut { "..." } else { "" }
        );
    }
    let role = match (place.role, finding.durable_by) {
        _ if place.operation.is_some() => place.operation.as_deref().unwrap_or_default(),
        (Role::Flush, DurableBy::Sync) => "msync",
        (role, _) => role.as_str(),
    };
    Some((
        place.operation.is_some(),
        format!("{text} ({})", printable(role)),
    ))
}

/// The report as JSON, the fields in the order in which they are documented.
pub fn json(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    writeln!(out)
}

/// The JSON Schema of [`Report`], which is also in `docs/reference/findings-schema.json`.
pub fn report_schema() -> Schema {
    schemars::schema_for!(Report)
}
