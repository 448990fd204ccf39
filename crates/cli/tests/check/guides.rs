//! Every command of README.md and docs runs, in the order of its page, on programs that stand for those of the reader. Where
//! a page shows what a command prints, it prints that.
//!
//! `guides/reader.rs` lists the few commands that do not run, with the reasons, and what stands for the reader's own files.

mod reader;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use powerfail_test_support::pages::{self, Step};

use crate::common::{CLEAN, FINDINGS, Folder};
use reader::{BEFORE, COMPARED_WITH_THE_DEMO, ENDS, EXCUSED, REPLACED};

#[test]
fn every_command_of_the_first_hour_prints_what_the_page_shows() {
    run_all(|page| page == "guide/first-hour.md", 16);
}

#[test]
fn every_command_of_the_pages_about_checks_prints_what_they_show() {
    run_all(|page| page.starts_with("guide") && !is_elsewhere(page), 50);
}

#[test]
fn every_command_of_the_pages_about_campaigns_and_clusters_prints_what_they_show() {
    let is_chosen = |page: &str| is_elsewhere(page) && page != "guide/first-hour.md";
    run_all(is_chosen, 20);
}

#[test]
fn every_command_of_the_readme_and_the_reference_prints_what_they_show() {
    run_all(|page| !page.starts_with("guide"), 8);
}

/// Pages of other tests, which run beside the one of the other guides.
fn is_elsewhere(page: &str) -> bool {
    let parts = ["first-hour", "fuzzing", "clusters"];
    parts
        .iter()
        .any(|it| page.starts_with(&format!("guide/{it}")))
}

/// No page shows output in a block that these tests do not see.
#[test]
fn what_pages_show_of_powerfail_is_compared() {
    let starts = ["error", "note: ", "warning", "   = ", "performance["];
    let mut missing = Vec::new();
    for (page, text) in all_pages() {
        // Every second part is a block, which begins with its language.
        let blocks = text.split("```").skip(1).step_by(2);
        for block in blocks.filter_map(|it| it.split_once('\n')) {
            let is_output = |line: &str| starts.iter().any(|it| line.starts_with(it));
            if ["", "text"].contains(&block.0)
                && block.1.lines().any(is_output)
                && !block.1.starts_with(COMPARED_WITH_THE_DEMO)
            {
                missing.push(format!("{page}: {}", block.1));
            }
        }
    }
    let missing = missing.join("\n");
    assert!(missing.is_empty(), "not in a console:\n{missing}");
}

/// Runs the commands of the chosen pages, each page in a folder of its own. There are at least so many.
fn run_all(is_chosen: fn(&str) -> bool, least: usize) {
    let mut used = BTreeSet::new();
    let mut commands = 0;
    let mut wrong = Vec::new();
    for (page, text) in all_pages() {
        let steps = pages::steps(&text);
        if !is_chosen(&page) || steps.is_empty() {
            continue;
        }
        let folder = reader::folder();
        let mut directory = folder.path("");
        for step in steps {
            let excuse = EXCUSED
                .iter()
                .position(|it| is_meant(it.0, it.1, &page, &step));
            if let Some(excuse) = excuse {
                used.insert(excuse);
                continue;
            }
            if let Some(to) = step.command.strip_prefix("cd ") {
                directory.push(to);
                continue;
            }
            commands += 1;
            if let Err(error) = run(&folder, &directory, &page, &step) {
                wrong.push(error);
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(commands >= least, "only {commands} commands");
    let unused = EXCUSED.iter().enumerate();
    let unused = unused.filter(|(number, it)| is_chosen(it.0) && !used.contains(number));
    let unused: Vec<_> = unused.map(|it| it.1).collect();
    assert!(unused.is_empty(), "no page has these: {unused:?}");
}

/// Whether an entry of a table is about this command.
fn is_meant(its_page: &str, part: &str, page: &str, step: &Step) -> bool {
    its_page == page && step.command.contains(part)
}

/// Runs one command, after what the reader has done before it.
fn run(folder: &Folder, directory: &Path, page: &str, step: &Step) -> Result<(), String> {
    for (_, _, before) in BEFORE.iter().filter(|it| is_meant(it.0, it.1, page, step)) {
        let (code, output, errors) = shell(folder, directory, before);
        assert!(
            [CLEAN, FINDINGS].contains(&code),
            "{page}: {before}: {code}\n{output}{errors}"
        );
    }
    let here = folder.text_path("");
    let replaced = |text: &str| {
        let replaced = REPLACED.iter().filter(|it| it.0 == page);
        let text = replaced.fold(text.to_owned(), |text, it| text.replace(it.1, it.2));
        text.replace("{folder}/", &here)
    };
    let command = replaced(&step.command);
    let (code, output, errors) = shell(folder, directory, &command);
    let expected = expected_code(page, step);
    if code != expected {
        return Err(format!(
            "{page}: {command}\nends with {code}, not {expected}\n{output}{errors}"
        ));
    }
    let Some(shown) = &step.shown else {
        let quiet = ["--format", ">", "--gdb"];
        let is_report = code == FINDINGS && !quiet.iter().any(|it| command.contains(it));
        if is_report && !output.contains("[PF") {
            return Err(format!(
                "{page}: {command}\nreports nothing\n{output}{errors}"
            ));
        }
        return Ok(());
    };
    let shown: Vec<String> = shown.iter().map(|it| replaced(it)).collect();
    // A page shows the one or the other. If it shows nothing, there is no output.
    let fits = |printed: &str| pages::matches(&shown, &printed.lines().collect::<Vec<_>>());
    if fits(&output) || (!shown.is_empty() && fits(&errors)) {
        return Ok(());
    }
    let shown = shown.join("\n");
    Err(format!(
        "{page}: {command}\nthe page:\n{shown}\nit printed:\n{output}and on standard error:\n{errors}"
    ))
}

/// These programs have bugs: what looks for some finds them.
fn expected_code(page: &str, step: &Step) -> i32 {
    let mut shown = step.shown.iter().flatten();
    if shown.any(|it| it == "no bugs found") {
        return CLEAN;
    }
    let other = ENDS.iter().find(|it| is_meant(it.0, it.1, page, step));
    let searches = ["check", "crash", "races", "merge", "replay"];
    let mut words = step.command.split_whitespace();
    let is_search =
        words.next() == Some("powerfail") && words.next().is_some_and(|it| searches.contains(&it));
    other.map_or(if is_search { FINDINGS } else { CLEAN }, |it| it.2)
}

/// The exit code of a command, and what it prints.
fn shell(folder: &Folder, directory: &Path, command: &str) -> (i32, String, String) {
    let path = std::env::var("PATH").expect("PATH");
    let mut shell = folder.command("/bin/sh");
    shell.args(["-c", command]).current_dir(directory);
    shell.env("PATH", format!("{}:{path}", folder.path("bin").display()));
    // GNU parallel asks to be cited, once for each user; afl-fuzz asks for a machine that does nothing else.
    shell.env("PARALLEL", "--will-cite");
    for variable in [
        "AFL_SKIP_CPUFREQ",
        "AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES",
        "AFL_NO_AFFINITY",
        "AFL_NO_UI",
    ] {
        shell.env(variable, "1");
    }
    let output = shell
        .stdin(std::process::Stdio::null())
        .output()
        .expect("a shell");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let code = output.status.code().expect("an exit code");
    (code, text(output.stdout), text(output.stderr))
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
