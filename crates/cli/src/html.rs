//! The report as one HTML page.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use powerfail_check::output_directory;
use powerfail_files::output::replace;
use powerfail_finding::{Coverage, KeptSources, Report};
use powerfail_model::Rules;
use powerfail_report::page::{PageInput, page};
use powerfail_trace::Trace;

/// What the page shows.
pub(crate) struct Run<'a> {
    pub(crate) report: &'a Report,
    pub(crate) rules: Rules,
    pub(crate) trace: &'a Trace,
    pub(crate) coverage: Option<&'a Coverage>,
    pub(crate) sources: Option<&'a KeptSources>,
    /// The output directory, if there is one.
    pub(crate) out: Option<&'a Path>,
}

/// Writes the page as a whole.
pub(crate) fn write(run: &Run<'_>, file: &Path) -> anyhow::Result<()> {
    let others = match run.out {
        Some(out) => named_traces(run.report, out)?,
        None => BTreeMap::new(),
    };
    let out = run.out.map(|out| out.display().to_string());
    let input = PageInput {
        report: run.report,
        rules: run.rules,
        trace: Some(run.trace),
        others: &others,
        coverage: run.coverage,
        sources: run.sources,
        out: out.as_deref(),
    };
    let mut bytes = Vec::new();
    page(&mut bytes, &input)?;
    replace(file, &bytes).with_context(|| file.display().to_string())
}

/// The traces besides `run.trace` that findings name.
fn named_traces(report: &Report, out: &Path) -> anyhow::Result<BTreeMap<String, Trace>> {
    let mut traces = BTreeMap::new();
    for finding in &report.findings {
        let of_evidence = finding.evidence.as_ref().and_then(|it| it.trace.as_ref());
        let of_read = finding.read.as_ref().and_then(|it| it.trace.as_ref());
        for name in of_evidence.into_iter().chain(of_read) {
            if !traces.contains_key(name) {
                let file = output_directory::open_trace(out, name)?;
                let trace = Trace::from_source(file);
                let trace = trace.with_context(|| out.join(name).display().to_string())?;
                traces.insert(name.clone(), trace);
            }
        }
    }
    Ok(traces)
}
