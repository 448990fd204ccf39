//! What a check costs if many executions fail: a record of many lines is published before it is durable, so recovery
//! fails with almost every combination of contents that it can observe. With `libc6-dbg` installed, the debug
//! information of the C library is large, too.
//!
//! Not a criterion bench: it runs for seconds. Needs gcc and libpmem, and `powerfail` built in release mode, which
//! `cargo xtask bench failures` builds.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

const LINES: [&str; 3] = ["4", "8", "16"];

fn main() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let powerfail = std::env::var_os("POWERFAIL")
        .map_or_else(|| here.join("../target/release/powerfail"), PathBuf::from);
    assert!(powerfail.exists(), "{} is not built", powerfail.display());
    let folder = tempfile::tempdir().expect("temporary folder");
    let program = folder.path().join("records");
    let status = Command::new("gcc")
        .args(["-O1", "-g", "-o"])
        .arg(&program)
        .arg(here.join("failures/records.c"))
        .arg("-lpmem")
        .status()
        .expect("gcc runs");
    assert!(status.success(), "records does not compile");
    for lines in LINES {
        let begun = Instant::now();
        let output = Command::new(&powerfail)
            .args(["check", "--format", "json", "--out"])
            .arg(folder.path().join("out"))
            .arg("--recover")
            .arg(format!("{} {{pool}} {lines} verify", program.display()))
            .arg("--")
            .args([program.as_os_str(), "{pool}".as_ref(), lines.as_ref()])
            .output()
            .expect("powerfail runs");
        let took = begun.elapsed().as_secs_f64();
        assert_eq!(output.status.code(), Some(1), "it has a bug");
        let text = String::from_utf8_lossy(&output.stdout);
        let report: serde_json::Value = serde_json::from_str(&text).expect("a report");
        println!(
            "{lines} lines in a record: {took:.2} s, {} events, {} recoveries, {} findings",
            report["totals"]["events"],
            report["totals"]["recovery_runs"],
            report["findings"].as_array().map_or(0, Vec::len)
        );
    }
}
