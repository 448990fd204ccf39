//! What is reported, where, and in which format.

use std::path::PathBuf;

use powerfail_finding::Code;
use powerfail_model::Domain;

use super::{appended, options, sections};
use crate::value::{Deny, Format, Only, Whole, domains};

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
        /// Format of the report on standard output [default: text]
        [long, value_enum, value_name = "FORMAT"]
        format: Format = Format::default(),
        /// Report only these classes or codes: durability,PF0501
        [long, value_name = "CLASSES", value_delimiter = ',']
        only: Vec<Only> = Vec::new(),
        /// Report only findings that are not in this report of --format json
        [long, value_name = "JSON"]
        baseline: PathBuf,
    }
}

impl OutputSettings {
    /// Whether findings with a code are reported.
    pub fn wants(&self, code: Code) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only.admits(code))
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
    pub fn settle(self, file: Self) -> LintSettings {
        let all = self.over(file);
        LintSettings {
            domain: all.domain.domain,
            report: all.report.resolve(),
            output: all.output.resolve(),
        }
    }
}
