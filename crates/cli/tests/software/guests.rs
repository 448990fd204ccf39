//! `powerfail vm check`: a guest with Debian's kernel. The bug is in the script: what it replaces is gone for a moment.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const POWERFAIL: &str = env!("CARGO_BIN_EXE_powerfail");

fn check(directory: &Path, kernel: &Path, workload: &str, out: &str) -> Output {
    fs::write(directory.join("ops.sh"), workload).unwrap();
    Command::new(POWERFAIL)
        .args(["vm", "check", "--fs", "ext4", "--workload", "ops.sh"])
        .args(["--recover", "recover.sh", "--machine", "machine"])
        .args(["--out", out, "--kernel"])
        .arg(kernel)
        .current_dir(directory)
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    text
}

/// One test, because the machine boots once: the bug is found and shown again, its repaired twin is clean, and the recording
/// replays.
#[test]
fn a_file_that_is_gone_for_a_moment_is_found() {
    let kernel = xtask::vm::kernel(&xtask::vm::work_directory().unwrap()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    fs::write(
        directory.join("recover.sh"),
        "[ ! -e ready ] || [ -e config ]\n",
    )
    .unwrap();
    let before = "echo old > config; sync\necho new > next; touch ready; sync\n";

    let wrong = format!("{before}rm config; sync\nmv next config; sync\n");
    let found = check(directory, &kernel, &wrong, "wrong");
    let report = text(&found);
    assert_eq!(found.status.code(), Some(1), "{report}");
    assert!(report.contains("PF0301"), "{report}");
    assert!(report.contains("the recovery script failed"), "{report}");
    assert!(report.contains("rm config"), "{report}");

    let right = format!("{before}mv next config; sync\n");
    let clean = check(directory, &kernel, &right, "right");
    assert_eq!(clean.status.code(), Some(0), "{}", text(&clean));
    let trace = Command::new(POWERFAIL)
        .args(["trace", "check", "right/run.trace"])
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(trace.status.success(), "{}", text(&trace));

    let json = fs::read_to_string(directory.join("wrong/report.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let id = json["findings"][0]["id"].as_str().unwrap().to_owned();
    let again = Command::new(POWERFAIL)
        .args(["replay", &id, "--out", "wrong"])
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(text(&again).contains("the same again"), "{}", text(&again));
}
