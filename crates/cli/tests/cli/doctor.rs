//! `powerfail doctor`, as users run it.

use serde_json::Value;

use crate::common::powerfail;

#[test]
fn the_machine_that_runs_the_tests_can_check_programs() {
    let run = powerfail(&["doctor", "--json"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{}", run.stdout);
    let report: Value = serde_json::from_str(&run.stdout).expect("JSON");
    let probes = report["probes"].as_array().expect("a list");
    let subjects: Vec<_> = probes
        .iter()
        .filter_map(|it| it["subject"].as_str())
        .collect();
    let expected = [
        "kernel",
        "processor",
        "isolation",
        "shared memory",
        "open files",
        "file size",
        "address space",
        "gdb",
    ];
    assert_eq!(subjects, expected);
    let without_remedy = |it: &&Value| it["health"] != "good" && it["remedy"].is_null();
    assert_eq!(probes.iter().find(without_remedy), None);
}

#[test]
fn a_program_is_examined() {
    let own = env!("CARGO_BIN_EXE_powerfail");
    let run = powerfail(&["doctor", own]);
    assert_eq!(run.code, 0, "{}", run.stdout);
    assert!(
        run.stdout.contains(&format!("{own} can be recorded")),
        "{}",
        run.stdout
    );
    assert!(
        run.stdout.contains("the program has debug information"),
        "{}",
        run.stdout
    );
}

#[test]
fn a_program_that_cannot_be_recorded_is_named_with_what_to_do() {
    let run = powerfail(&["doctor", "/nowhere/program"]);
    assert_eq!(run.code, 4, "{}", run.stdout);
    let lines: Vec<&str> = run.stdout.lines().collect();
    let at = lines.iter().position(|it| it.contains("/nowhere/program"));
    let at = at.expect("a line about the program");
    assert!(
        lines[at].trim_start().starts_with("missing"),
        "{}",
        lines[at]
    );
    assert!(lines[at + 1].contains("help: "), "{}", lines[at + 1]);
    assert!(lines.last().is_some_and(|it| it.contains("cannot check")));
}

#[test]
fn a_limit_of_the_shell_is_reported() {
    let run = std::process::Command::new("/bin/sh")
        .args(["-c", "ulimit -f 20480 && exec \"$0\" doctor"])
        .arg(env!("CARGO_BIN_EXE_powerfail"))
        .output()
        .expect("a shell");
    let text = String::from_utf8_lossy(&run.stdout);
    assert_eq!(run.status.code(), Some(0), "{text}");
    assert!(text.contains("limited to 10 MB"), "{text}");
    assert!(text.contains("ulimit -f unlimited"), "{text}");
}
