//! `powerfail vm check`: guests with Debian's kernel. Bugs are in a script, which replaces a file that is gone for a moment, and in
//! a module, whose recovery is not idempotent.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read as _, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use powerfail_test_support::events;

const POWERFAIL: &str = env!("CARGO_BIN_EXE_powerfail");

fn command(directory: &Path, kernel: &Path, workload: &str, out: &str) -> Command {
    fs::write(directory.join("ops.sh"), workload).unwrap();
    let mut command = Command::new(POWERFAIL);
    command
        .args(["vm", "check", "--workload", "ops.sh"])
        // A second guest takes more processor time than it saves.
        .args(["--machine", "machine", "--jobs", "1"])
        .args(["--out", out, "--kernel"])
        .arg(kernel)
        .current_dir(directory);
    command
}

fn check(directory: &Path, kernel: &Path, workload: &str, out: &str) -> Output {
    let mut command = command(directory, kernel, workload, out);
    command.args(["--fs", "ext4", "--recover", "recover.sh"]);
    command.output().unwrap()
}

/// How many files the guests of a process have.
fn files_of_guests(process: u32) -> usize {
    let name = format!("-{process}-");
    let files = fs::read_dir("/dev/shm").unwrap().flatten();
    let files = files.filter(|it| it.file_name().to_string_lossy().contains(&name));
    files.count()
}

/// A directory for the front of `PATH` that makes the start of each guest take a second.
fn slow_start(directory: &Path) -> OsString {
    let programs = directory.join("slow");
    fs::create_dir(&programs).unwrap();
    let slow = programs.join("setpriv");
    fs::write(&slow, "#!/bin/sh\nsleep 1\nexec /usr/bin/setpriv \"$@\"\n").unwrap();
    fs::set_permissions(&slow, Permissions::from_mode(0o755)).unwrap();
    let mut path = programs.into_os_string();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap());
    path
}

/// A check that is killed leaves no guest behind, not even one that was about to start, and the next one removes its files.
fn kill_a_check(directory: &Path, kernel: &Path) -> u32 {
    let mut command = command(directory, kernel, "echo new > file; sync\n", "killed");
    let variable = ("POWERFAIL_TEST_GUEST", directory.to_str().unwrap());
    let mut running = command
        .args(["--mkfs", "ext4"])
        .env(variable.0, variable.1)
        .env("PATH", slow_start(directory))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(running.stderr.take().unwrap()).lines();
    let mut lines = lines.map_while(Result::ok);
    assert!(lines.any(|line| line == "recording the workload"));
    let process = running.id();
    events::wait_for_entries(Path::new("/dev/shm"), "the files of a guest", || {
        files_of_guests(process) > 0
    });
    running.kill().unwrap();
    running.wait().unwrap();
    events::wait_until_none_has(&format!("{}={}", variable.0, variable.1));
    process
}

/// The first finding of a report.
fn finding(directory: &Path, out: &str) -> serde_json::Value {
    let json = fs::read_to_string(directory.join(out).join("report.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    json["findings"][0].clone()
}

/// The operations of a recording, as its marks name them.
fn operations(directory: &Path, out: &str) -> Vec<String> {
    let trace = format!("{out}/run.trace");
    let events = Command::new(POWERFAIL)
        .args(["trace", "events", "--json", &trace])
        .current_dir(directory)
        .output()
        .unwrap();
    let events = text(&events);
    let marks = events.lines().filter_map(|line| {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        let payload = event["payload"].as_str()?;
        let digits = (0..payload.len()).step_by(2).map(|at| &payload[at..at + 2]);
        let bytes = digits.map(|digits| u8::from_str_radix(digits, 16).unwrap());
        (event["kind"] == "annotation").then(|| String::from_utf8(bytes.collect()).unwrap())
    });
    marks.collect()
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
    let directory = &fs::canonicalize(directory.path()).unwrap();
    fs::write(
        directory.join("recover.sh"),
        "[ ! -e ready ] || [ -e config ]\n",
    )
    .unwrap();
    let before = "echo old > config; echo new > next; touch ready; sync\n";

    let wrong = format!("{before}rm config; sync\nmv next config; sync\n");
    let found = check(directory, &kernel, &wrong, "wrong");
    let report = text(&found);
    assert_eq!(found.status.code(), Some(1), "{report}");
    assert!(report.contains("PF0301"), "{report}");
    assert!(report.contains("the recovery script failed"), "{report}");
    // Recovery fails from the one until the other; the report shows one of these moments.
    let names_operation = |line| report.contains(line);
    assert!(
        names_operation("rm config") || names_operation("mv next config"),
        "{report}"
    );

    let killed = kill_a_check(directory, &kernel);
    // What a line prints is not taken for what is stored.
    let right = format!("{before}cat config\ncat config\nmv next config; sync config\n");
    let clean = check(directory, &kernel, &right, "right");
    assert_eq!(clean.status.code(), Some(0), "{}", text(&clean));
    assert_eq!(
        operations(directory, "right"),
        [
            "openat in `echo old > config; echo new > next; touch ready; sync`",
            "write in `echo old > config; echo new > next; touch ready; sync`",
            "openat in `echo old > config; echo new > next; touch ready; sync`",
            "write in `echo old > config; echo new > next; touch ready; sync`",
            "openat in `echo old > config; echo new > next; touch ready; sync`",
            "sync in `echo old > config; echo new > next; touch ready; sync`",
            "cat config",
            "cat config",
            "rename in `mv next config; sync config`",
            "fsync in `mv next config; sync config`",
            "umount",
        ]
    );
    let trace = Command::new(POWERFAIL)
        .args(["trace", "check", "right/run.trace"])
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(trace.status.success(), "{}", text(&trace));

    assert_eq!(
        files_of_guests(killed),
        0,
        "files of the check that was killed"
    );

    let finding = finding(directory, "wrong");
    let id = finding["id"].as_str().unwrap();
    let again = Command::new(POWERFAIL)
        .args(["replay", id, "--out", "wrong"])
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(text(&again).contains("the same again"), "{}", text(&again));

    let mut shell = Command::new(POWERFAIL)
        .args(["replay", id, "--out", "wrong", "--shell"])
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let commands = b"mount -t ext4 /dev/pmem0 /mnt && ls /mnt\nexit\n";
    shell.stdin.take().unwrap().write_all(commands).unwrap();
    let said = text(&shell.wait_with_output().unwrap());
    assert!(said.contains("ready") && !said.contains("config"), "{said}");
    interrupt_in_shell(directory, id);
}

/// At a terminal, Ctrl-C ends what runs in the guest, and not the shell.
fn interrupt_in_shell(directory: &Path, id: &str) {
    // Without the time limit a guest that does not answer would be waited for without end.
    let mut terminal = Command::new("timeout")
        .args(["--foreground", "300", "script", "-qec"])
        .arg(format!("{POWERFAIL} replay {id} --out wrong --shell"))
        .arg("/dev/null")
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keys = terminal.stdin.take().unwrap();
    let mut shown = BufReader::new(terminal.stdout.take().unwrap()).bytes();
    let mut wait_for = |text: &str| {
        let mut seen = Vec::new();
        while !seen.ends_with(text.as_bytes()) {
            let byte = shown.next().transpose().unwrap();
            seen.push(byte.unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&seen))));
        }
    };
    // What says that it has begun is what is ended: between two commands the guest's shell may miss the key.
    for (awaited, typed) in [
        ("guest$ ", "sh -c \"echo be''gun; sleep 1000\"\n"),
        ("begun", "\x03"),
        ("guest$ ", "echo status $?\n"),
        ("status 130", "exit\n"),
    ] {
        wait_for(awaited);
        keys.write_all(typed.as_bytes()).unwrap();
    }
    terminal.wait().unwrap();
}

/// The module keeps a directory in persistent memory. Its journal is replayed when it is loaded, and with bug 5 a power failure in
/// the middle of that loses a part of it.
#[test]
fn recovery_that_is_not_idempotent_fails_at_the_second_power_failure() {
    let work = xtask::vm::work_directory().unwrap();
    let kernel = xtask::vm::kernel(&work).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let directory = &fs::canonicalize(directory.path()).unwrap();
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vm");
    let [module, debug] = xtask::vm::build_module(&kernel, &scripts, directory).unwrap();
    // Each of the two calls is atomic; the line is not.
    let operations = "echo create first > /proc/toydir; echo rename first second > /proc/toydir\n";
    let check = |bug: &str, out: &str| {
        fs::write(directory.join("bug"), bug).unwrap();
        let mut command = command(directory, &kernel, operations, out);
        for (flag, name) in [
            ("--attach", "attach.sh"),
            ("--detach", "detach.sh"),
            ("--list", "list.sh"),
        ] {
            command.arg(flag).arg(scripts.join(name));
        }
        command.args([
            "--fs",
            "none",
            "--strategy",
            "prefix",
            "--file",
            "bug",
            "--file",
        ]);
        command.arg(&module).arg("--debug-info").arg(&debug);
        command.output().unwrap()
    };
    let found = check("5", "wrong");
    let report = text(&found);
    assert_eq!(found.status.code(), Some(1), "{report}");
    assert!(report.contains("and again in recovery"), "{report}");
    assert!(report.contains("in the system call write"), "{report}");
    let wrong = finding(directory, "wrong");
    let place = &wrong["places"][0];
    assert_eq!(place["function"], "recover", "{report}");
    let source = fs::read_to_string(scripts.join("toydir/toydir.c")).unwrap();
    let line = place["line"].as_u64().unwrap_or_else(|| panic!("{report}"));
    let line = source.lines().nth(usize::try_from(line).unwrap() - 1);
    assert_eq!(
        line.map(str::trim),
        Some("*slot = journal->image[last];"),
        "{report}"
    );
    assert!(wrong["evidence"]["failure"]["again"].is_object(), "{wrong}");

    let clean = check("0", "right");
    assert_eq!(clean.status.code(), Some(0), "{}", text(&clean));
    assert!(
        text(&clean).contains("the power failed again at"),
        "{}",
        text(&clean)
    );
}
