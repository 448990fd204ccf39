//! What a check costs if many executions fail: a record of many lines is published before it is durable, so recovery
//! fails with almost every combination of contents that it can observe, in an assertion, whose call stack is in the C library.
//! The debug information of that is large; a run must read it once, however often recovery fails.
//!
//! Not a criterion bench: it runs for seconds. Needs gcc, libpmem and libc6-dbg, and `powerfail` built in release mode, which
//! `cargo xtask bench failures` builds.

#[path = "failures/debug_files.rs"]
mod debug_files;

use std::process::Command;
use std::time::Instant;

use debug_files::DebugFiles;
use powerfail_benches::{compile, here, powerfail};

const LINES: [&str; 3] = ["4", "8", "16"];

fn main() {
    let powerfail = powerfail();
    let folder = tempfile::tempdir().expect("temporary folder");
    let source = here().join("failures/records.c");
    let program = compile(&source, folder.path(), &["-O1", "-g", "-lpmem"]);
    for lines in LINES {
        let debug_files = DebugFiles::watch();
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
        let opened = debug_files.opened();
        println!(
            "{lines} lines in a record: {took:.2} s, {} events, {} recoveries, {} findings, {} debug files opened",
            report["totals"]["events"],
            report["totals"]["recovery_runs"],
            report["findings"].as_array().map_or(0, Vec::len),
            opened.len(),
        );
        assert!(!opened.is_empty(), "the C library has a debug file");
        for (name, times) in opened {
            assert_eq!(times, 1, "{name} is read once in a run");
        }
    }
}
