//! What is reported, where, and in which format.

use std::path::PathBuf;

use powerfail_finding::Code;
use powerfail_model::Domain;

use super::{appended, options, sections};
use crate::error::SettingsError;
use crate::value::{Deny, Format, Only, ReportOutput, Whole, domains};

options! {
    /// The persistence domain.
    DomainArgs => DomainSettings, "Hardware" {
        /// Persistence domain: what survives a crash without any instruction [default: that of the trace, or pagecache if the workload calls msync and never flushes, or adr]
        [long, value_name = "DOMAIN", value_parser = domains()]
        domain: Domain,
    }
}

options! {
    /// What is reported.
    ReportArgs => ReportSettings, "Report" {
        /// Also report warnings, such as several stores under one flush or unordered flushes under one fence
        [long, num_args = 0, default_missing_value = "true"]
        warnings: bool = false,
        /// With --warnings, report a store that is not flushed before its thread has fenced this often [default: 10]
        [long, value_name = "N"]
        dirty_fences: Whole<1, { u32::MAX as u64 }>,
        /// Count warnings as bugs; implies --warnings
        [long, value_enum, value_name = "WHAT"]
        deny: Deny,
        /// Also trust this module: what it does by itself is not reported; can be repeated
        [long, value_name = "MODULE"]
        (appended) trust: Vec<String> = Vec::new(),
        /// Do not trust this module; can be repeated
        [long, value_name = "MODULE"]
        (appended) no_trust: Vec<String> = Vec::new(),
    }
}

impl ReportSettings {
    /// Whether warnings are reported.
    pub const fn shows_warnings(&self) -> bool {
        self.warnings || self.denies_warnings()
    }

    /// Whether warnings count as bugs.
    pub const fn denies_warnings(&self) -> bool {
        matches!(self.deny, Some(Deny::Warnings))
    }
}

options! {
    /// Where and how findings are reported.
    OutputArgs => OutputSettings, "Report" {
        /// Directory for the trace and the evidence [default: powerfail-out]
        [long, value_name = "DIR"]
        out: PathBuf,
        /// Format of the report: text, json, sarif, junit, github or gitlab, with a file if it is not for standard
        /// output; can be repeated [default: text]
        ///
        /// --format sarif=out.sarif writes a file, and standard output still has the text.
        [long, value_name = "FORMAT[=FILE]"]
        format: Vec<ReportOutput> = Vec::new(),
        /// Also write the report as one HTML page, with pictures of the moments of failure
        [long, value_name = "FILE"]
        html: PathBuf,
        /// Report only these classes or codes: durability,PF0501
        [long, value_name = "CLASSES", value_delimiter = ',']
        only: Vec<Only> = Vec::new(),
        /// Report only findings that are not in this report of --format json
        [long, value_name = "JSON"]
        baseline: PathBuf,
    }
}

impl OutputSettings {
    /// An error if two formats have the same place.
    fn inspect(&self) -> Result<(), SettingsError> {
        for (number, output) in self.format.iter().enumerate() {
            let mut others = self.format[..number].iter();
            if others.any(|other| other.file == output.file) {
                return Err(match output.file {
                    Some(_) => SettingsError::OneFile,
                    None => SettingsError::OneStandardOutput,
                });
            }
        }
        Ok(())
    }

    /// What standard output has: text, unless something else was asked for.
    pub fn standard_output(&self) -> Format {
        let mut outputs = self.format.iter();
        let output = outputs.find(|output| output.file.is_none());
        output.map_or_else(Format::default, |output| output.format)
    }

    /// Whether findings with a code are reported.
    pub fn wants(&self, code: Code) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only.admits(code))
    }
}

impl OutputArgs {
    /// The settings of these options.
    pub fn settle(self) -> Result<OutputSettings, SettingsError> {
        let output = self.resolve();
        output.inspect()?;
        Ok(output)
    }
}

sections! {
    /// The options of `powerfail lint`.
    LintArgs {
        domain: DomainArgs,
        report: ReportArgs,
        output: OutputArgs,
    }
}

/// What `powerfail lint` is to do.
#[derive(Clone, Debug)]
pub struct LintSettings {
    /// The persistence domain, if it is not that of the trace.
    pub domain: Option<Domain>,
    /// What is reported.
    pub report: ReportSettings,
    /// Where and how it is reported.
    pub output: OutputSettings,
}

impl LintArgs {
    /// These options over those of the configuration file.
    pub fn settle(self, file: Self) -> Result<LintSettings, SettingsError> {
        let all = self.over(file);
        let output = all.output.settle()?;
        Ok(LintSettings {
            domain: all.domain.domain,
            report: all.report.resolve(),
            output,
        })
    }
}
