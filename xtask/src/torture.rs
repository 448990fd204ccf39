//! `cargo xtask torture`: runs powerfail under attack, and checks that it leaves nothing behind.
//!
//! A round is decided by its seed: a command, a program, a recovery, and something that goes wrong (`plan.rs`). It runs in
//! namespaces of its own, with its own `/tmp`, `/dev/shm` and home directory, so that a recovery may kill every process that
//! it sees, and so that all that is left there was left by powerfail (`round.rs`, `leftovers.rs`). What the round itself needs
//! from below `/tmp` is shown there again. Moments at which signals arrive depend on the machine: a round that failed need not
//! fail again with its seed.
//!
//! Seeds of rounds that have failed once are kept in `tests/torture/seeds`. They run first.

mod leftovers;
mod plan;
mod programs;
mod round;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io};

use anyhow::{Context, bail};

use programs::Programs;

pub use round::run_inside;

/// The command of xtask that runs one round, inside of its namespaces.
pub const ROUND: &str = "torture-round";
/// Seeds of rounds that have failed once.
const SEEDS: &str = "tests/torture/seeds";
/// A round that takes longer hangs.
const ROUND_SECONDS_MAX: u64 = 300;

/// How many rounds CI runs, from seed 1 on. Together they take about ten seconds of processor time.
const SHORT_ROUNDS: u64 = 20;

/// Runs the rounds that CI runs. Fails if any round did.
pub fn run_short(binary: &Path) -> anyhow::Result<()> {
    run_seeds(binary, 1..=SHORT_ROUNDS, Duration::MAX)
}

/// Runs rounds with the seeds that are kept, then with `first_seed` and those that follow. Fails if any round did.
pub fn run(binary: &Path, first_seed: u64, time: Duration) -> anyhow::Result<()> {
    let kept = kept_seeds()?;
    println!(
        "torture: {} kept seeds, then seeds from {first_seed}",
        kept.len()
    );
    run_seeds(binary, kept.into_iter().chain(first_seed..), time)
}

fn run_seeds(
    binary: &Path,
    seeds: impl Iterator<Item = u64>,
    time: Duration,
) -> anyhow::Result<()> {
    let folder = std::path::absolute("target/torture")?;
    let programs = Programs::build(&folder.join("programs"))?;
    let namespaces = namespaces()?;
    let begun = Instant::now();
    let mut results: BTreeMap<String, u64> = BTreeMap::new();
    let mut failed = Vec::new();
    for seed in seeds {
        if begun.elapsed() >= time {
            break;
        }
        let work = folder.join(format!("round-{seed}"));
        let outcome = round(binary, &programs, namespaces, seed, &work)?;
        println!("seed {seed}: {}", outcome.summary);
        *results.entry(outcome.summary).or_default() += 1;
        if outcome.violations.is_empty() {
            fs::remove_dir_all(&work)?;
            continue;
        }
        for violation in &outcome.violations {
            println!("seed {seed}: VIOLATION: {violation}");
        }
        println!("seed {seed}: its files are in {}", work.display());
        failed.push(seed);
    }
    let count: u64 = results.values().sum();
    let seconds = begun.elapsed().as_secs();
    println!(
        "torture: {count} rounds in {seconds} s, {} failed",
        failed.len()
    );
    for (summary, count) in &results {
        println!("{count:6}  {summary}");
    }
    if !failed.is_empty() {
        bail!("these seeds failed: {failed:?}");
    }
    Ok(())
}

/// The seeds in the file, one on each line, with a comment behind it.
fn kept_seeds() -> anyhow::Result<Vec<u64>> {
    let text = fs::read_to_string(SEEDS).with_context(|| SEEDS.to_owned())?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_whitespace().next())
        .map(|seed| seed.parse().with_context(|| format!("{SEEDS}: `{seed}`")))
        .collect()
}

/// What a round has shown.
struct Outcome {
    /// What was done and how it ended, without anything that varies.
    summary: String,
    violations: Vec<String>,
}

/// Runs one round in namespaces of its own.
fn round(
    binary: &Path,
    programs: &Programs,
    namespaces: &[&str],
    seed: u64,
    work: &Path,
) -> anyhow::Result<Outcome> {
    let _ = fs::remove_dir_all(work);
    fs::create_dir_all(work)?;
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", &ROUND_SECONDS_MAX.to_string()]);
    command.arg("unshare").args(namespaces);
    command.args([
        "--mount",
        "--pid",
        "--ipc",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]);
    command.arg(own_program()?).arg(ROUND);
    command.arg(seed.to_string());
    command.args([binary, programs.folder(), work]);
    let output = command
        .stdin(Stdio::null())
        .stderr(fs::File::create(work.join("round.stderr"))?)
        .output()
        .context("unshare is part of util-linux")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines = text.lines();
    let summary = lines.next().unwrap_or("no result").to_owned();
    let mut violations: Vec<String> = lines.map(str::to_owned).collect();
    if !output.status.success() {
        violations.push(format!("the round itself ended with {}", output.status));
    }
    Ok(Outcome {
        summary,
        violations,
    })
}

/// What `unshare` needs besides, to make namespaces: nothing for root, a user namespace for others.
fn namespaces() -> anyhow::Result<&'static [&'static str]> {
    let candidates: [&[&str]; 2] = [&[], &["--user", "--map-root-user"]];
    let works = |candidate: &&[&str]| {
        let mut unshare = Command::new("unshare");
        unshare.args(*candidate).args(["--mount", "true"]);
        unshare.output().is_ok_and(|output| output.status.success())
    };
    let found = candidates.into_iter().find(works);
    found.context("torture needs namespaces: allow user namespaces, or run it as root")
}

/// The arguments of [`ROUND`].
pub fn round_arguments(arguments: &[&str]) -> anyhow::Result<(u64, [PathBuf; 3])> {
    let [seed, binary, programs, work] = arguments else {
        bail!("usage: {ROUND} SEED BINARY PROGRAMS WORK");
    };
    Ok((seed.parse()?, [binary, programs, work].map(PathBuf::from)))
}

/// The path of this program. Building the tests may replace the file while this program runs. The kernel then adds ` (deleted)` to
/// the path; the new file was built from the same sources.
fn own_program() -> io::Result<PathBuf> {
    const MARK: &[u8] = b" (deleted)";
    let path = std::env::current_exe()?.into_os_string().into_vec();
    let path = path.strip_suffix(MARK).unwrap_or(&path).to_vec();
    Ok(PathBuf::from(OsString::from_vec(path)))
}
