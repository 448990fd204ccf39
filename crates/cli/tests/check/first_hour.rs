//! Guides whose commands are run, one after the other: what they print is what the page shows.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::Folder;

/// A command of the page, and the lines that it prints.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    command: String,
    expected: Vec<String>,
}

/// The commands of the blocks of a page that show a terminal.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut is_inside = false;
    for line in page.lines() {
        if line.starts_with("```") {
            is_inside = line == "```console";
        } else if let (true, Some(command)) = (is_inside, line.strip_prefix("$ ")) {
            steps.push(Step {
                command: command.to_owned(),
                expected: Vec::new(),
            });
        } else if is_inside {
            let step = steps.last_mut().expect("a command comes first");
            step.expected.push(line.to_owned());
        }
    }
    steps
}

/// Whether lines are as expected. `...` is any number of lines, `[..]` any text in a line.
fn matches(expected: &[String], lines: &[&str]) -> bool {
    match expected.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if first == "..." => {
            (0..=lines.len()).any(|skipped| matches(rest, &lines[skipped..]))
        }
        Some((first, rest)) => lines.split_first().is_some_and(|(line, lines)| {
            line_matches(first, line.trim_end()) && matches(rest, lines)
        }),
    }
}

fn line_matches(expected: &str, line: &str) -> bool {
    match expected.split_once("[..]") {
        None => expected == line,
        Some((before, after)) => {
            line.len() >= before.len() + after.len()
                && line.starts_with(before)
                && line.ends_with(after)
        }
    }
}

/// The pages that these tests follow.
pub(crate) const FOLLOWED: [&str; 2] = ["docs/guide/first-hour.md", "docs/guide/databases.md"];

#[test]
fn every_command_of_the_first_hour_prints_what_the_page_shows() {
    follow(FOLLOWED[0], 16);
}

#[test]
fn every_command_of_the_page_about_databases_prints_what_the_page_shows() {
    follow(FOLLOWED[1], 7);
}

/// Does what a page says, which has at least so many commands.
fn follow(page: &str, commands: usize) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join(page)).unwrap();
    let steps = steps(&page);
    assert!(steps.len() >= commands, "only {} commands", steps.len());
    let folder = Folder::new();
    let bin = folder.path("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_powerfail"), bin.join("powerfail")).unwrap();
    std::os::unix::fs::symlink(root.join("examples"), folder.path("examples")).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut directory: PathBuf = folder.path("");
    for step in &steps {
        if let Some(to) = step.command.strip_prefix("cd ") {
            directory.push(to);
            continue;
        }
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &step.command]).current_dir(&directory);
        shell.env("PATH", &path).env("TMPDIR", folder.path("tmp"));
        let output = shell.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_ne!(
            output.status.code(),
            Some(127),
            "{}: {errors}",
            step.command
        );
        let lines: Vec<&str> = text.lines().collect();
        let expected = step.expected.join("\n");
        assert!(
            matches(&step.expected, &lines),
            "{}\nthe page:\n{expected}\nit printed:\n{text}{errors}",
            step.command
        );
    }
}

#[test]
fn patterns_match_what_they_should() {
    let lines = |text: &str| text.split('|').map(str::to_owned).collect::<Vec<_>>();
    let all = ["a 5 b", "c", "d"];
    assert!(matches(&lines("a [..] b|...|d"), &all));
    assert!(matches(&lines("..."), &all));
    assert!(!matches(&lines("a [..] b|c"), &all));
    assert!(!matches(&lines("a [..] x|..."), &all));
    let block = "```sh\n$ no\n```\n```console\n$ a b\nc\n$ d\n```\n";
    let found = steps(block);
    assert_eq!(found.len(), 2);
    assert_eq!(
        (found[0].command.as_str(), &found[0].expected[..]),
        ("a b", &["c".to_owned()][..])
    );
}
