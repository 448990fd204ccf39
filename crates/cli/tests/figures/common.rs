//! Builds a figure, records it, and reads what `powerfail races` reports about it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use powerfail_finding::{Code, Finding, Report, Role, SourcePlace};
use tempfile::TempDir;

/// Ends a process that hangs. Far longer than any of them takes.
const GUARD_SECONDS: &str = "300";

/// A figure: its program, built and recorded.
pub(crate) struct Figure {
    folder: TempDir,
    source: PathBuf,
}

/// A finding, reduced to what the paper reports.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FoundBug {
    pub(crate) code: Code,
    /// Stores of one record are one finding.
    pub(crate) writers: Vec<u32>,
    pub(crate) reader: u32,
    pub(crate) failure: u32,
}

impl Figure {
    /// Builds the program with some macros defined and records its workload.
    pub(crate) fn record(name: &str, defines: &[&str], workload: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the figure");
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/targets/races")
            .join(format!("{name}.c"));
        let figure = Self { folder, source };
        let mut compiler = Command::new("gcc");
        compiler
            .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g"])
            .arg("-Wl,-z,now");
        compiler.args(defines.iter().map(|name| format!("-D{name}")));
        if lacks_clwb() {
            compiler.arg("-DPM_CLFLUSHOPT");
        }
        compiler.arg("-o").arg(figure.program()).arg(&figure.source);
        if name == "linked_list" {
            compiler.arg("-lpmemobj");
        }
        run(&mut compiler);
        let mut record = powerfail();
        record.args(["record", "-o"]).arg(figure.trace()).arg("--");
        record.arg(figure.program()).args(["{pool}", workload]);
        run(&mut record);
        figure
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("program")
    }

    fn trace(&self) -> PathBuf {
        self.folder.path().join("trace.pft")
    }

    /// The line with this name: the one that ends with a comment with the name.
    pub(crate) fn line(&self, name: &str) -> u32 {
        let text = fs::read_to_string(&self.source).expect("the source of a figure");
        let comment = format!("// {name}");
        let mut lines = text.lines().zip(1..);
        let found = lines.find(|(line, _)| line.ends_with(&comment));
        found.expect("a line with this name").1
    }

    /// The whole report for this recovery.
    pub(crate) fn races(&self, recover: &str, flags: &[&str]) -> Report {
        let mut races = powerfail();
        races.arg("races").arg(self.trace());
        races.args(["--format", "json", "--jobs", "1", "--recover"]);
        races.arg(format!("{} {{pool}} {recover}", self.program().display()));
        races.args(flags);
        report_of(&mut races)
    }

    /// The whole report of `powerfail check` with this recovery.
    pub(crate) fn check(&self, workload: &str, recover: &str, flags: &[&str]) -> Report {
        let mut check = powerfail();
        check.args(["check", "--format", "json", "--jobs", "1", "--out"]);
        check.arg(self.folder.path().join("out")).arg("--recover");
        check.arg(format!("{} {{pool}} {recover}", self.program().display()));
        check.args(flags).arg("--").arg(self.program());
        check.args(["{pool}", workload]);
        report_of(&mut check)
    }

    /// The findings for this recovery, each as the paper would report it.
    pub(crate) fn found(&self, recover: &str, flags: &[&str]) -> Vec<FoundBug> {
        let report = self.races(recover, flags);
        let mut found: Vec<_> = report.findings.iter().map(|it| self.reduce(it)).collect();
        found.sort();
        found
    }

    fn reduce(&self, finding: &Finding) -> FoundBug {
        let line_of = |place: &SourcePlace| {
            let file = place.file.as_ref().expect("a file");
            let name = self.source.file_name().expect("a name");
            assert!(Path::new(file).ends_with(name), "{finding:?}");
            place.line.expect("a line")
        };
        let lines = |role: Role| -> Vec<u32> {
            let places = finding.places.iter().filter(|place| place.role == role);
            places.map(line_of).collect()
        };
        let line = |role: Role| {
            let first = lines(role).first().copied();
            first.unwrap_or_else(|| panic!("no {role:?} in {finding:?}"))
        };
        let first = finding.places.first().map(|place| place.role);
        assert_eq!(first, Some(Role::Store), "{finding:?}");
        FoundBug {
            code: finding.code,
            writers: lines(Role::Store),
            reader: line(Role::Load),
            failure: line(Role::Failure),
        }
    }

    /// A finding whose lines have these names.
    pub(crate) fn expect(
        &self,
        code: Code,
        writers: &[&str],
        reader: &str,
        failure: &str,
    ) -> FoundBug {
        FoundBug {
            code,
            writers: writers.iter().map(|it| self.line(it)).collect(),
            reader: self.line(reader),
            failure: self.line(failure),
        }
    }
}

/// Runs a command that must end as its report says.
fn report_of(command: &mut Command) -> Report {
    let output = command.output().expect("powerfail runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let report: Report = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("no report: {error}: {text}{errors}"));
    let has_errors = report
        .findings
        .iter()
        .any(|finding| finding.severity != powerfail_finding::Severity::Warning);
    assert_eq!(
        output.status.code(),
        Some(i32::from(has_errors)),
        "{text}{errors}"
    );
    report
}

/// Whether the processor lacks clwb, so that programs must use clflushopt.
fn lacks_clwb() -> bool {
    let processors = fs::read_to_string("/proc/cpuinfo").expect("a list of processors");
    !processors.split_whitespace().any(|flag| flag == "clwb")
}

fn powerfail() -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", GUARD_SECONDS]);
    command.arg(env!("CARGO_BIN_EXE_powerfail"));
    command
}

/// Runs a command that must succeed.
fn run(command: &mut Command) {
    let output = command.output().expect("the command is there");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
}
