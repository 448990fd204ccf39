//! `powerfail demo`.

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
