//! Memory of libpmemobj that was allocated and never written.

use powerfail_finding::Role;

use crate::common::{CLEAN, FINDINGS, Folder, Run};
use crate::{line_of, races};

fn object(flags: &[&str]) -> (Folder, Run) {
    let folder = Folder::new();
    folder.build_at("bug", "races", "object.c", flags);
    folder.record();
    let run = races(&folder, &[]);
    (folder, run)
}

fn line(text: &str) -> u32 {
    let source = include_str!("programs/object.c");
    let found = source.lines().position(|line| line.ends_with(text));
    u32::try_from(found.expect("the text is there") + 1).expect("few lines")
}

#[test]
fn a_read_of_memory_that_was_never_written_is_named() {
    let (_folder, run) = object(&[]);
    let run = run.ends_with(CLEAN);
    let finding = run.finding("PF0703");
    assert_eq!(
        line_of(&finding, Role::Allocation),
        Some(line("allocates it"))
    );
    let reads = line("reads what was never written");
    assert_eq!(line_of(&finding, Role::Load), Some(reads));
    assert!(finding.evidence.is_none(), "{}", run.stdout);
}

#[test]
fn it_is_an_error_if_recovery_depends_on_it_and_shown_again() {
    let (folder, run) = object(&["-DFAILS"]);
    let run = run.ends_with(FINDINGS);
    let finding = run.finding("PF0703");
    let evidence = finding.evidence.as_ref().expect("a run shows it");
    assert!(evidence.failure.lost_lines.is_empty());
    assert!(!evidence.failure.filled.is_empty(), "{}", run.stdout);
    let again = folder.powerfail(&["replay", &finding.id, "--out", "out"]);
    let again = again.ends_with(FINDINGS);
    assert!(again.stdout.contains("the same again"), "{}", again.stdout);
    assert!(
        again.stdout.contains("that were never written"),
        "{}",
        again.stdout
    );
}
