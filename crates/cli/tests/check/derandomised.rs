//! `--derandomise`: the workload and its recoveries have the same time, random numbers and process ids in every run.

use crate::common::{CLEAN, FINDINGS, Folder, RECOVER, SETUP};

fn built() -> Folder {
    let folder = Folder::new();
    folder.build_own("bug", "clocked.c", &[]);
    folder
}

/// What the program stores in a recording with these options.
fn stores(folder: &Folder, options: &[&str]) -> String {
    let record = [&["record", "-o", "run.trace"], options].concat();
    let record = [&record[..], &["--", "./bug", "{pool}"]].concat();
    folder.powerfail(&record).ends_with(CLEAN);
    let events = ["trace", "events", "run.trace", "--kind", "stores", "--json"];
    folder.powerfail(&events).ends_with(CLEAN).stdout
}

#[test]
fn recordings_are_equal() {
    let folder = built();
    let derandomised = || stores(&folder, &["--derandomise"]);
    assert_eq!(derandomised(), derandomised());
    assert_ne!(stores(&folder, &[]), stores(&folder, &[]));
}

#[test]
fn recoveries_are_derandomised_as_the_workload_was() {
    let folder = built();
    // Recovery refuses any other time, also without a crash.
    let run = folder.check(&[]);
    run.is_refused_with(SETUP, &["status 3"]);
    for options in [&["--no-lazy"][..], &[], &["--races"]] {
        let run = folder.check(&[options, &["--derandomise"]].concat());
        let run = run.ends_with(FINDINGS);
        let finding = &run.report().findings[0];
        assert!(run.stdout.contains("\"status\": 1"), "{}", run.stdout);
        folder
            .powerfail(&["replay", &finding.id])
            .ends_with(FINDINGS);
    }
    // The trace says it, so that its recoveries need no flag.
    stores(&folder, &["--derandomise"]);
    for strategy in ["prefix", "lazy", "eager"] {
        let crash = [
            "crash",
            "run.trace",
            "--recover",
            RECOVER,
            "--format",
            "json",
        ];
        let run = folder.powerfail(&[&crash[..], &["--strategy", strategy]].concat());
        assert!(
            run.codes().contains(&"PF0301"),
            "{strategy}: {}",
            run.stdout
        );
    }
}
