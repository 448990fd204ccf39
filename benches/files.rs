//! Ordinary files: what recording costs, how many recoveries a second run on a large tree, and a whole check of `SQLite`.
//!
//! Not a criterion bench: it runs for a minute. Needs gcc and libsqlite3, and `powerfail` built in release mode, which
//! `cargo xtask bench files` builds.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use powerfail_benches::{compile, here, powerfail, run};
use serde_json::Value;

/// Each time is the best of so many.
const REPETITIONS: usize = 3;

fn seconds(work: &mut dyn FnMut()) -> f64 {
    let times = (0..REPETITIONS).map(|_| {
        let begun = Instant::now();
        work();
        begun.elapsed().as_secs_f64()
    });
    times.fold(f64::INFINITY, f64::min)
}

/// What recording the writes of a kind costs.
fn recording(powerfail: &Path, program: &Path, kind: &str, count: &str) {
    let native = seconds(&mut || {
        let directory = tempfile::tempdir_in("/dev/shm").expect("temporary folder");
        run(Command::new(program)
            .arg(kind)
            .arg(directory.path())
            .arg(count));
    });
    let folder = tempfile::tempdir().expect("temporary folder");
    let trace = folder.path().join("run.trace");
    let (mut whole, mut target) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..REPETITIONS {
        let begun = Instant::now();
        let text = run(Command::new(powerfail)
            .args(["record", "--json", "-o"])
            .arg(&trace)
            .arg("--")
            .arg(program)
            .args([kind, "{dir}", count]));
        whole = whole.min(begun.elapsed().as_secs_f64());
        let summary: Value = serde_json::from_str(&text).expect("a summary");
        let wall = summary["wall_time_ms"].as_f64().map(|it| it / 1000.0);
        target = target.min(wall.unwrap_or(f64::INFINITY));
    }
    println!(
        "{count} {kind}: native {native:.2} s, recorded {target:.2} s ({:.2} times), with the check of the trace {whole:.2} s",
        target / native
    );
}

/// How many recoveries a second run on a tree of 20 files and 100 MiB, with one worker.
fn recoveries(powerfail: &Path, program: &Path) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let trace = folder.path().join("run.trace");
    run(Command::new(powerfail)
        .args(["record", "-o"])
        .arg(&trace)
        .arg("--")
        .arg(program)
        .args(["tree", "{dir}", "200"]));
    let begun = Instant::now();
    let text = run(Command::new(powerfail)
        .args([
            "crash",
            "--strategy",
            "lazy",
            "--jobs",
            "1",
            "--format",
            "json",
        ])
        .arg(&trace)
        .args(["--recover", &format!("{} look {{dir}}", program.display())]));
    let time = begun.elapsed().as_secs_f64();
    let report: Value = serde_json::from_str(&text).expect("a report");
    let runs = report["totals"]["recovery_runs"].as_f64().unwrap_or(0.0);
    println!(
        "20 files, 100 MiB: {runs} recoveries in {time:.2} s with one worker, {:.0} a second, reading the trace included",
        runs / time
    );
}

/// A check of `SQLite` in WAL mode.
fn sqlite(powerfail: &Path, program: &Path, transactions: &str) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let begun = Instant::now();
    let text = run(Command::new(powerfail)
        .args(["check", "--format", "json", "--out"])
        .arg(folder.path().join("out"))
        .args(["--recover", &format!("{} check {{dir}}", program.display())])
        .arg("--")
        .arg(program)
        .args(["run", "{dir}", transactions]));
    let time = begun.elapsed().as_secs_f64();
    let report: Value = serde_json::from_str(&text).expect("a report");
    let totals = &report["totals"];
    println!(
        "SQLite, WAL, {transactions} transactions: {time:.2} s, {} operations, {} of {} failure points, {} recoveries",
        totals["tree"]["operations"],
        totals["failure_points_run"],
        totals["failure_points"],
        totals["recovery_runs"]
    );
}

fn main() {
    let powerfail = powerfail();
    let folder = tempfile::tempdir().expect("temporary folder");
    let writes = here().join("files/writes.c");
    let writes = compile(&writes, folder.path(), &["-O2", "-g"]);
    let transactions = here().join("files/transactions.c");
    let transactions = compile(&transactions, folder.path(), &["-O2", "-g", "-lsqlite3"]);
    recording(&powerfail, &writes, "pages", "262144");
    recording(&powerfail, &writes, "appends", "1000000");
    recoveries(&powerfail, &writes);
    for count in ["10", "100", "1000"] {
        sqlite(&powerfail, &transactions, count);
    }
}
