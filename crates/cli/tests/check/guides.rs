//! Every command of README.md and docs runs, on programs that stand for those of the reader, or is listed here with the
//! reason why it does not.
//!
//! `first_hour.rs` follows the pages that show what commands print.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use powerfail_test_support::pages;

use crate::common::{CLEAN, FINDINGS, Folder};
use crate::first_hour::FOLLOWED;

/// What does not run as it is written, and why: a page (or any), and a part of the command.
const NOT_RUN: [(&str, &str, &str); 21] = [
    ("", "/mnt/pmem", "a directory that the reader has"),
    ("", "/var/lib", "a directory that the reader has"),
    (
        "",
        "static-program",
        "the tests of recordings under QEMU run it",
    ),
    (
        "",
        "--backend qemu",
        "the tests of recordings under QEMU run it",
    ),
    ("", "powerfail vm", "the tests of guests run it"),
    (
        "",
        "powerfail fuzz --time",
        "takes minutes; the tests of fuzzing run it",
    ),
    (
        "guide/fuzzing.md",
        "powerfail replay",
        "needs that campaign",
    ),
    (
        "guide/fuzzing.md",
        "powerfail fuzz show",
        "the tests of fuzzing run it",
    ),
    (
        "guide/fuzzing.md",
        "powerfail fuzz plot",
        "the tests of fuzzing run it",
    ),
    (
        "guide/fuzzing.md",
        "powerfail fuzz cmin",
        "the tests of fuzzing run it",
    ),
    (
        "guide/fuzzing.md",
        "powerfail fuzz tmin",
        "the tests of fuzzing run it",
    ),
    (
        "guide/fuzzing.md",
        "powerfail fuzz repair",
        "the tests of fuzzing run it",
    ),
    (
        "guide/fuzzing.md",
        "powerfail fuzz --resume",
        "the tests of fuzzing run it",
    ),
    (
        "guide/fuzzing.md",
        "--name",
        "has no end; the tests of fuzzing run it",
    ),
    (
        "guide/fuzzing.md",
        "--broker",
        "has no end; the tests of fuzzing run it",
    ),
    (
        "guide/fuzzing.md",
        "--join",
        "has no end; the tests of fuzzing run it",
    ),
    (
        "guide/fuzzing-targets.md",
        "--desock",
        "has no end; the tests of fuzzed servers run it",
    ),
    (
        "guide/checking.md",
        "--gdb",
        "gdb asks; the tests of replay run it",
    ),
    (
        "guide/clusters.md",
        "powerfail-out.*",
        "a second merge; the test before it makes the same",
    ),
    (
        "guide/clusters.md",
        "--out out",
        "needs to be killed; the tests of resumed runs do so",
    ),
    (
        "guide/clusters.md",
        "shares/*",
        "needs a cluster of Kubernetes",
    ),
];

/// What a page needs before its first command.
const PREPARED: [(&str, &[&str]); 4] = [
    (
        "guide/annotations.md",
        &["powerfail record -o run.trace -- ./list '{pool}'"],
    ),
    (
        "guide/checking.md",
        &[
            "powerfail init -- ./store data.pool",
            "powerfail record -o run.trace -- ./my-program '{pool}' 1000",
            "powerfail check --format json=known.json",
        ],
    ),
    (
        "guide/ci.md",
        &[
            "powerfail init -- ./store data.pool",
            "powerfail check --out last-run",
            "git init --quiet && git add powerfail.toml",
            "git -c user.name=reader -c user.email=reader@invalid commit --quiet -m all",
            "git update-ref refs/remotes/origin/main HEAD",
        ],
    ),
    (
        "guide/races.md",
        &["powerfail record -o run.trace -- ./store '{pool}'"],
    ),
];

/// What stands in a page for something that only the reader knows: the page, the words, what takes their place.
const REPLACED: [(&str, &str, &str); 7] = [
    (
        "guide/checking.md",
        "replay ID",
        "replay $(sed -n 's/^ *\"id\": \"\\(.*\\)\".*/\\1/p' powerfail-out/report.json | head -n 1)",
    ),
    ("guide/checking.md", "--image DIR", "--image image"),
    ("guide/checking.md", "--export DIR", "--export export"),
    (
        "guide/checking.md",
        "--recover CMD",
        "--recover './store {pool}'",
    ),
    (
        "guide/races.md",
        "races run.trace --recover './store --verify {dir}'",
        "record -o files.trace -- ./store '{dir}' && powerfail races files.trace --recover './store --verify {dir}'",
    ),
    ("reference/litmus.md", "FILE...", "litmus/M*.json"),
    ("reference/litmus.md", "FILE", "litmus/MP.json"),
];

/// Commands that end in another way than their kind does: the page, a part of the command, the exit code.
const ENDS: [(&str, &str, i32); 5] = [
    // These only write files.
    ("guide/checking.md", "--image DIR", CLEAN),
    ("guide/checking.md", "--export DIR", CLEAN),
    // A share has done its work, whatever it has found.
    ("guide/clusters.md", "--partition", CLEAN),
    // All findings are known.
    ("guide/checking.md", "--baseline known.json", CLEAN),
    ("guide/ci.md", "--baseline powerfail-baseline.json", CLEAN),
];

#[test]
fn every_command_of_the_guides_runs() {
    run_all(|page| page.starts_with("guide"));
}

#[test]
fn every_command_of_the_readme_and_the_reference_runs() {
    run_all(|page| !page.starts_with("guide"));
}

/// Runs the commands of the chosen pages, each page in a folder of its own.
fn run_all(chosen: fn(&str) -> bool) {
    let mut used = BTreeSet::new();
    let (mut pages, mut commands) = (0, 0);
    for (page, text) in all_pages() {
        // What a page shows of a terminal, another test follows.
        let is_followed = FOLLOWED.iter().any(|it| it.ends_with(&page));
        let lines = commands_of(&text, is_followed);
        if !chosen(&page) || lines.is_empty() {
            continue;
        }
        let folder = reader();
        let prepared = PREPARED.iter().find(|it| it.0 == page);
        for line in prepared.iter().flat_map(|it| it.1) {
            let (code, output) = shell(&folder, line);
            assert!(
                [CLEAN, FINDINGS].contains(&code),
                "{page}: {line}: {code}\n{output}"
            );
        }
        let mut is_run = false;
        for line in lines {
            let reason = NOT_RUN
                .iter()
                .position(|it| (it.0.is_empty() || it.0 == page) && line.contains(it.1));
            if let Some(reason) = reason {
                used.insert(reason);
                continue;
            }
            let mut command = line.clone();
            for (_, words, other) in REPLACED.iter().filter(|it| it.0 == page) {
                command = command.replacen(words, other, 1);
            }
            let (code, output) = shell(&folder, &command);
            let expected = expected_code(&page, &line);
            assert_eq!(code, expected, "{page}: {command}\n{output}");
            if code == FINDINGS && !line.contains("--format") {
                assert!(output.contains("error[PF"), "{page}: {command}\n{output}");
            }
            is_run = true;
            commands += 1;
        }
        pages += usize::from(is_run);
    }
    assert!(
        pages >= 3 && commands >= 8,
        "{commands} commands of {pages} pages"
    );
    let unused = NOT_RUN.iter().enumerate();
    let unused =
        unused.filter(|(number, it)| !it.0.is_empty() && chosen(it.0) && !used.contains(number));
    let unused: Vec<_> = unused.map(|it| it.1).collect();
    assert!(unused.is_empty(), "no page has these: {unused:?}");
}

/// These programs have bugs: what looks for some finds them.
fn expected_code(page: &str, line: &str) -> i32 {
    let other = ENDS.iter().find(|it| it.0 == page && line.contains(it.1));
    let searches = ["check", "crash", "races", "merge", "replay"];
    let kind = line.split_whitespace().nth(1).unwrap_or_default();
    let kind = if searches.contains(&kind) {
        FINDINGS
    } else {
        CLEAN
    };
    other.map_or(kind, |it| it.2)
}

/// A folder with the programs of the reader.
fn reader() -> Folder {
    let folder = Folder::new();
    let root = root();
    let flags = ["examples", "include"].map(|it| format!("-I{}", root.join(it).display()));
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    folder.build_own("store", "reader.c", &flags);
    for name in [
        "app",
        "my-program",
        "list",
        "server",
        "load",
        "verify",
        "index-test",
    ] {
        fs::hard_link(folder.path("store"), folder.path(name)).expect("a link");
    }
    let bin = folder.path("bin");
    fs::create_dir(&bin).expect("a folder");
    let link = |from: &Path, to: PathBuf| std::os::unix::fs::symlink(from, to).expect("a link");
    link(
        Path::new(env!("CARGO_BIN_EXE_powerfail")),
        bin.join("powerfail"),
    );
    link(&root.join("tests/litmus"), folder.path("litmus"));
    folder
}

/// The exit code of a command, and what it prints.
fn shell(folder: &Folder, command: &str) -> (i32, String) {
    let path = format!(
        "{}:{}",
        folder.path("bin").display(),
        std::env::var("PATH").expect("PATH")
    );
    let mut shell = folder.command("/bin/sh");
    shell.args(["-c", command]).env("PATH", path);
    let output = shell.output().expect("a shell");
    let text = [output.stdout, output.stderr].concat();
    let code = output.status.code().expect("an exit code");
    (code, String::from_utf8_lossy(&text).into_owned())
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// README.md and the pages of `docs`, by their paths below it.
fn all_pages() -> Vec<(String, String)> {
    let docs = root().join("docs");
    let readme = fs::read_to_string(root().join("README.md")).expect("a page");
    let mut pages = vec![("README.md".to_owned(), readme)];
    let mut folders = vec![docs.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "md") {
                let name = path.strip_prefix(&docs).expect("a page of docs");
                let text = fs::read_to_string(&path).expect("a page");
                pages.push((name.display().to_string(), text));
            }
        }
    }
    pages.sort();
    pages
}

/// The commands of powerfail in blocks for a shell, and in those that show a terminal if no other test follows them.
fn commands_of(page: &str, is_followed: bool) -> Vec<String> {
    pages::commands(page, |opening| {
        opening == "```sh" || (opening == "```console" && !is_followed)
    })
}
