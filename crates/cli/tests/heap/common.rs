//! One folder per test, in which programs are built and `powerfail` runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use powerfail_finding::{Finding, Role, Severity};
use tempfile::TempDir;

use crate::run::Run;

/// Exit codes of powerfail.
pub(crate) const CLEAN: i32 = 0;
pub(crate) const FINDINGS: i32 = 1;
pub(crate) const UNSUPPORTED: i32 = 4;

impl Run {
    /// The findings about correctness.
    pub(crate) fn errors(&self) -> Vec<Finding> {
        let findings = self.report().findings.into_iter();
        findings
            .filter(|finding| finding.severity == Severity::Error)
            .collect()
    }

    /// The summary of a recording on standard output; the target must have succeeded.
    #[track_caller]
    pub(crate) fn summary(&self) -> serde_json::Value {
        let from = self.stdout.find("{\n").expect("a summary");
        let summary: serde_json::Value =
            serde_json::from_str(&self.stdout[from..]).expect("a summary");
        assert_eq!(summary["exit_code"], 0, "{self:?}");
        summary
    }
}

/// See the module header. Removed with all of its content when dropped.
pub(crate) struct Folder {
    folder: TempDir,
}

impl Folder {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { folder }
    }

    /// A folder with a program as `./bug`, or its twin as `./good`.
    pub(crate) fn with(name: &str, source: &str, flags: &[&str]) -> Self {
        let folder = Self::new();
        folder.build(name, source, flags);
        folder
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Builds a program from the folder of these tests as `./name`.
    pub(crate) fn build(&self, name: &str, source: &str, flags: &[&str]) {
        let compiler = match Path::new(source).extension() {
            Some(extension) if extension == "cpp" => ["g++", "-std=c++17"],
            _ => ["gcc", "-std=gnu11"],
        };
        let mut command = Command::new(compiler[0]);
        // No lazy binding: it takes locks, and a locked operation is a fence. The compiler must not remove
        // allocations.
        command
            .arg(compiler[1])
            .args(["-Wall", "-Wextra", "-Werror"]);
        command.args(["-g", "-fno-builtin", "-pthread", "-Wl,-z,now"]);
        command.args(flags).arg(source_path(source)).arg("-o");
        command.arg(self.path(name));
        let output = command.output().expect("the compiler is installed");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{source}: {errors}");
    }

    /// Runs a program in this folder, without powerfail.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> Run {
        let mut command = Command::new(self.path(program));
        command.args(arguments).current_dir(self.folder.path());
        command.output().expect("the program runs").into()
    }

    /// Runs `powerfail` in this folder.
    pub(crate) fn powerfail(&self, arguments: &[&str]) -> Run {
        let mut timeout = Command::new("timeout");
        timeout.current_dir(self.folder.path());
        Run::powerfail(timeout, arguments)
    }

    /// Runs `powerfail check` on a program, with its own `recover` as recovery, with JSON output and output directory
    /// `out`.
    pub(crate) fn check(&self, program: &str, options: &[&str]) -> Run {
        let program = format!("./{program}");
        let recover = format!("{program} recover");
        let mut arguments = vec!["check", "--format", "json", "--out", "out"];
        arguments.extend(["--recover", &recover]);
        arguments.extend(options);
        arguments.extend(["--", &program]);
        self.powerfail(&arguments)
    }

    /// The names of the files in `out`, sorted.
    pub(crate) fn out(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("out")).expect("a folder");
        let name = |entry: fs::DirEntry| entry.file_name().into_string().expect("text");
        let mut names: Vec<String> = entries
            .map(|entry| name(entry.expect("an entry")))
            .collect();
        names.sort_unstable();
        names
    }
}

fn source_path(source: &str) -> PathBuf {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/heap/programs");
    programs.join(source)
}

/// The line of a program with the planted bug.
pub(crate) fn planted(source: &str) -> u32 {
    let text = fs::read_to_string(source_path(source)).expect("a source");
    let found = text.lines().position(|line| line.contains("// planted"));
    u32::try_from(found.expect("a planted line") + 1).expect("few lines")
}

/// The line of a finding's store.
pub(crate) fn line_of_store(finding: &Finding) -> Option<u32> {
    let mut places = finding.places.iter();
    places.find(|place| place.role == Role::Store)?.line
}

/// Checks that a planted bug is found at its line with BUG, and that nothing is found without BUG.
#[track_caller]
pub(crate) fn is_found_and_its_twin_is_silent(source: &str, flags: &[&str], options: &[&str]) {
    let folder = Folder::with("good", source, flags);
    let mut with_bug = vec!["-DBUG"];
    with_bug.extend(flags);
    folder.build("bug", source, &with_bug);
    // A second failure shows the same bug in the code that recovery runs.
    let options = &[options, &["--depth", "1"]].concat();
    let run = folder.check("bug", options).ends_with(FINDINGS);
    let lines: Vec<_> = run.errors().iter().map(line_of_store).collect();
    assert_eq!(lines, [Some(planted(source))], "{}", run.stdout);
    let run = folder.check("good", options).ends_with(CLEAN);
    assert!(run.report().findings.is_empty(), "{}", run.stdout);
    let explored = run.report().totals.exploration.expect("it was explored");
    assert_eq!(explored.exhaustive, explored.failure_points, "{explored:?}");
    assert!(explored.choices > 0, "{explored:?}");
}
