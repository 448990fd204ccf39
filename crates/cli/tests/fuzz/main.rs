//! `powerfail fuzz` from the user's side: a short campaign, its output, resuming it, interruptions and kills, input
//! channels, several instances, refusals, plots, commands that are learnt, ordinary files, and afl-fuzz's side of `fuzz afl`.
//!
//! The quality of campaigns is measured by the benchmarks and by the tests of its crates, not here.

mod afl;
mod campaign;
#[path = "../check/common.rs"]
#[allow(dead_code, reason = "these tests need less of it than those of check")]
mod common;
mod files;
mod foreign;
mod interrupted;
mod learnt;
mod machines;
mod minimised;
mod plotted;
mod refused;
mod repaired;
mod resumed;
#[path = "../check/run.rs"]
#[allow(dead_code, reason = "the report of a campaign is another one")]
mod run;
mod running;
mod together;
mod ways;

use std::fs;

use common::{CLEAN, FINDINGS, Folder, NOT_CHECKED, Run};
use serde_json::Value;

/// A folder with the program of these tests as `./shop`.
fn folder() -> Folder {
    let folder = Folder::new();
    folder.build_at("shop", "fuzz", "shop.c", &[]);
    folder
}

/// Runs `powerfail fuzz` with these flags on `./shop`, into `out`.
fn fuzz(folder: &Folder, flags: &[&str]) -> Run {
    let mut arguments = vec!["fuzz", "--out", "out"];
    arguments.extend(flags);
    arguments.extend(["--", "./shop", "{pool}"]);
    folder.powerfail(&arguments)
}

/// The output of `--json`.
fn summary(run: &Run) -> Value {
    serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run:?}"))
}

/// Seeds that lead to the planted bug.
fn write_seeds(folder: &Folder) {
    fs::create_dir(folder.path("seeds")).expect("a folder");
    folder.write("seeds/one", "abc\n");
    folder.write("seeds/two", "aop\n");
}

/// Checks that a campaign ended normally. What it has checked and found by then is random.
#[track_caller]
fn has_run(run: &Run) {
    assert!(
        [CLEAN, FINDINGS, NOT_CHECKED].contains(&run.code),
        "{run:?}"
    );
}
