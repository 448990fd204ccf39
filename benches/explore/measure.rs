//! Builds a program, records it, explores its crash states, and measures the cost.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use powerfail_benches::{compile, run};
use serde_json::Value;
use tempfile::TempDir;

/// How often recovery runs without powerfail; the best run counts.
const NATIVE_RUNS: usize = 50;

pub(crate) struct Bench {
    powerfail: PathBuf,
    sources: PathBuf,
    folder: TempDir,
}

/// The cost of exploring a run.
pub(crate) struct Measured {
    pub(crate) events: u64,
    pub(crate) failure_points: u64,
    exhaustive: u64,
    pub(crate) executions: u64,
    /// Executions that were not needed.
    pub(crate) saved: u64,
    pub(crate) choices: u64,
    /// The number of crash states.
    pub(crate) states: String,
    pub(crate) time_s: f64,
    /// Processor time of powerfail and of all recoveries.
    processor_s: f64,
    /// The time of recovery without powerfail, on the pool as the workload left it.
    pub(crate) native_ms: f64,
}

impl Measured {
    /// Average processor time of one execution, including its share of everything else.
    pub(crate) fn each_ms(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
        let executions = self.executions.max(1) as f64;
        1000.0 * self.processor_s / executions
    }

    /// The figures of an incomplete exploration would be meaningless.
    pub(crate) fn require_exhaustive(&self, name: &str) {
        assert_eq!(
            self.exhaustive, self.failure_points,
            "{name} is not explored to its end"
        );
    }
}

impl Bench {
    pub(crate) fn new(powerfail: PathBuf, sources: PathBuf) -> Self {
        Self {
            powerfail,
            sources,
            folder: tempfile::tempdir().expect("temporary folder"),
        }
    }

    pub(crate) fn build(&self, name: &str) -> PathBuf {
        let source = self.sources.join(format!("{name}.c"));
        let options = ["-std=gnu11", "-O2", "-g", "-Wl,-z,now"];
        compile(&source, self.folder.path(), &options)
    }

    /// Records a workload and explores all of its crash states. No recovery may fail.
    pub(crate) fn explore(&self, program: &Path, workload: &[&str], recover: &[&str]) -> Measured {
        let mut record = self.record();
        record.arg(program).arg("{pool}").args(workload);
        run(&mut record);
        self.explore_recorded(program, workload, recover)
    }

    /// The same, where the pool exists before: another workload has made it.
    pub(crate) fn explore_from(
        &self,
        first: &[&str],
        program: &Path,
        workload: &[&str],
        recover: &[&str],
    ) -> Measured {
        let pool = self.folder.path().join("pool");
        run(Command::new(program).arg(&pool).args(first));
        let mut record = self.record();
        record.arg(program).arg(&pool).args(workload);
        run(&mut record);
        std::fs::remove_file(&pool).expect("the pool is there");
        self.explore_recorded(program, workload, recover)
    }

    fn trace(&self) -> PathBuf {
        self.folder.path().join("trace")
    }

    /// Records what is added to it.
    fn record(&self) -> Command {
        let mut record = Command::new(&self.powerfail);
        record.args(["record", "-o"]).arg(self.trace()).arg("--");
        record
    }

    fn explore_recorded(&self, program: &Path, workload: &[&str], recover: &[&str]) -> Measured {
        let trace = self.trace();

        let mut words = vec![program.display().to_string(), "{pool}".to_owned()];
        words.extend(recover.iter().map(|&word| word.to_owned()));
        let mut crash = Command::new(&self.powerfail);
        crash.arg("crash").arg(&trace);
        crash.args(["--strategy", "lazy", "--exhaustive"]);
        crash.args(["--format", "json", "--recover", &words.join(" "), "--out"]);
        crash.arg(self.folder.path().join("out"));
        // The lint reports transient locks and the like; only crashes matter here.
        crash.args(["--only", "atomicity,ordering,recovery-crash,recovery-hang"]);
        let (text, time_s, processor_s) = timed(&crash);

        let report: Value = serde_json::from_str(&text).expect("a report");
        let totals = &report["totals"];
        let exploration = &totals["exploration"];
        let number = |name: &str| exploration[name].as_u64().expect("a number");
        Measured {
            events: totals["events"].as_u64().expect("a number"),
            failure_points: number("failure_points"),
            exhaustive: number("exhaustive"),
            executions: number("executions"),
            saved: number("executions_saved"),
            choices: number("choices"),
            states: exploration["states"].as_str().expect("a text").to_owned(),
            time_s,
            processor_s,
            native_ms: self.native_ms(program, workload, recover),
        }
    }

    fn native_ms(&self, program: &Path, workload: &[&str], recover: &[&str]) -> f64 {
        let pool = self.folder.path().join("pool");
        let call = |arguments: &[&str]| {
            let begun = Instant::now();
            let mut command = Command::new(program);
            command.arg(&pool).args(arguments).stdout(Stdio::null());
            let status = command.status().expect("the program runs");
            assert!(status.success(), "{} fails", program.display());
            1000.0 * begun.elapsed().as_secs_f64()
        };
        call(workload);
        let runs = (0..NATIVE_RUNS).map(|_| call(recover));
        let best = runs.fold(f64::MAX, f64::min);
        std::fs::remove_file(&pool).expect("the pool is there");
        best
    }
}

/// Runs a command that must succeed. Returns its output, how long it took, and its processor time including that of
/// its children, as the shell's `time` reports it.
fn timed(command: &Command) -> (String, f64, f64) {
    let mut shell = Command::new("bash");
    shell.args(["-c", "TIMEFORMAT='%R %U %S'; time \"$@\"", "bash"]);
    shell.arg(command.get_program()).args(command.get_args());
    let output = shell.output().expect("bash runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    let last = errors.lines().last().unwrap_or_default();
    let times: Vec<f64> = last
        .split_whitespace()
        .filter_map(|time| time.parse().ok())
        .collect();
    let [whole, user, system] = times[..] else {
        panic!("no times: {errors}");
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (text, whole, user + system)
}
