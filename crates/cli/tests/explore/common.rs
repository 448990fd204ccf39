//! Builds a program, records it, and explores its crash states.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, OnceLock};

use powerfail_finding::{Exploration, Report};
use tempfile::TempDir;

/// Ends a process that hangs. Far longer than any of them takes.
const GUARD_SECONDS: &str = "300";

type Built = HashMap<String, Arc<OnceLock<PathBuf>>>;

/// The binaries built in this run of the tests, by name and flags.
fn built() -> &'static (TempDir, Mutex<Built>) {
    static BUILT: OnceLock<(TempDir, Mutex<Built>)> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder for programs");
        (folder, Mutex::default())
    })
}

/// Builds a program, once per bug; 0 is the correct program.
pub(crate) fn program(name: &str, bug: u32) -> PathBuf {
    let (folder, built) = built();
    let key = format!("{name}-{bug}");
    let cell = {
        let mut built = built.lock().expect("no test panics with the lock");
        Arc::clone(built.entry(key.clone()).or_default())
    };
    cell.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/targets/explore")
            .join(format!("{name}.c"));
        let binary = folder.path().join(key);
        let output = Command::new("gcc")
            .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g", "-O1"])
            .args(["-Wl,-z,now", &format!("-DBUG={bug}"), "-o"])
            .arg(&binary)
            .arg(source)
            .output()
            .expect("gcc is installed");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {errors}");
        binary
    })
    .clone()
}

/// A recorded run.
pub(crate) struct Run {
    folder: TempDir,
    program: PathBuf,
}

impl Run {
    /// Records a program with a fresh pool.
    pub(crate) fn record(program: &Path, workload: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the trace");
        let mut command = powerfail();
        command
            .args(["record", "-o"])
            .arg(folder.path().join("trace"));
        command.arg("--").arg(program).arg("{pool}").args(workload);
        let output = command.output().expect("powerfail runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        Self {
            folder,
            program: program.to_owned(),
        }
    }

    /// Explores the crash states. Flags control the extent, and which findings are reported.
    pub(crate) fn explore(&self, recover: &[&str], flags: &[&str]) -> Explored {
        let mut words = vec![self.program.display().to_string(), "{pool}".to_owned()];
        words.extend(recover.iter().map(|&word| word.to_owned()));
        let mut command = powerfail();
        command.arg("crash").arg(self.folder.path().join("trace"));
        command.args(["--strategy", "lazy", "--jobs", "1"]);
        command.args(["--format", "json", "--recover", &words.join(" "), "--out"]);
        command.arg(self.folder.path().join("out")).args(flags);
        Explored::of(&command.output().expect("powerfail runs"))
    }
}

fn powerfail() -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", GUARD_SECONDS]);
    command.arg(env!("CARGO_BIN_EXE_powerfail"));
    command
}

/// The result of an exploration.
#[derive(Debug)]
pub(crate) struct Explored {
    pub(crate) code: Option<i32>,
    pub(crate) report: Report,
    pub(crate) exploration: Exploration,
}

impl Explored {
    fn of(output: &Output) -> Self {
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        let report: Report = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("no report: {error}: {text}{errors}"));
        let exploration = report.totals.exploration.clone();
        Self {
            code: output.status.code(),
            exploration: exploration.expect("an exploration"),
            report,
        }
    }

    /// Everything was tried, and nothing was found.
    pub(crate) fn is_silent(&self) -> bool {
        self.code == Some(0) && self.report.findings.is_empty() && self.is_exhaustive()
    }

    /// Whether everything was tried.
    pub(crate) fn is_exhaustive(&self) -> bool {
        let Exploration {
            failure_points,
            exhaustive,
            sampled,
            not_tried,
            ..
        } = &self.exploration;
        failure_points == exhaustive && *sampled == 0 && *not_tried == 0
    }
}
