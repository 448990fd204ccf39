//! `powerfail fuzz` as a user meets it: a short campaign, what it leaves, going on with it, interruptions,
//! refusals, pictures, and afl-fuzz's side of `fuzz afl`.
//!
//! How good a campaign is, is not judged here: that is for the benchmarks and for the tests of its crates.

mod afl;
mod campaign;
#[path = "../check/common.rs"]
#[allow(dead_code, reason = "these tests need less of it than those of check")]
mod common;
mod interrupted;
mod plotted;
mod refused;
#[path = "../check/run.rs"]
#[allow(dead_code, reason = "the report of a campaign is another one")]
mod run;

use common::{Folder, Run};

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
