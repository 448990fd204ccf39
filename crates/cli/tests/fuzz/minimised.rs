//! Findings are minimised: to the end, in turns, and with what was found so far when it is interrupted.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{CLEAN, FINDINGS, Folder, SETUP};
use crate::running::{
    leftovers, mark, send, start_shop, wait_until, wait_until_all_are_gone, wait_until_it_runs,
};
use crate::{folder, fuzz, summary};

/// Commands of which only `o` and, after that, `p` are needed.
fn write_long_seed(folder: &Folder) {
    fs::create_dir(folder.path("seeds")).expect("a folder");
    let some = "a bb 17\nc\ndefg h\n".repeat(6);
    folder.write("seeds/long", &format!("{some}o x\n{some}p\n{some}"));
}

/// A campaign that has found the planted bug; its id.
fn found(folder: &Folder) -> String {
    write_long_seed(folder);
    let flags = ["--seeds", "seeds", "--until-found", "--time", "90s"];
    let more = ["--timeout", "5s", "--check-with", "prefix", "--json"];
    let run = fuzz(folder, &[&flags[..], &more].concat());
    let summary = summary(&run.ends_with(FINDINGS));
    let finding = &summary["findings"][0]["finding"];
    assert_eq!(finding["code"], "PF0301", "{summary:#}");
    finding["id"].as_str().expect("an id").to_owned()
}

/// What `minimised.json` says.
fn minimised(folder: &Folder, id: &str) -> Option<Value> {
    let text = fs::read(folder.path(&format!("out/findings/{id}/minimised.json"))).ok()?;
    let value: Value = serde_json::from_slice(&text).expect("JSON");
    Some(value["minimised"].clone())
}

fn minimised_input(folder: &Folder, id: &str) -> String {
    let path = folder.path(&format!("out/findings/{id}/minimised.input"));
    fs::read_to_string(path).expect("text")
}

#[test]
fn a_finding_keeps_only_the_commands_that_it_needs() {
    let folder = folder();
    let id = found(&folder);
    // Without any time, it says how to continue.
    let cut = folder.powerfail(&["fuzz", "tmin", "out", &id, "--time", "1ms"]);
    let cut = cut.ends_with(CLEAN);
    let next = format!("continue with: powerfail fuzz tmin out {id}");
    assert!(cut.stdout.contains(&next), "{cut:?}");
    assert_eq!(
        minimised(&folder, &id).expect("a state")["state"],
        "cut_short"
    );
    let shown = folder.powerfail(&["fuzz", "show", "out"]).ends_with(CLEAN);
    let text = "1 finding is not minimised to the end";
    assert!(shown.stdout.contains(text), "{shown:?}");

    let run = folder.powerfail(&["fuzz", "tmin", "out", &id]);
    let run = run.ends_with(CLEAN);
    assert!(run.stdout.contains("minimised from "), "{run:?}");
    let state = minimised(&folder, &id).expect("a state");
    assert_eq!(state["state"], "complete", "{state}");
    assert_eq!(minimised_input(&folder, &id), "o\np\n");
    let shown = folder.powerfail(&["fuzz", "show", "out"]).ends_with(CLEAN);
    assert!(shown.stdout.contains("input of 4 bytes"), "{shown:?}");
    assert!(!shown.stdout.contains("to the end"), "{shown:?}");

    let run = folder.powerfail(&["fuzz", "tmin", "out", "0000beef"]);
    run.is_refused_with(SETUP, &["0000beef"]);
}

#[test]
fn an_interruption_while_findings_are_minimised_loses_nothing() {
    let folder = folder();
    write_long_seed(&folder);
    let mark = mark("minimising");
    let flags = ["--seeds", "seeds", "--timeout", "5s", "--json"];
    let mut child = start_shop(&folder, &mark, &flags);
    let id = child.id();
    drop(wait_until_it_runs(&mut child));
    let is_minimising = || {
        let findings = fs::read_dir(folder.path("out/findings"));
        let mut findings = findings.into_iter().flatten().flatten();
        findings.any(|it| it.path().join("minimised.json").exists())
    };
    let watched = || {
        let findings = fs::read_dir(folder.path("out/findings"));
        let names = findings.into_iter().flatten().flatten();
        let names = names.map(|it| format!("out/findings/{}", it.file_name().display()));
        names.collect::<Vec<_>>()
    };
    wait_until(&folder.path(""), &["out/findings"], "a finding", || {
        watched().iter().any(|it| !it.contains("/."))
    });
    let names = watched();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    wait_until(&folder.path(""), &names, "a smaller one", is_minimising);
    send(&child, Signal::INT);
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(FINDINGS), "{output:?}");
    let summary: Value = serde_json::from_slice(&output.stdout).expect("a summary");
    assert_eq!(summary["interrupted"], true);
    wait_until_all_are_gone(&mark);
    assert_eq!(leftovers(id), Vec::<String>::new());
    for finding in summary["findings"].as_array().expect("a list") {
        let Some(state) = finding["minimised"].as_object() else {
            continue;
        };
        let id = finding["finding"]["id"].as_str().expect("an id");
        let stored = minimised(&folder, id).expect("it is on disk");
        assert_eq!(stored.as_object(), Some(state));
        let len = minimised_input(&folder, id).len() as u64;
        assert_eq!(stored["to_bytes"], len);
    }
}
