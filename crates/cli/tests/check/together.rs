//! Many runs of powerfail at once do not disturb each other.

use std::process::Child;

use crate::common::{CLEAN, FINDINGS, Folder, RECOVER, Run};

const AT_ONCE: usize = 10;

#[test]
fn ten_recordings_and_ten_checks() {
    let folder = Folder::new();
    folder.build_planted("bug", "fail/atomicity/count_before_entry.c");
    let start = |number: usize, arguments: &[&str]| -> Child {
        let output = |kind: &str| {
            let name = format!("{}-{number}.{kind}", arguments[0]);
            std::fs::File::create(folder.path(&name)).expect("a file for its output")
        };
        let mut command = folder.command("timeout");
        command
            .args(["--kill-after=10", "600", env!("CARGO_BIN_EXE_powerfail")])
            .args(arguments)
            .stdout(output("stdout"))
            .stderr(output("stderr"));
        command.spawn().expect("powerfail starts")
    };
    let started: Vec<(Child, Child)> = (0..AT_ONCE)
        .map(|number| {
            let (trace, out) = (format!("run-{number}.trace"), format!("out-{number}"));
            let workload = ["--", "./bug", "{pool}"];
            let record = [&["record", "-o", &trace][..], &workload].concat();
            let check = ["check", "--recover", RECOVER, "--jobs", "1", "--out", &out];
            let check = [&check[..], &workload].concat();
            (start(number, &record), start(number, &check))
        })
        .collect();
    let wait = |mut child: Child, name: &str, number: usize| {
        let status = child.wait().expect("it ends");
        let read = |kind: &str| {
            let path = folder.path(&format!("{name}-{number}.{kind}"));
            std::fs::read_to_string(path).expect("its output")
        };
        Run {
            code: status.code().unwrap_or(-1),
            stdout: read("stdout"),
            stderr: read("stderr"),
        }
    };
    let mut reports: Vec<String> = Vec::new();
    for (number, (record, check)) in started.into_iter().enumerate() {
        wait(record, "record", number).ends_with(CLEAN);
        let checked = wait(check, "check", number).ends_with(FINDINGS);
        // Each has a fresh pool with a name of its own.
        let lines = checked.stdout.lines();
        let lines = lines.filter(|line| !line.trim_start().starts_with("= pool:"));
        let report = lines.collect::<Vec<_>>().join("\n");
        reports.push(report.replace(&format!("out-{number}"), "out"));
    }
    assert!(reports[0].contains("PF0301"), "{}", reports[0]);
    for report in &reports {
        assert_eq!(*report, reports[0]);
    }
}
