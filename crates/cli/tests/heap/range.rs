//! Ranges of memory that a program registers as persistent.

use crate::common::{CLEAN, Folder, is_found_and_its_twin_is_silent};

#[test]
fn an_anonymous_mapping() {
    is_found_and_its_twin_is_silent("range.c", &[], &[]);
}

#[test]
fn a_mapping_at_an_address_of_its_own() {
    is_found_and_its_twin_is_silent("range.c", &["-DADDRESS=0x120000000000"], &[]);
}

#[test]
fn what_cannot_be_a_range_is_refused_with_a_sentence() {
    let folder = Folder::with("good", "range.c", &[]);
    let run = folder.powerfail(&["record", "--json", "--", "./good"]);
    let run = run.ends_with(CLEAN);
    let summary = run.summary();
    let warnings = summary["warnings"].as_array().expect("warnings");
    let said = |words: &str| {
        let mut warnings = warnings.iter().filter_map(|warning| warning.as_str());
        warnings.any(|warning| warning.contains(words))
    };
    assert!(said("multiples of 4096"), "{summary}");
    assert!(said("`a/b` cannot be the name"), "{summary}");
    let pools = summary["pools"].as_array().expect("pools");
    let [pool] = &pools[..] else {
        panic!("{summary}");
    };
    let path = pool["path"].as_str().expect("a path");
    assert!(path.ends_with("/memory.pool"), "{summary}");
}

#[test]
fn a_program_runs_unchanged_without_powerfail() {
    let folder = Folder::with("good", "range.c", &[]);
    let run = folder.run("good", &[]).ends_with(0);
    assert_eq!(run.stdout, "0\n", "not recorded");
}
