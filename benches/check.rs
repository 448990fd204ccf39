//! What a whole check costs: the B-tree program of the recorder's benchmark, 150,000 operations, with default options.
//!
//! Not a criterion bench: it runs for seconds. Needs gcc and libpmemobj, and `powerfail` built in release
//! mode, which `cargo xtask bench check` builds.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

fn main() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let powerfail = std::env::var_os("POWERFAIL")
        .map_or_else(|| here.join("../target/release/powerfail"), PathBuf::from);
    assert!(powerfail.exists(), "{} is not built", powerfail.display());
    let folder = tempfile::tempdir().expect("temporary folder");
    let program = folder.path().join("btree");
    let status = Command::new("gcc")
        .args(["-O2", "-g", "-o"])
        .arg(&program)
        .arg(here.join("record/btree.c"))
        .arg("-lpmemobj")
        .status()
        .expect("gcc runs");
    assert!(status.success(), "btree does not compile");
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

/// Runs a command that must succeed, and returns its output.
fn run(command: &mut Command) -> String {
    let output = command.output().expect("powerfail runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}
