//! `powerfail demo`.

use std::path::Path;

use crate::common::{CLEAN, FINDINGS, Folder};

#[test]
fn the_demo_shows_its_four_bugs_and_leaves_nothing() {
    let folder = Folder::new();
    let run = folder.powerfail(&["demo"]).ends_with(CLEAN);
    for code in ["PF0101", "PF0301", "PF0501", "PF0502"] {
        let shown = run.stdout.matches(&format!("[{code}]")).count();
        assert_eq!(shown, 1, "{code}: {}", run.stdout);
    }
    assert_eq!(run.stdout.matches("[PF").count(), 4, "{}", run.stdout);
    let left = std::fs::read_dir(folder.path("tmp")).expect("a folder");
    assert_eq!(left.count(), 0);
}

/// What README.md and the guide show of the demo are lines that it prints, in their order.
#[test]
fn the_pages_show_what_the_demo_prints() {
    let folder = Folder::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let out = folder.path("out").display().to_string();
    // In the checkout, so that the sources are found.
    let mut demo = folder.command(env!("CARGO_BIN_EXE_powerfail"));
    let demo = demo.current_dir(&root).args(["demo", "--out", &out]);
    let output = demo.output().expect("the demo");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    for (page, directory) in [
        ("README.md", "powerfail-out"),
        ("docs/guide/checking.md", "demo-out"),
    ] {
        let text = std::fs::read_to_string(root.join(page)).expect("a page");
        let start = text.find("error[PF0301]").expect("a finding");
        let (block, _) = text[start..].split_once("```").expect("its end");
        let printed = printed.replace(&out, directory);
        let mut lines = printed.lines().map(str::trim_end);
        for line in block.lines().filter(|line| *line != "...") {
            assert!(
                lines.any(|it| it == line),
                "{page}: {line}\nis not there, or not in this order, in\n{printed}"
            );
        }
    }
}

#[test]
fn the_evidence_of_the_demo_can_be_kept_and_replayed() {
    let folder = Folder::new();
    let run = folder
        .powerfail(&["demo", "--out", "kept"])
        .ends_with(CLEAN);
    let line = run.stdout.lines().find(|line| line.contains("= replay: "));
    let id = line.and_then(|line| line.split_whitespace().nth(4));
    let id = id.unwrap_or_else(|| panic!("no replay: {}", run.stdout));
    let again = folder.powerfail(&["replay", id, "--out", "kept"]);
    assert!(again.ends_with(FINDINGS).stdout.contains("[PF0301]"));
}
