//! How the cost of a crash test grows: with failure points, and with lines that are open at one of them.
//!
//! Not a criterion bench: it runs for minutes. Writes its table into `docs/figures/performance.md`, and the pictures beside it. Needs
//! gcc, and `powerfail` built in release mode, which `cargo xtask bench growth` builds. An argument is the largest number that is
//! tried.

#[path = "explore/document.rs"]
mod document;

use std::path::{Path, PathBuf};
use std::process::Command;

use document::Document;
use powerfail_benches::{compile, here, powerfail, run};
use powerfail_report::plot::{Plot, Scale, Series};
use serde_json::Value;

const POINTS: [u32; 7] = [10, 30, 100, 300, 1000, 3000, 10_000];
const LINES: [u32; 7] = [1, 3, 10, 30, 100, 300, 1000];

/// What is done at each failure point.
const WAYS: [(&str, &[&str]); 2] = [
    ("prefix", &["--strategy", "prefix", "--per-stack", "100000"]),
    ("lazy", &["--strategy", "lazy", "--exhaustive"]),
];

/// A curve of cost.
struct Curve {
    /// The name of its picture and of its table.
    name: &'static str,
    over: &'static str,
    /// For each number: processor time of each way, in milliseconds, and executions of recovery.
    rows: Vec<(u32, Vec<(f64, u64)>)>,
}

fn main() {
    let most = std::env::args().skip(1).find_map(|it| it.parse().ok());
    let most: u32 = most.unwrap_or(u32::MAX);
    let folder = tempfile::tempdir().expect("temporary folder");
    let bench = Bench {
        powerfail: powerfail(),
        folder: folder.path().to_owned(),
    };
    let flags = ["-std=gnu11", "-O2", "-g", "-Wl,-z,now"];
    let log = compile(&here().join("growth/log.c"), folder.path(), &flags);
    let array = here().join("../tests/targets/explore/array.c");
    let array = compile(&array, folder.path(), &flags);
    let points = POINTS.iter().filter(|count| **count <= most).map(|count| {
        // Two failure points for each entry.
        let entries = (count / 2).to_string();
        let cost = bench.cost(&log, &["append", &entries], "recover");
        shown(*count, cost)
    });
    let points = Curve {
        name: "growth-points",
        over: "failure points",
        rows: points.collect(),
    };
    let lines = LINES.iter().filter(|count| **count <= most).map(|count| {
        // Eight integers in a line.
        let integers = (8 * count).to_string();
        let recover = format!("recover {integers}");
        let cost = bench.cost(&array, &["fill", &integers], &recover);
        shown(*count, cost)
    });
    let lines = Curve {
        name: "growth-lines",
        over: "lines that are open at a failure point",
        rows: lines.collect(),
    };
    let figures = here().join("../docs/figures");
    let mut document = Document::open(figures.join("performance.md"));
    for curve in [points, lines] {
        document.replace(curve.name, &curve.table());
        let picture = figures.join(curve.name).with_extension("svg");
        std::fs::write(picture, curve.picture()).expect("the picture can be written");
    }
    document.write();
}

fn shown(count: u32, cost: Vec<(f64, u64)>) -> (u32, Vec<(f64, u64)>) {
    println!("{count}: {cost:?}");
    (count, cost)
}

impl Curve {
    fn table(&self) -> Vec<String> {
        let mut rows = vec![
            format!("| {} | prefix, ms | runs | lazy, ms | runs |", self.over),
            "| ---: | ---: | ---: | ---: | ---: |".to_owned(),
        ];
        for (count, costs) in &self.rows {
            let costs = costs
                .iter()
                .map(|(time, runs)| format!(" {time:.0} | {runs} |"));
            rows.push(format!("| {count} |{}", costs.collect::<String>()));
        }
        rows
    }

    fn picture(&self) -> String {
        let series = WAYS.iter().enumerate().map(|(way, (name, _))| {
            let points = self.rows.iter();
            let points = points.map(|(count, costs)| (f64::from(*count), costs[way].0));
            Series {
                name: (*name).to_owned(),
                points: points.collect(),
                dots: Vec::new(),
            }
        });
        let plot = Plot {
            title: format!("Processor time over {}", self.over),
            label: "processor time (ms)".to_owned(),
            over: Some(self.over.to_owned()),
            time: Scale::Logarithmic,
            values: Scale::Logarithmic,
            series: series.collect(),
        };
        plot.svg()
    }
}

struct Bench {
    powerfail: PathBuf,
    folder: PathBuf,
}

impl Bench {
    /// Records a workload and tries its crashes in each way: processor time in milliseconds and executions of recovery.
    fn cost(&self, program: &Path, workload: &[&str], recover: &str) -> Vec<(f64, u64)> {
        let trace = self.folder.join("trace");
        let mut record = Command::new(&self.powerfail);
        record.args(["record", "-o"]).arg(&trace).arg("--");
        record.arg(program).arg("{pool}").args(workload);
        run(&mut record);
        let recover = format!("{} {{pool}} {recover}", program.display());
        let ways = WAYS.iter().map(|(_, options)| {
            let mut crash = Command::new("bash");
            // What the shell's `time` says, behind the report.
            let script = r#"TIMEFORMAT='%3U %3S'; { time "$@" 2>/dev/null; } 2>&1"#;
            crash.args(["-c", script, "bash"]).arg(&self.powerfail);
            crash.arg("crash").arg(&trace).args(["--recover", &recover]);
            crash.args(["--jobs", "1", "--format", "json"]);
            crash.args(*options);
            let printed = run(&mut crash);
            let (report, times) = printed.trim_end().rsplit_once('\n').expect("times");
            let report: Value = serde_json::from_str(report).expect("a report");
            let seconds = times.split_whitespace().map(str::parse::<f64>);
            let seconds: f64 = seconds.map(|it| it.expect("a time")).sum();
            let runs = report["totals"]["recovery_runs"].as_u64();
            (1000.0 * seconds, runs.expect("a number"))
        });
        ways.collect()
    }
}
