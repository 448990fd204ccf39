//! What a whole check costs: the B-tree program of the recorder's benchmark, 150,000 operations, with default options.
//!
//! Not a criterion bench: it runs for seconds. Needs gcc and libpmemobj, and `powerfail` built in release
//! mode, which `cargo xtask bench check` builds.

use std::process::Command;
use std::time::Instant;

use powerfail_benches::{compile, here, powerfail, run};

fn main() {
    let powerfail = powerfail();
    let folder = tempfile::tempdir().expect("temporary folder");
    let source = here().join("record/btree.c");
    let program = compile(&source, folder.path(), &["-O2", "-g", "-lpmemobj"]);
    let out = folder.path().join("out");
    let trace = folder.path().join("lint.trace");

    let begun = Instant::now();
    run(Command::new(&powerfail)
        .args(["record", "-o"])
        .arg(&trace)
        .arg("--")
        .args([program.as_os_str(), "{pool}".as_ref(), "150000".as_ref()]));
    let recorded = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    run(Command::new(&powerfail).arg("lint").arg(&trace));
    let linted = begun.elapsed().as_secs_f64();

    let begun = Instant::now();
    let text = run(Command::new(&powerfail)
        .args(["check", "--format", "json", "--out"])
        .arg(&out)
        .args([
            "--recover",
            &format!("{} {{pool}} verify", program.display()),
        ])
        .arg("--")
        .args([program.as_os_str(), "{pool}".as_ref(), "150000".as_ref()]));
    let checked = begun.elapsed().as_secs_f64();
    let report: serde_json::Value = serde_json::from_str(&text).expect("a report");
    let totals = &report["totals"];
    println!("record {recorded:.2} s, lint {linted:.2} s, whole check {checked:.2} s");
    println!(
        "{} events, {} of {} failure points ({} call stacks), {} recoveries, {} findings",
        totals["events"],
        totals["failure_points_run"],
        totals["failure_points"],
        totals["failure_point_stacks"],
        totals["recovery_runs"],
        report["findings"].as_array().map_or(0, Vec::len)
    );
}
