//! One folder per test, in which programs are built and `powerfail` runs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use powerfail_finding::Finding;
use tempfile::TempDir;

pub(crate) use crate::run::Run;

/// Exit codes of powerfail.
pub(crate) const CLEAN: i32 = 0;
pub(crate) const FINDINGS: i32 = 1;
pub(crate) const SETUP: i32 = 2;
pub(crate) const UNSUPPORTED: i32 = 4;
pub(crate) const NOT_CHECKED: i32 = 5;

impl Run {
    /// The codes of the findings in the report, sorted.
    pub(crate) fn codes(&self) -> Vec<&'static str> {
        let report = self.report();
        let mut codes: Vec<_> = report.findings.iter().map(|it| it.code.as_str()).collect();
        codes.sort_unstable();
        codes
    }

    /// The only finding with this code.
    pub(crate) fn finding(&self, code: &str) -> Finding {
        let findings = self.report().findings.into_iter();
        let mut found: Vec<_> = findings.filter(|it| it.code.as_str() == code).collect();
        assert_eq!(found.len(), 1, "{code}: {}", self.stdout);
        found.remove(0)
    }

    /// Checks that the run was refused with one error line that contains all these words.
    #[track_caller]
    pub(crate) fn is_refused_with(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        assert_eq!(self.stdout, "", "a refusal is no report");
        let error = self.stderr.lines().find(|line| line.starts_with("error:"));
        let error = error.unwrap_or_else(|| panic!("no error: {}", self.stderr));
        for word in words {
            assert!(error.contains(word), "no `{word}` in: {}", self.stderr);
        }
    }
}

/// See the module header. Removed with all of its content when dropped.
pub(crate) struct Folder {
    folder: TempDir,
}

impl Folder {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("tmp")).expect("a folder for temporary files");
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn text_path(&self, name: &str) -> String {
        self.path(name).to_str().expect("text").to_owned()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a file that can be written");
    }

    /// Builds a program with a planted bug as `./name`: `build("bug", "fail/ordering/x.c")`.
    pub(crate) fn build_planted(&self, name: &str, source: &str) {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests");
        self.build(name, &tests.join(source), &[]);
    }

    /// Builds a program from the folder of these tests as `./name`.
    pub(crate) fn build_own(&self, name: &str, source: &str, flags: &[&str]) {
        self.build_at(name, "check", source, flags);
    }

    /// Builds a program from the folder of another test of this crate as `./name`.
    pub(crate) fn build_at(&self, name: &str, tests: &str, source: &str, flags: &[&str]) {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests")
            .join(tests);
        self.build(name, &tests.join("programs").join(source), flags);
    }

    /// Builds a program from `examples` as `./name`: wrong, as it is there, or with the line that it lacks.
    pub(crate) fn build_example(&self, name: &str, fix: Option<(&str, &str)>) {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        let file = format!("{name}.c");
        let source = fs::read_to_string(examples.join(&file)).expect("an example");
        let source = match fix {
            Some((missing, there)) => {
                assert!(source.contains(missing), "{file}: {missing}");
                source.replace(missing, there)
            }
            None => source,
        };
        self.write(&file, &source);
        self.build(name, &self.path(&file), &[]);
    }

    pub(crate) fn build_static_example(&self, name: &str) {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        self.build(name, &examples.join(format!("{name}.c")), &["-static"]);
    }

    /// Builds a program from a file of this folder as `./name`. Its debug information names the file without a directory.
    pub(crate) fn build_here(&self, name: &str, source: &str, flags: &[&str]) {
        self.build(name, Path::new(source), flags);
    }

    fn build(&self, name: &str, source: &Path, flags: &[&str]) {
        let processors = fs::read_to_string("/proc/cpuinfo").expect("a list of processors");
        let has_clwb = processors.split_whitespace().any(|flag| flag == "clwb");
        let text = fs::read_to_string(self.folder.path().join(source)).expect("a source");
        let needs = text
            .lines()
            .find_map(|line| line.strip_prefix("// powerfail: needs = \""));
        let needs = needs.and_then(|needs| needs.strip_suffix('"'));
        let mut compiler = self.command("gcc");
        // No lazy binding: it takes locks, and a locked operation is a fence.
        compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g"]);
        compiler.arg("-Wl,-z,now");
        if !has_clwb {
            compiler.arg("-DPM_CLFLUSHOPT");
        }
        compiler.args(flags).arg(source).arg("-o");
        compiler.arg(self.path(name));
        compiler.args(needs.unwrap_or_default().split_whitespace());
        let output = compiler.output().expect("the compiler is installed");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {errors}", source.display());
    }

    /// A command that runs in this folder, with its own directory for temporary files.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.folder.path())
            .env("TMPDIR", self.path("tmp"));
        command
    }

    /// Runs `powerfail` in this folder.
    pub(crate) fn powerfail(&self, arguments: &[&str]) -> Run {
        Run::powerfail(self.command("timeout"), arguments)
    }

    /// Runs `powerfail check` on `./bug {pool}`, with `./bug {pool} recover` as recovery and JSON output.
    pub(crate) fn check(&self, options: &[&str]) -> Run {
        let mut arguments = vec!["check", "--format", "json", "--recover", RECOVER];
        arguments.extend(options);
        arguments.extend(["--", "./bug", "{pool}"]);
        self.powerfail(&arguments)
    }

    /// The same, with text output.
    pub(crate) fn check_into_text(&self, options: &[&str]) -> Run {
        let mut arguments = vec!["check", "--recover", RECOVER];
        arguments.extend(options);
        arguments.extend(["--", "./bug", "{pool}"]);
        self.powerfail(&arguments)
    }

    /// Records `./bug {pool}` into `run.trace`.
    pub(crate) fn record(&self) {
        let run = self.powerfail(&["record", "-o", "run.trace", "--", "./bug", "{pool}"]);
        run.ends_with(CLEAN);
    }
}

/// A recipe in `examples/clusters`.
pub(crate) fn recipe(name: &str) -> String {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/clusters");
    format!("{examples}/{name}")
}

impl Folder {
    /// Makes a program that does what the recipes for Slurm need of `sbatch`, at once. It leaves a file in `jobs` for each
    /// job.
    pub(crate) fn make_sbatch(&self) {
        for name in ["jobs", "bin"] {
            fs::create_dir(self.path(name)).expect("a folder");
        }
        self.write("bin/sbatch", include_str!("sbatch.sh"));
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(self.path("bin/sbatch"), mode).expect("a file of ours");
    }

    /// A recipe for Slurm, with that program.
    pub(crate) fn slurm_recipe(&self, name: &str) -> Command {
        let path = std::env::var("PATH").expect("a path");
        let mut command = self.command(&recipe(name));
        command
            .env("POWERFAIL", env!("CARGO_BIN_EXE_powerfail"))
            .env("PATH", format!("{}:{path}", self.text_path("bin")));
        command
    }
}

/// The recovery command of `./bug`.
pub(crate) const RECOVER: &str = "./bug {pool} recover";

/// All files below a folder.
pub(crate) fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path);
        }
    }
    files
}
