//! A report as one HTML page: findings with pictures of the moment of failure, the whole trace, what was tried.
//!
//! The page needs nothing but itself: no network, no other file. Here the data is collected: `moment.rs` has the
//! pictures of pools, `tree_moment.rs` those of files, `timeline.rs` the trace as a whole, `model.rs` what the script of the
//! page is given. The script (`templates/page.js`) draws it, each part when it is looked at.

mod model;
mod moment;
mod timeline;
mod tree_moment;
mod tree_rows;

use std::collections::BTreeMap;
use std::io::{self, Write};

use askama::Template;
use powerfail_finding::{Coverage, Finding, KeptSources, Report, Severity};
use powerfail_model::Rules;
use powerfail_model::files::FileSystem;
use powerfail_trace::{Trace, TraceError};

use crate::files;
use crate::findings::{coverage, facts_of_page, label, not_checked_sentence, outcome_sentence};
use crate::text::plural;
use model::{PageData, PageFinding, PagePlace, PageSource, PageTrace};
use timeline::FileEvents;

/// What the page is made of.
pub struct PageInput<'a> {
    /// The report.
    pub report: &'a Report,
    /// The rules of what survives.
    pub rules: Rules,
    /// The trace of the run.
    pub trace: Option<&'a Trace>,
    /// Traces that findings name, by their names.
    pub others: &'a BTreeMap<String, Trace>,
    /// Which failure points were tried, if that is known.
    pub coverage: Option<&'a Coverage>,
    /// Source files.
    pub sources: Option<&'a KeptSources>,
    /// The output directory, as it is named in commands. Without it nothing can be replayed.
    pub out: Option<&'a str>,
}

#[derive(Template)]
#[template(path = "page.html")]
struct Page<'a> {
    title: &'a str,
    summary: &'a str,
    coverage: &'a str,
    style: &'a str,
    script: &'a str,
    data: &'a str,
}

/// Writes the page.
pub fn page(out: &mut dyn Write, input: &PageInput<'_>) -> Result<(), PageError> {
    let data = data(input)?;
    let json = serde_json::to_string(&data).map_err(io::Error::from)?;
    // Nothing in the data can end the element that holds it.
    let json = json.replace('<', "\\u003c");
    let title = input.report.command.join(" ");
    let page = Page {
        title: &title,
        summary: &data.summary,
        coverage: &data.coverage_sentence,
        style: include_str!("../templates/page.css"),
        script: include_str!("../templates/page.js"),
        data: &json,
    };
    let text = page.render().map_err(io::Error::other)?;
    out.write_all(text.as_bytes())?;
    Ok(())
}

/// Why a page could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// It cannot be written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

fn data<'a>(input: &'a PageInput<'a>) -> Result<PageData<'a>, PageError> {
    let report = input.report;
    let mut findings: Vec<PageFinding<'_>> = report.findings.iter().map(finding).collect();
    let mut traces: BTreeMap<Option<&str>, Vec<usize>> = BTreeMap::new();
    for (number, finding) in report.findings.iter().enumerate() {
        traces.entry(trace_of(finding)).or_default().push(number);
    }
    let mut whole: Option<PageTrace> = None;
    let files_of = |trace: &Trace| files::file_system_of(report, input.rules, trace);
    if let Some(trace) = input.trace {
        traces.entry(None).or_default();
        whole = Some(timeline::header(trace, input.rules, files_of(trace)));
    }
    for (name, numbers) in traces {
        let trace = match name {
            None => input.trace,
            Some(name) => input.others.get(name),
        };
        let Some(trace) = trace else { continue };
        let (mut of_files, mut of_pools) = (Vec::new(), Vec::new());
        for number in numbers {
            let is_file = tree_moment::is_about_files(trace, &report.findings[number])?;
            if is_file {
                &mut of_files
            } else {
                &mut of_pools
            }
            .push(number);
        }
        let subjects = |numbers: &[usize]| -> Vec<&Finding> {
            numbers.iter().map(|it| &report.findings[*it]).collect()
        };
        let files = files_of(trace);
        let is_whole = name.is_none();
        let mut file_events = (is_whole && files.is_some()).then(|| FileEvents::new(trace));
        if file_events.is_some() || !of_files.is_empty() {
            let rules = files.unwrap_or(FileSystem::Linux);
            let subjects = subjects(&of_files);
            let pictures = tree_moment::pictures(trace, rules, &subjects, file_events.as_mut())?;
            for (number, moment) in of_files.into_iter().zip(pictures) {
                findings[number].moment = moment;
            }
        }
        let mut events = (is_whole && files.is_none()).then(|| timeline::Events::new(trace));
        if events.is_some() || !of_pools.is_empty() {
            let mut moments = moment::Moments::new(trace, input.rules, &subjects(&of_pools))?;
            moment::pass(trace, input.rules, &mut moments, events.as_mut())?;
            for (number, moment) in of_pools.into_iter().zip(moments.finish(trace)) {
                findings[number].moment = moment;
            }
        }
        if let Some(whole) = whole.as_mut().filter(|_| is_whole) {
            if let Some(events) = events {
                events.finish_into(whole);
            }
            if let Some(events) = file_events {
                events.finish_into(whole);
            }
        }
    }
    let totals = &report.totals;
    Ok(PageData {
        schema: 1,
        report,
        summary: summary(report),
        coverage_sentence: coverage(totals).replace('\n', "; "),
        not_checked: totals.not_checked.map(not_checked_sentence),
        findings,
        trace: whole,
        coverage: input.coverage,
        sources: sources(input),
        out: input.out,
        codes: codes(report),
    })
}

/// The trace that shows a finding, if it is not that of the run.
fn trace_of(finding: &Finding) -> Option<&str> {
    let evidence = finding.evidence.as_ref();
    let of_evidence = evidence.and_then(|it| it.trace.as_deref());
    let read = finding.read.as_ref();
    of_evidence.or_else(|| read.and_then(|it| it.trace.as_deref()))
}

fn finding(finding: &Finding) -> PageFinding<'_> {
    let places = finding.places.iter().map(|place| PagePlace {
        label: label(finding, place),
    });
    PageFinding {
        places: places.collect(),
        outcome: finding.evidence.as_ref().map(outcome_sentence),
        facts: facts_of_page(finding),
        moment: None,
    }
}

fn summary(report: &Report) -> String {
    let of = |severity| {
        let findings = report.findings.iter();
        findings.filter(|it| it.severity == severity).count() as u64
    };
    let errors = of(Severity::Error);
    let (performance, warnings) = (of(Severity::Performance), of(Severity::Warning));
    if report.findings.is_empty() {
        return match report.totals.not_checked {
            Some(_) => "Nothing was checked".to_owned(),
            None => "No bugs found".to_owned(),
        };
    }
    let parts = [
        (errors, "correctness bug"),
        (performance, "performance bug"),
        (warnings, "warning"),
    ];
    let parts = parts.iter().filter(|(number, _)| *number > 0);
    let parts: Vec<String> = parts.map(|(number, noun)| plural(*number, noun)).collect();
    parts.join(", ")
}

/// The titles of the codes that occur.
fn codes(report: &Report) -> BTreeMap<&'static str, &'static str> {
    let codes = report.findings.iter().map(|it| it.code);
    codes.map(|code| (code.as_str(), code.title())).collect()
}

/// The source files: whole ones, as they were kept.
fn sources<'a>(input: &PageInput<'a>) -> BTreeMap<&'a str, PageSource<'a>> {
    let Some(sources) = input.sources else {
        return BTreeMap::new();
    };
    let files = sources.files.iter();
    files
        .map(|(path, text)| (path.as_str(), PageSource { text }))
        .collect()
}
