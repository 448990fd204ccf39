//! The cost of annotations without powerfail: a load, a test and a branch that is not taken.
//!
//! Not a criterion bench: it measures the ratio of one loop to the same loop without annotations, each compiled as a
//! separate program. Needs gcc. The Rust loops run in this process, which is not recorded either.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// How often each measurement is repeated; the best one counts.
const ROUNDS: usize = 5;
const TIMES: u32 = 20_000_000;

fn main() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let plain = compile(folder.path(), "plain", &[]);
    let annotated = compile(folder.path(), "annotated", &["-DANNOTATED"]);
    println!(
        "{:>22} {:>10} {:>12} {:>7} {:>18}",
        "", "plain ns", "annotated ns", "ratio", "ns per annotation"
    );
    for (name, annotations) in [("tight", 1.0), ("insert", 3.0)] {
        let (without, with) = (best(|| run(&plain, name)), best(|| run(&annotated, name)));
        row(&format!("C, {name}"), without, with, annotations);
    }
    let (without, with) = (best(rust_plain), best(rust_annotated));
    row("Rust, tight", without, with, 1.0);
}

fn row(name: &str, without: f64, with: f64, annotations: f64) {
    let (ratio, each) = (with / without, (with - without) / annotations);
    println!("{name:>22} {without:>10.3} {with:>12.3} {ratio:>7.3} {each:>18.3}");
}

fn best(mut measure: impl FnMut() -> f64) -> f64 {
    (0..ROUNDS).map(|_| measure()).fold(f64::MAX, f64::min)
}

fn compile(folder: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("annotate/loop.c");
    let program = folder.join(name);
    let status = Command::new("gcc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror"])
        .args(flags)
        .arg(source)
        .arg("-o")
        .arg(&program)
        .status()
        .expect("gcc is installed");
    assert!(status.success());
    program
}

/// Nanoseconds per iteration of a C loop.
fn run(program: &Path, name: &str) -> f64 {
    let rounds = if name == "tight" { TIMES } else { TIMES / 100 };
    let output = Command::new(program)
        .args([name, &rounds.to_string()])
        .output()
        .expect("the program runs");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("text");
    text.trim().parse().expect("a number")
}

#[inline(never)]
fn rust_plain() -> f64 {
    let begun = Instant::now();
    for round in 0..TIMES {
        black_box(round);
    }
    begun.elapsed().as_secs_f64() * 1e9 / f64::from(TIMES)
}

#[inline(never)]
fn rust_annotated() -> f64 {
    let begun = Instant::now();
    for round in 0..TIMES {
        powerfail_annotate::failure_point();
        black_box(round);
    }
    begun.elapsed().as_secs_f64() * 1e9 / f64::from(TIMES)
}
