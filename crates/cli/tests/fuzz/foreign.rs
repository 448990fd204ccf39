//! Campaigns of others: their commands run only with consent.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::common::{CLEAN, Folder, SETUP};
use crate::{folder, fuzz, has_run};

/// A folder with a short campaign in `out`, and what `cp -a` makes of it in `copy`.
fn copied() -> Folder {
    let folder = folder();
    let flags = ["--execs", "20", "--check-with", "none", "--jobs", "1"];
    has_run(&fuzz(&folder, &flags));
    let copied = folder.command("cp").args(["-a", "out", "copy"]).status();
    assert!(copied.expect("cp").success());
    folder
}

/// The ways to run the command of a campaign.
fn ways(out: &str) -> [Vec<&str>; 4] {
    [
        vec!["fuzz", "cmin", out],
        vec!["fuzz", "tmin", out, "1", "--time", "1s"],
        vec!["fuzz", "repair", out],
        vec!["fuzz", "--resume", "--out", out, "--execs", "1"],
    ]
}

#[test]
fn a_campaign_that_was_copied_asks_and_ones_own_does_not() {
    let folder = copied();
    let words = ["copy was not made by this user", "./shop", "--yes"];
    for way in ways("copy") {
        let run = folder.powerfail(&way);
        run.is_refused_with(SETUP, &words);
    }
    for out in ["out", "copy"] {
        for mut way in ways(out) {
            if out == "copy" {
                way.push("--yes");
            }
            let run = folder.powerfail(&way);
            assert_ne!(run.code, SETUP, "{way:?}: {}", run.stderr);
        }
    }
    // The user has continued it, so it is the user's own.
    folder
        .powerfail(&["fuzz", "repair", "copy"])
        .ends_with(CLEAN);
}

#[test]
fn a_campaign_whose_command_was_changed_asks() {
    let folder = copied();
    let path = folder.path("out/campaign.json");
    let text = fs::read_to_string(&path).expect("a record");
    let mut record: Value = serde_json::from_str(&text).expect("JSON");
    record["options"]["command"][0] = json!({ "Unix": b"./evil" });
    fs::write(&path, record.to_string()).expect("a file that can be written");
    for way in ways("out") {
        let run = folder.powerfail(&way);
        run.is_refused_with(SETUP, &["not made by this user", "./evil"]);
    }
    let mut record: Value = serde_json::from_str(&text).expect("JSON");
    record.as_object_mut().expect("fields").remove("seal");
    fs::write(&path, record.to_string()).expect("a file that can be written");
    for way in ways("out") {
        folder
            .powerfail(&way)
            .is_refused_with(SETUP, &["it has no seal"]);
    }
}

#[test]
fn a_link_among_the_findings_is_not_followed() {
    let folder = copied();
    fs::create_dir(folder.path("elsewhere")).expect("a directory");
    folder.write("elsewhere/report.json", "{}");
    symlink(folder.path("elsewhere"), folder.path("out/findings/beef")).expect("a link");
    let resume = ["fuzz", "--resume", "--out", "out", "--execs", "1"];
    let tmin = ["fuzz", "tmin", "out", "beef", "--time", "1s"];
    for arguments in [&resume[..], &tmin] {
        let run = folder.powerfail(arguments);
        run.is_refused_with(SETUP, &["beef", "symbolic link"]);
    }
    let left = fs::read_dir(folder.path("elsewhere")).expect("a directory");
    assert_eq!(left.count(), 1);
}
