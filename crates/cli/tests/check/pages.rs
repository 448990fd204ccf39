//! What is made of a run afterwards: the page, other formats, a bug report, a file for Perfetto, the terminal browser.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::Stdio;

use rustix::pty::OpenptFlags;
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::Value;

use crate::common::{CLEAN, FINDINGS, Folder, SETUP};

/// A run with two findings, kept in `out`, and its page. Returns the id of the one that a crash shows.
fn run() -> (Folder, String) {
    let folder = Folder::new();
    folder.build_own("bug", "two_bugs.c", &[]);
    let run = folder.check(&["--out", "out", "--html", "page.html"]);
    let id = run.ends_with(FINDINGS).finding("PF0301").id;
    (folder, id)
}

fn text(folder: &Folder, name: &str) -> String {
    fs::read_to_string(folder.path(name)).expect(name)
}

#[test]
fn a_kept_run_gives_the_same_page_and_other_formats() {
    let (folder, id) = run();
    let page = text(&folder, "page.html");
    for word in [
        "<title>1 correctness bug",
        &id,
        "two_bugs.c",
        "\"moment\":{\"of\":\"lines\",\"rows\"",
        "\"facts\":[[\"failure\",\"power fails before event ",
    ] {
        assert!(page.contains(word), "no `{word}`");
    }
    let report = |more: &[&str]| {
        let mut arguments = vec!["report", "out"];
        arguments.extend(more);
        folder.powerfail(&arguments)
    };
    let run = report(&["--html", "again.html"]).ends_with(CLEAN);
    assert_eq!(run.stdout, "");
    assert_eq!(text(&folder, "again.html"), page);
    // The sources are those of the check, whatever became of the files.
    let coverage = text(&folder, "out/coverage.json");
    assert!(coverage.contains("\"schema\": 1"), "{coverage}");
    let run = report(&["--format", "json", "--format", "gitlab=quality.json"]).ends_with(CLEAN);
    assert_eq!(run.codes(), ["PF0301", "PF0501"]);
    assert!(text(&folder, "quality.json").contains(&id));
    let run = report(&[]).ends_with(CLEAN);
    assert!(run.stdout.contains("error[PF0301]"), "{}", run.stdout);
    // Nothing of what is missing is passed over in silence.
    fs::remove_file(folder.path("out/coverage.json")).expect("the file");
    report(&["--html", "less.html"]).ends_with(CLEAN);
    assert!(text(&folder, "less.html").contains("\"coverage\":null"));
    fs::remove_file(folder.path("out/run.trace")).expect("the trace");
    let refused = report(&["--html", "none.html"]);
    refused.is_refused_with(SETUP, &["run.trace", "drawn from the trace"]);
    let refused = folder.powerfail(&["report", "elsewhere", "--html", "none.html"]);
    refused.is_refused_with(SETUP, &["elsewhere has no report.json", "--out"]);
    let newer = text(&folder, "out/report.json").replacen("\"schema\": 1", "\"schema\": 2", 1);
    folder.write("out/report.json", &newer);
    report(&[]).is_refused_with(SETUP, &["its format is 2", "use a newer powerfail"]);
}

#[test]
fn a_bug_report_shows_the_failure_without_powerfail() {
    let (folder, id) = run();
    let run = folder.powerfail(&["report", "out", "--issue", &id, "--image", "image"]);
    let issue = run.ends_with(CLEAN).stdout;
    for word in [
        "# Recovery",
        "## What happens",
        "## What was expected",
        "two_bugs.c:",
        "build-id",
        "workload",
        "./bug",
    ] {
        assert!(issue.contains(word), "no `{word}` in:\n{issue}");
    }
    let commands = issue
        .split("```sh\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next());
    let commands = commands.expect("commands");
    assert!(!commands.contains("powerfail"), "{commands}");
    let status = folder.command("sh").args(["-c", commands]).output();
    let status = status.expect("a shell").status;
    assert_eq!(
        status.code(),
        Some(1),
        "recovery fails on the image: {commands}"
    );
    let unknown = folder.powerfail(&["report", "out", "--issue", "nothing"]);
    unknown.is_refused_with(SETUP, &["there is no finding nothing", &id]);
}

/// A report about files says what is lost of them, and nothing of cache lines.
#[test]
fn a_bug_report_about_files_says_what_is_lost() {
    let folder = Folder::new();
    folder.build_example("settings", None);
    let run = folder.powerfail(&[
        "check",
        "--out",
        "out",
        "--html",
        "page.html",
        "--format",
        "json",
        "--",
        "./settings",
        "{dir}",
    ]);
    let id = run.finding("PF0901").id;
    let run = folder.powerfail(&["report", "out", "--issue", &id, "--image", "image"]);
    let issue = run.ends_with(CLEAN).stdout;
    for words in [
        "is lost in part: the newest length of 1 file.",
        "This can happen on ext4, xfs, btrfs.",
        "| file system | `linux` |",
        "settings.c:",
    ] {
        assert!(issue.contains(words), "no `{words}` in:\n{issue}");
    }
    for words in ["adr", "cache line", "Every store", "persistent memory"] {
        assert!(!issue.contains(words), "`{words}` in:\n{issue}");
    }
    // The page has the rows of the picture, and which failure points were tried.
    let page = text(&folder, "page.html");
    for words in [
        r#""label":"name settings""#,
        r#""trees":["{dir}"]"#,
        r#""stacks":[{"#,
        r#"["shows on","ext4: yes, xfs: yes, btrfs: yes"]"#,
    ] {
        assert!(page.contains(words), "no `{words}` in the page");
    }
    assert!(!page.contains("powerfail-fresh"), "a random name");
}

#[test]
fn a_trace_goes_to_perfetto() {
    let (folder, _) = run();
    let words = [
        "trace",
        "export",
        "out/run.trace",
        "--perfetto",
        "-o",
        "perfetto.json",
    ];
    folder.powerfail(&words).ends_with(CLEAN);
    let file: Value = serde_json::from_str(&text(&folder, "perfetto.json")).expect("JSON");
    let events = file["traceEvents"].as_array().expect("a list");
    let of = |phase: &str| events.iter().filter(|it| it["ph"] == phase).count() as u64;
    let info = folder.powerfail(&["trace", "info", "--json", "out/run.trace"]);
    let info: Value = serde_json::from_str(&info.stdout).expect("JSON");
    assert_eq!(Some(of("X")), info["events"].as_u64(), "{info}");
    assert!(of("b") > 0);
    assert_eq!(of("b"), of("e"), "what opens is closed");
    assert!(events.iter().any(|it| it["name"] == "open lines"));
    let placed = |it: &Value| {
        it["args"]["place"]
            .as_str()
            .is_some_and(|it| it.contains(".c:"))
    };
    assert!(events.iter().any(placed), "events have places");
}

#[test]
fn a_run_is_browsed_in_a_terminal() {
    let (folder, _) = run();
    let refused = folder.powerfail(&["view", "out"]);
    refused.is_refused_with(SETUP, &["view needs a terminal"]);
    let terminal = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY);
    let terminal = terminal.expect("a terminal");
    rustix::pty::unlockpt(&terminal).expect("a terminal");
    let size = Winsize {
        ws_row: 30,
        ws_col: 110,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&terminal, size).expect("a size");
    let name = rustix::pty::ptsname(&terminal, Vec::new()).expect("its name");
    let name = name.into_string().expect("text");
    let other_end = || File::options().read(true).write(true).open(&name);
    let other_end = || other_end().expect("the other end");
    let mut command = folder.command(env!("CARGO_BIN_EXE_powerfail"));
    command.args(["view", "out"]).env("TERM", "xterm");
    command
        .stdin(other_end())
        .stdout(other_end())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("powerfail runs");
    drop(command);
    let mut terminal = File::from(terminal);
    // They wait in the terminal until they are read.
    terminal.write_all(b"\rnpq").expect("keys");
    let mut shown = Vec::new();
    // Ends with an error, because the other end is closed.
    let _ = terminal.read_to_end(&mut shown);
    let mut errors = String::new();
    let stderr = child.stderr.as_mut().expect("a pipe");
    stderr.read_to_string(&mut errors).expect("text");
    let shown = String::from_utf8_lossy(&shown);
    assert_eq!(
        child.wait().expect("it ends").code(),
        Some(CLEAN),
        "{errors}\n{shown}"
    );
    for word in [
        "PF0301",
        "there is no earlier failure point",
        "\u{1b}[?1049h",
        "\u{1b}[?1049l",
    ] {
        assert!(
            shown.contains(word),
            "no `{}` in:\n{shown}",
            word.escape_debug()
        );
    }
}
