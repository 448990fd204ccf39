//! Commit variables that no annotation names: which ones are proposed, why, and how reads of them are treated.

use powerfail_finding::{InferredCommitVariable, ReadWith};

use crate::common::{CLEAN, Folder, RECOVER, Run};

const VALID: u64 = 0;
const LOG: u64 = 64;
const DATA: u64 = 128;
const CURRENT: u64 = 192;
const CHECKPOINTS: u64 = 256;

fn races(kind: u32, more: &[&str]) -> Run {
    let folder = Folder::new();
    folder.build_own("bug", "commits.c", &[&format!("-DKIND={kind}")]);
    folder.record();
    let mut arguments = vec!["races", "run.trace", "--recover", RECOVER];
    arguments.extend(more);
    folder.powerfail(&arguments)
}

fn inferred(kind: u32) -> Vec<InferredCommitVariable> {
    let run = races(kind, &["--infer", "--format", "json"]);
    run.report().totals.commit_variables
}

/// The line of the source that has this text.
fn line(text: &str) -> u32 {
    let source = include_str!("programs/commits.c");
    let found = source.lines().position(|line| line.contains(text));
    u32::try_from(found.expect("the text is there") + 1).expect("few lines")
}

/// The ranges that are read only with one value, as offsets and lengths.
fn decided(variable: &InferredCommitVariable, with: ReadWith) -> Vec<(u64, u64)> {
    let ranges = variable.decides.iter().filter(|it| it.read_with == with);
    ranges.map(|it| (it.offset, it.len_bytes)).collect()
}

#[test]
fn a_flag_that_makes_a_log_valid_is_proposed() {
    let found = inferred(1);
    let [variable] = &found[..] else {
        panic!("{found:#?}");
    };
    assert_eq!((variable.offset, variable.len_bytes), (VALID, 8));
    assert!(variable.confidence >= 80, "{variable:#?}");
    assert!(!variable.used);
    // Both when it is set and when it is cleared. If the log is valid, data is overwritten before it is read.
    let expected = [(LOG, 64), (DATA + 56, 8)];
    assert_eq!(decided(variable, ReadWith::New), expected);
    assert_eq!(decided(variable, ReadWith::Old), expected);
    let stores: Vec<_> = variable.stores.iter().map(|it| it.line).collect();
    assert_eq!(stores[0], Some(line("pool->valid = 1;")));
    assert_eq!(stores.len(), 2);
    let reader = variable.reader.as_ref().expect("recovery reads it");
    assert_eq!(reader.line, Some(line("if (pool->valid)")));
    assert!(variable.evidence.len() >= 3, "{variable:#?}");
}

#[test]
fn a_selector_of_checkpoints_is_proposed() {
    let found = inferred(2);
    let [variable] = &found[..] else {
        panic!("{found:#?}");
    };
    assert_eq!((variable.offset, variable.len_bytes), (CURRENT, 8));
    assert!(variable.confidence >= 80, "{variable:#?}");
    let last = |checkpoint: u64| (CHECKPOINTS + 64 * checkpoint + 56, 8);
    assert_eq!(decided(variable, ReadWith::New), [last(0), last(1)]);
    assert_eq!(decided(variable, ReadWith::Old), [last(0), last(1)]);
}

#[test]
fn plain_data_is_not_proposed() {
    assert_eq!(inferred(3), []);
    let found = inferred(4);
    let offsets: Vec<u64> = found.iter().map(|it| it.offset).collect();
    assert_eq!(offsets, [VALID]);
}

#[test]
fn reads_of_them_are_races_unless_they_are_used() {
    for (more, races_expected) in [
        (&[][..], true),
        (&["--infer"][..], true),
        (&["--infer=propose"][..], true),
        (&["--infer=use"][..], false),
    ] {
        let run = races(1, &[&["--format", "json"], more].concat());
        let run = run.ends_with(CLEAN);
        let codes = run.codes();
        assert_eq!(!codes.is_empty(), races_expected, "{more:?}: {codes:?}");
        assert!(codes.iter().all(|code| *code == "PF0701"), "{codes:?}");
        let variables = run.report().totals.commit_variables;
        assert_eq!(variables.len(), usize::from(!more.is_empty()));
        assert_eq!(variables.iter().any(|it| it.used), !races_expected);
    }
}

#[test]
fn people_read_what_speaks_for_them() {
    let run = races(1, &["--infer"]).ends_with(CLEAN);
    for text in [
        "proposed as commit variables: they decide what else recovery reads",
        "0x0..0x8 of ",
        "stored at commits.c:",
        "read at commits.c:",
        "decides 0x40..0x80 (with the new value)",
        "6 stores to it are ordered on both sides",
    ] {
        assert!(run.stdout.contains(text), "no `{text}` in {}", run.stdout);
    }
    let folder = Folder::new();
    folder.build_own("bug", "commits.c", &["-DKIND=2"]);
    let run = folder.check_into_text(&["--races", "--infer=use"]);
    let text = "used as commit variables";
    assert!(run.stdout.contains(text), "{}", run.stdout);
}
