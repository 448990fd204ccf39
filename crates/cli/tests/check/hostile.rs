//! Recoveries that attack what supervises them: the report is complete, the attack is a finding, and later states are
//! still tried.

use std::fs;
use std::path::Path;

use crate::common::{FINDINGS, Folder, RECOVER, Run};

const STRATEGIES: [&str; 3] = ["prefix", "eager", "lazy"];

fn recorded() -> Folder {
    let folder = Folder::new();
    folder.build_own("bug", "hostile.c", &[]);
    folder.record();
    folder
}

fn crash(folder: &Folder, strategy: &str, attack: &str) -> Run {
    let recover = format!("./bug {{pool}} {attack}");
    let arguments = ["crash", "run.trace", "--format", "json", "--jobs", "1"];
    let mut arguments = arguments.to_vec();
    arguments.extend(["--strategy", strategy, "--recover", &recover]);
    folder.powerfail(&arguments)
}

/// The line of the program with this comment.
fn line_with(comment: &str) -> u32 {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/check/programs/hostile.c");
    let text = fs::read_to_string(source).expect("a source");
    let line = text.lines().position(|line| line.ends_with(comment));
    line.expect("the comment") as u32 + 1
}

#[test]
fn an_attack_on_the_supervisor_is_a_finding_at_its_line() {
    let folder = recorded();
    for (attack, comment) in [
        ("everyone", "// signals everyone"),
        ("parent", "// kills its parent"),
        ("stop", "// stops its parent"),
    ] {
        for strategy in STRATEGIES {
            let run = crash(&folder, strategy, attack).ends_with(FINDINGS);
            let finding = run.finding("PF0401");
            let line = Some(line_with(comment));
            let mut frames = finding.places.iter().flat_map(|place| &place.stack);
            let is_shown = frames.any(|frame| frame.line == line);
            assert!(is_shown, "{strategy} {attack}: {finding:?}");
            assert!(run.stdout.contains("SIGSYS"), "{strategy} {attack}");
            assert!(run.stdout.contains("the process that supervises it"));
        }
    }
}

#[test]
fn a_recovery_that_unmounts_everything_loses_nothing() {
    let folder = recorded();
    for strategy in STRATEGIES {
        let run = crash(&folder, strategy, "unmount").ends_with(FINDINGS);
        assert!(run.stdout.contains("\"status\": 7"), "{}", run.stdout);
    }
    assert!(Path::new("/dev/shm").is_dir());
}

#[test]
fn the_finding_of_a_check_is_replayed() {
    let folder = Folder::new();
    folder.build_own("bug", "hostile.c", &[]);
    let check = ["check", "--jobs", "1", "--recover", "./bug {pool} everyone"];
    let run = folder.powerfail(&[&check[..], &["--", "./bug", "{pool}"]].concat());
    let run = run.ends_with(FINDINGS);
    let replay = run.stdout.lines().find_map(|line| {
        let command = line.trim_start().strip_prefix("= replay: ")?;
        command.strip_prefix("powerfail ")
    });
    let words: Vec<&str> = replay.expect("a command").split_whitespace().collect();
    let again = folder.powerfail(&words).ends_with(FINDINGS);
    assert!(again.stdout.contains("SIGSYS"), "{}", again.stdout);
}

/// As in a container: the leader of the process group is outside of the process namespace, where it has no number.
#[test]
fn a_process_group_from_outside_of_the_namespace() {
    let folder = Folder::new();
    folder.build_planted("bug", "fail/atomicity/count_before_entry.c");
    let mut unshare = folder.command("unshare");
    if !rustix::process::geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    unshare.args(["--pid", "--mount-proc", "--fork"]);
    unshare.arg(env!("CARGO_BIN_EXE_powerfail"));
    unshare.args(["check", "--no-lazy", "--recover", RECOVER]);
    unshare.args(["--", "./bug", "{pool}"]);
    let run = Run::from(unshare.output().expect("unshare"));
    run.ends_with(FINDINGS);
}
