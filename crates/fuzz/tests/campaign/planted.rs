//! Planted bugs are found, and everything that was reported is on disk.

use std::fs;

use crate::Campaign;

#[test]
fn what_a_crash_leaves_is_blamed_on_the_crash() {
    let campaign = Campaign::new("w", &["a!w\n", "ab\n"]);
    let told = campaign.until("PF0401");
    assert!(told.codes().contains("PF0401"), "{told:#?}");
    // The program only fails after a crash.
    assert!(!told.codes().contains("PF0801"), "{told:#?}");
    for words in told.of("finding") {
        let directory = campaign.directory.path().join(words[4]);
        for name in [
            "report.json",
            "recovery.json",
            "run.trace",
            "case.json",
            "input",
        ] {
            assert!(directory.join(name).is_file(), "{words:?} has no {name}");
        }
    }
}

#[test]
fn a_crash_that_only_some_inputs_show_is_found() {
    // Opening the pool succeeds after the crash: a command is needed for the failure.
    let campaign = Campaign::new("u", &["ru\n", "u\n", "ar\n"]);
    let told = campaign.until("PF0401");
    let finding = told.of("finding").find(|words| words[1] == "PF0401");
    let finding = finding.unwrap_or_else(|| panic!("{told:#?}"));
    let directory = campaign.directory.path().join(finding[4]);
    let input = fs::read(directory.join("recovery.input")).expect("what recovery was fed with");
    assert!(input.contains(&b'u'), "{input:?}");
}

#[test]
fn a_program_that_crashes_by_itself_is_said_to() {
    // No crash damages this store, however long it is fuzzed.
    let campaign = Campaign::new("xh", &["a!x\n", "a!h\n"]);
    let told = campaign.until("PF0801,PF0802");
    let codes = told.codes();
    assert!(
        codes.contains("PF0801") && codes.contains("PF0802"),
        "{told:#?}"
    );
    assert!(!codes.contains("PF0401"), "{told:#?}");
}

#[test]
fn findings_are_the_same_after_going_on() {
    let campaign = Campaign::new("w", &["a!w\n"]);
    let told = campaign.until("PF0401");
    assert!(told.codes().contains("PF0401"), "{told:#?}");
    let known = |told: &crate::Told| told.of("end").next().map(|words| words[1].to_owned());
    let again = campaign.helper(&["resume", "1", "2", "none"]);
    assert_eq!(again.code, Some(0), "{again:#?}");
    let before: u64 = known(&told).expect("an end").parse().expect("a number");
    let after: u64 = known(&again).expect("an end").parse().expect("a number");
    assert!(after >= before, "{told:#?} {again:#?}");
    let ids: Vec<_> = told
        .of("finding")
        .map(|words| words[2].to_owned())
        .collect();
    assert!(
        again
            .of("finding")
            .all(|words| !ids.contains(&words[2].to_owned())),
        "what is known is not told again: {again:#?}"
    );
}
