//! What watching the reads of recovery costs: a libpmemobj map with one transaction per insert, recorded and analysed.
//!
//! Not a criterion bench: it runs for seconds. Prints a table and writes it into `docs/figures/races-figures.md`,
//! between the comments that name it. Needs gcc and libpmemobj, and `powerfail` built in release mode, which
//! `cargo xtask bench races` builds.

#[path = "explore/document.rs"]
mod document;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use document::Document;
use powerfail_benches::{compile, here, powerfail, run};
use serde_json::Value;
use tempfile::TempDir;

/// The numbers of inserted keys.
const INSERTS: [u32; 4] = [1, 10, 100, 1000];
/// The target in seconds for the first and the last of them.
const TARGETS: [(u32, f64); 2] = [(1, 1.0), (1000, 60.0)];
/// How often a run without powerfail is timed; the best one counts.
const NATIVE_RUNS: usize = 10;
/// The number of parallel recoveries that the figures apply to.
const JOBS: &str = "2";

struct Bench {
    powerfail: PathBuf,
    program: PathBuf,
    folder: TempDir,
}

/// The measurements for one number of inserts.
struct Measured {
    events: u64,
    failure_points: u64,
    executions: u64,
    /// Failure points that needed no run.
    unchanged: u64,
    findings: usize,
    recorded_s: f64,
    analysed_s: f64,
    /// Workload and recovery, once each, without powerfail.
    native_s: f64,
}

impl Measured {
    fn whole_s(&self) -> f64 {
        self.recorded_s + self.analysed_s
    }
}

fn main() {
    let bench = Bench::new();
    let mut rows = vec![
        "| inserts | events | failure points | executions | unchanged | recorded | analysed | in all | to native |"
            .to_owned(),
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |".to_owned(),
    ];
    for row in &rows {
        println!("{row}");
    }
    for inserts in INSERTS {
        let measured = bench.measure(inserts);
        assert_eq!(measured.findings, 0, "the map is right");
        let Measured {
            events,
            failure_points,
            executions,
            unchanged,
            recorded_s,
            analysed_s,
            native_s,
            ..
        } = measured;
        let whole_s = measured.whole_s();
        let ratio = whole_s / native_s;
        rows.push(format!(
            "| {inserts} | {events} | {failure_points} | {executions} | {unchanged} | {recorded_s:.2} s | {analysed_s:.2} s | {whole_s:.2} s | {ratio:.0} |"
        ));
        println!("{}", rows.last().map_or("", String::as_str));
        for (_, target_s) in TARGETS.iter().filter(|(count, _)| *count == inserts) {
            let verdict = if whole_s < *target_s { "met" } else { "missed" };
            println!("target of {target_s} s: {verdict}");
        }
    }
    let mut document = Document::open(here().join("../docs/figures/races-figures.md"));
    document.replace("inserts", &rows);
    document.write();
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("temporary folder");
        let options = ["-O2", "-g", "-Wl,-z,now", "-lpmemobj"];
        Self {
            powerfail: powerfail(),
            program: compile(&here().join("record/btree.c"), folder.path(), &options),
            folder,
        }
    }

    fn measure(&self, inserts: u32) -> Measured {
        let inserts = inserts.to_string();
        let trace = self.folder.path().join("run.trace");
        let begun = Instant::now();
        let mut record = Command::new(&self.powerfail);
        record.args(["record", "-o"]).arg(&trace).arg("--");
        record.arg(&self.program).args(["{pool}", &inserts]);
        run(&mut record);
        let recorded_s = begun.elapsed().as_secs_f64();

        let begun = Instant::now();
        let mut races = Command::new(&self.powerfail);
        races.arg("races").arg(&trace);
        races.args(["--format", "json", "--jobs", JOBS, "--recover"]);
        races.arg(format!("{} {{pool}} resume", self.program.display()));
        let text = run(&mut races);
        let analysed_s = begun.elapsed().as_secs_f64();

        let report: Value = serde_json::from_str(&text).expect("a report");
        let totals = &report["totals"];
        let number = |value: &Value| value.as_u64().expect("a number");
        let count = |name: &str| number(&totals["races"][name]);
        assert_eq!(count("refused") + count("not_tried"), 0, "{totals}");
        Measured {
            events: number(&totals["events"]),
            failure_points: count("failure_points"),
            executions: count("executions"),
            unchanged: count("unchanged"),
            findings: report["findings"].as_array().map_or(0, Vec::len),
            recorded_s,
            analysed_s,
            native_s: self.native_s(&inserts),
        }
    }

    /// The workload and then recovery, without powerfail.
    fn native_s(&self, inserts: &str) -> f64 {
        let pool = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
        let path = pool.path().join("pool");
        let call = |argument: &str| {
            let mut command = Command::new(&self.program);
            command.arg(&path).arg(argument).stdout(Stdio::null());
            let status = command.status().expect("the program runs");
            assert!(status.success(), "{argument} fails");
        };
        let runs = (0..NATIVE_RUNS).map(|_| {
            let begun = Instant::now();
            call(inserts);
            call("resume");
            let took = begun.elapsed().as_secs_f64();
            std::fs::remove_file(&path).expect("the pool is there");
            took
        });
        runs.fold(f64::MAX, f64::min)
    }
}
