//! Races as a part of `powerfail check`: one recording, and each bug is reported once.

use powerfail_finding::Role;

use crate::common::{CLEAN, FINDINGS};
use crate::{folder, line, line_of};

#[test]
fn a_bug_that_other_crashes_show_is_said_once() {
    let folder = folder(1);
    let alone = folder.check(&["--out", "alone"]).ends_with(FINDINGS);
    let lost = Some(line("stores the value"));
    let about = |run: &crate::Run| {
        let findings = run.report().findings.into_iter();
        let about = findings.filter(|it| line_of(it, Role::Store) == lost);
        about.collect::<Vec<_>>()
    };
    let [before] = &about(&alone)[..] else {
        panic!("{}", alone.stdout);
    };
    assert_ne!(before.code.as_str(), "PF0701");
    let both = folder.check(&["--races"]).ends_with(FINDINGS);
    let [race] = &about(&both)[..] else {
        panic!("{}", both.stdout);
    };
    assert_eq!(race.code.as_str(), "PF0701");
    assert_eq!(line_of(race, Role::Load), Some(line("reads the value")));
    assert!(race.evidence.is_some() && race.suggestion.is_some());
    let totals = both.report().totals;
    assert!(totals.races.is_some() && totals.exploration.is_some());
    // Replayed from the output directory of `check`.
    let again = folder.powerfail(&["replay", &race.id]).ends_with(FINDINGS);
    assert!(again.stdout.contains("the same again"), "{}", again.stdout);
}

#[test]
fn a_right_program_has_a_warning_at_most() {
    let folder = folder(0);
    let run = folder.check(&["--races"]).ends_with(CLEAN);
    assert_eq!(run.codes(), ["PF0701"]);
    let run = folder.check(&[]).ends_with(CLEAN);
    assert!(run.codes().is_empty() && run.report().totals.races.is_none());
}

#[test]
fn the_configuration_can_ask_for_it() {
    let folder = folder(5);
    folder.write("powerfail.toml", "[check]\nraces = true\nstrict = true\n");
    let run = folder.check(&[]);
    let findings = run.report().findings;
    let again = Some(line("stores the value again"));
    assert!(
        findings.iter().any(|it| line_of(it, Role::Store) == again),
        "{}",
        run.stdout
    );
}

#[test]
fn suppressions_and_the_baseline_take_it_away() {
    let folder = folder(1);
    let first = folder.check(&["--races"]).ends_with(FINDINGS);
    folder.write("old.json", &first.stdout);
    let again = folder
        .check(&["--races", "--baseline", "old.json"])
        .ends_with(CLEAN);
    assert!(again.report().findings.is_empty(), "{}", again.stdout);
    let entry = "[[suppress]]\ncode = \"PF0701\"\nreason = \"looked at\"\n";
    folder.write("powerfail.toml", entry);
    let run = folder.check(&["--races"]).ends_with(CLEAN);
    assert_eq!(run.report().totals.suppressed, 2, "{}", run.stdout);
}
