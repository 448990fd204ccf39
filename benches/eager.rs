//! What eager exploration costs: crash states per second for a trivial recovery, with and without snapshots, and the
//! time to count and create the states alone.
//!
//! Not a criterion bench: it runs for seconds. Needs gcc, and `powerfail` built in release mode, which
//! `cargo xtask bench eager` builds.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use powerfail_benches::{compile, here, powerfail, run};
use powerfail_explore::{EagerOptions, EagerStates, Survey};
use powerfail_model::SparseImage;
use powerfail_trace::Trace;
use serde_json::Value;

/// The promised number of states per second on one core.
const STATES_FORKED: f64 = 1_500.0;
const STATES_EXECUTED: f64 = 300.0;

fn main() {
    let powerfail = powerfail();
    let folder = tempfile::tempdir().expect("temporary folder");
    let source = here().join("eager/log.c");
    let program = compile(&source, folder.path(), &["-O2", "-g", "-Wl,-z,now"]);
    let trace = folder.path().join("log.trace");
    let mut record = Command::new(&powerfail);
    record.args(["record", "-o"]).arg(&trace).arg("--");
    run(record.arg(&program).arg("{pool}"));

    pure(&trace);
    let crash = |options: &[&str]| {
        let mut command = Command::new(&powerfail);
        command.arg("crash").arg(&trace);
        command.args(["--strategy", "eager", "--format", "json", "--jobs", "1"]);
        command.args(["--only", "atomicity,durability,ordering"]);
        let recover = format!("{} {{pool}} recover", program.display());
        command.args(["--recover", &recover]).args(options);
        let begun = Instant::now();
        let text = run(&mut command);
        let report: Value = serde_json::from_str(&text).expect("a report");
        let states = report["totals"]["eager"]["run"].as_u64().unwrap_or(0);
        (states, begun.elapsed())
    };
    for (name, options, aim) in [
        ("forked from a snapshot", &[][..], STATES_FORKED),
        ("executed", &["--no-snapshot"][..], STATES_EXECUTED),
    ] {
        // Both times contain the cost of everything else.
        let little = crash(&[options, &["--segments", "0..2"]].concat());
        let much = crash(options);
        let rate = rate(much.0 - little.0, much.1.saturating_sub(little.1));
        let verdict = if rate >= aim { "" } else { "  below the aim" };
        println!(
            "eager, {name:<24} {:>7} states {rate:>9.0} states/s and core (aim {aim:.0}){verdict}",
            much.0
        );
    }
}

/// The cost of the strategy without any recovery.
fn pure(path: &Path) {
    let trace = Trace::open(path).expect("a trace");
    let options = EagerOptions::default();
    let begun = Instant::now();
    let survey = Survey::of(&trace, SparseImage::new(), &options).expect("a trace");
    let counted = begun.elapsed();
    let begun = Instant::now();
    let mut states = EagerStates::new(&trace, SparseImage::new(), options, &survey);
    let mut made = 0;
    while states.next_state().expect("a trace").is_some() {
        made += 1;
    }
    println!(
        "counting {} segments: {:.0} events/s; making {made} states: {:.0} states/s",
        survey.segments.len(),
        rate(trace.event_count(), counted),
        rate(made, begun.elapsed())
    );
}

#[allow(
    clippy::cast_precision_loss,
    reason = "a rate needs no more than 52 bits"
)]
fn rate(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(1e-9)
}
