//! `powerfail report`: the report of an earlier run, again and in other formats.

use anyhow::Context;
use powerfail_check::output_directory;
use powerfail_config::{OutputArgs, ReportArgs};

use crate::args::ReportCommand;
use crate::exit::Exit;
use crate::html;
use crate::issue;
use crate::progress::read_trace;
use crate::report_output;

pub(crate) fn report(args: &ReportCommand) -> anyhow::Result<Exit> {
    let out = &args.run;
    anyhow::ensure!(
        out.join(output_directory::REPORT).is_file(),
        "{} has no {}; give the output directory of powerfail check (--out), or of one finding of a campaign",
        out.display(),
        output_directory::REPORT
    );
    let (report, recovery) = output_directory::load(out)?;
    if let Some(file) = &args.html {
        let name = output_directory::TRACE;
        let trace = output_directory::open_trace(out, name)
            .context("the page is drawn from the trace of the run")?;
        let trace = read_trace(trace).with_context(|| out.join(name).display().to_string())?;
        let (coverage, sources) = output_directory::load_details(out)?;
        let run = html::Run {
            report: &report,
            rules: recovery.rules(),
            trace: &trace,
            coverage: coverage.as_ref(),
            sources: sources.as_ref(),
            out: Some(out),
        };
        html::write(&run, file)?;
    }
    if let Some(id) = &args.issue {
        anyhow::ensure!(
            args.format.iter().all(|it| it.file.is_some()),
            "--issue goes to standard output: give --format a file, as in sarif=out.sarif"
        );
        issue::print(&report, &recovery, id, args)?;
    }
    let is_asked = args.html.is_some() || args.issue.is_some();
    if !is_asked || !args.format.is_empty() {
        let settings = ReportArgs {
            warnings: Some(args.warnings),
            ..ReportArgs::default()
        };
        let output = OutputArgs {
            format: Some(args.format.clone()),
            ..OutputArgs::default()
        };
        let output = output.settle()?;
        let settings = settings.resolve();
        report_output::write_files(&report, Some(out), &settings, &output)?;
        if !is_asked || args.format.iter().any(|it| it.file.is_none()) {
            report_output::print_report(&report, Some(out), &settings, &output)?;
        }
    }
    Ok(Exit::Clean)
}
