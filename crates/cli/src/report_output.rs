//! Where the report goes: each `--format` to its file, and one to standard output.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use powerfail_config::{Format, OutputSettings, ReportSettings};
use powerfail_files::output::replace;
use powerfail_finding::Report;
use powerfail_report::{findings, formats};

use crate::output::{print, width};

/// Writes the files, then standard output. `out` is the output directory, if there is one.
pub(crate) fn write(
    report: &Report,
    out: Option<&Path>,
    settings: &ReportSettings,
    output: &OutputSettings,
) -> anyhow::Result<()> {
    write_files(report, out, settings, output)?;
    print_report(report, out, settings, output)
}

/// Writes the formats that have a file.
pub(crate) fn write_files(
    report: &Report,
    out: Option<&Path>,
    settings: &ReportSettings,
    output: &OutputSettings,
) -> anyhow::Result<()> {
    let base = std::env::current_dir().unwrap_or_default();
    let options = findings::TextOptions {
        width: None,
        base: &base,
        out,
        warnings: settings.shows_warnings(),
    };
    for output in &output.format {
        let Some(file) = &output.file else { continue };
        let mut bytes = Vec::new();
        let mut plain = anstream::StripStream::new(&mut bytes as &mut dyn Write);
        write_format(&mut plain, output.format, report, &options, settings)?;
        replace(file, &bytes).with_context(|| file.display().to_string())?;
    }
    Ok(())
}

/// Prints the format that has none.
pub(crate) fn print_report(
    report: &Report,
    out: Option<&Path>,
    settings: &ReportSettings,
    output: &OutputSettings,
) -> anyhow::Result<()> {
    let base = std::env::current_dir().unwrap_or_default();
    let options = findings::TextOptions {
        width: width(),
        base: &base,
        out,
        warnings: settings.shows_warnings(),
    };
    let format = output.standard_output();
    print(|to| write_format(to, format, report, &options, settings))
}

fn write_format(
    to: &mut dyn Write,
    format: Format,
    report: &Report,
    options: &findings::TextOptions<'_>,
    settings: &ReportSettings,
) -> anyhow::Result<()> {
    match format {
        Format::Text => findings::report(to, report, options)?,
        Format::Json => findings::json(to, report)?,
        Format::Sarif => formats::sarif(to, report, options)?,
        Format::Junit => formats::junit(to, report, options, settings.denies_warnings())?,
        Format::Github => formats::github(to, report, options)?,
        Format::Gitlab => formats::gitlab(to, report, options)?,
    }
    Ok(())
}
