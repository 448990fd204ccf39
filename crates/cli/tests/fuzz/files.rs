//! A campaign on a program that keeps ordinary files.

use crate::common::{FINDINGS, Folder};
use crate::summary;

#[test]
fn a_program_with_files_is_fuzzed_without_seeds() {
    let folder = Folder::new();
    folder.build_at("notes", "fuzz", "notes.c", &["-g"]);
    let run = folder.powerfail(&[
        "fuzz",
        "--out",
        "out",
        "--jobs",
        "1",
        "--seed",
        "1",
        "--timeout",
        "20s",
        "--until-found",
        "--time",
        "90s",
        "--json",
        "--recover",
        "./notes {dir} check",
        "--",
        "./notes",
        "{dir}",
    ]);
    let summary = summary(&run.ends_with(FINDINGS));
    let findings = summary["findings"].as_array().expect("a list");
    let planted = findings.iter().find(|it| it["finding"]["code"] == "PF0901");
    let planted = planted.unwrap_or_else(|| panic!("{summary:#}"));
    let id = planted["finding"]["id"].as_str().expect("an id");
    folder
        .powerfail(&["replay", id, "--out", "out"])
        .ends_with(FINDINGS);
}
