//! Plots of campaigns.

use std::fs;

use crate::common::{CLEAN, Folder, SETUP};

/// A folder with the statistics of two campaigns.
fn folder() -> Folder {
    let folder = Folder::new();
    for (name, factor) in [("one", 10), ("two", 20)] {
        fs::create_dir(folder.path(name)).expect("a folder");
        let lines = (0..=60).map(|second| {
            let paths = second * factor;
            format!(
                "{{\"time_s\":{second}.0,\"execs\":{},\"execs_per_s\":100.0,\"pm_paths\":{paths},\"corpus\":3,\
                 \"images\":2,\"stability\":1.0,\"findings\":{},\"branches\":7}}\n",
                second * 100,
                second / 30,
            )
        });
        let lines: String = lines.collect();
        // A running campaign may be writing a line.
        fs::write(folder.path(name).join("stats.jsonl"), lines + "{\"time").expect("a file");
    }
    folder
}

#[test]
fn campaigns_are_lines_of_one_picture() {
    let folder = folder();
    let run = folder.powerfail(&["fuzz", "plot", "one", "two/", "-o", "picture.svg"]);
    assert_eq!(run.ends_with(CLEAN).stdout, "");
    let svg = fs::read_to_string(folder.path("picture.svg")).expect("a picture");
    assert!(
        svg.starts_with("<svg ") && svg.ends_with("</svg>\n"),
        "{svg}"
    );
    for text in [
        ">one 600<",
        ">two 1,200<",
        ">PM paths over time<",
        ">time (s)<",
        ">1,200<",
    ] {
        assert!(svg.contains(text), "no {text} in {svg}");
    }
    assert_eq!(svg.matches("<path ").count(), 2);
    // One value at 30 s and one at 60 s of each, with their labels.
    assert_eq!(svg.matches("<circle ").count(), 5);
}

#[test]
fn any_number_of_the_statistics() {
    let folder = folder();
    let run = folder.powerfail(&[
        "fuzz",
        "plot",
        "one",
        "--of",
        "execs_per_s",
        "--title",
        "Speed",
    ]);
    let svg = run.ends_with(CLEAN).stdout;
    assert!(
        svg.contains(">Speed<") && svg.contains(">executions per second<"),
        "{svg}"
    );
    let run = folder.powerfail(&["fuzz", "plot", "one", "--of", "branches", "--log"]);
    assert!(run.ends_with(CLEAN).stdout.contains(">branches<"));
    let run = folder.powerfail(&["fuzz", "plot", "one", "--of", "speed"]);
    run.is_refused_with(SETUP, &["speed", "pm_paths", "branches"]);
}

#[test]
fn nothing_to_draw() {
    let folder = folder();
    let run = folder.powerfail(&["fuzz", "plot", "one", "missing"]);
    run.is_refused_with(SETUP, &["missing", "stats.jsonl"]);
    let run = folder.powerfail(&["fuzz", "plot", "one", "-o", "missing/picture.svg"]);
    run.is_refused_with(SETUP, &["missing/picture.svg"]);
    assert_eq!(folder.powerfail(&["fuzz", "plot"]).code, SETUP);
}
