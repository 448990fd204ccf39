//! What developers and CI run: `cargo xtask ci`, `cargo xtask bench`, `cargo xtask fuzz`, `cargo xtask torture`.

mod cpu_time;
mod tests;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use xtask::{book, cluster, deb, kernel, notices, packages, planted, run, targets, torture, vm};

use crate::cpu_time::CpuTime;
use crate::tests::Tally;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  ci              install what the tests need, then fmt, clippy, docs, book and all tests
  test            build and run all tests, on all cores
  size            build the binary as it ships and compare its size with the limit
  example         record a small program with a bug, and show what a crash would leave of its pool
  targets [NAME]  check software of others (all, or what has this in its name), and write docs/figures/targets.md;
                  POWERFAIL names another binary than that of a release build
  planted         check all programs with planted bugs, and write docs/figures/planted.md
  cluster         check a program in shares, and fuzz one, under a Slurm of one node, as docs/guide/clusters.md says (as root);
                  POWERFAIL names another binary than that of a release build
  deb             build the Debian package, in target/deb
  notices         print the licences of the crates that powerfail contains
  picture         make docs/figures/report.png, the picture of a report in README.md (needs chromium)
  book            build the pages of docs as a book, in target/book, and check its links
  bench [NAME [OPTIONS]]
                  run the benchmarks (all, or those of one file in benches/, with its options)
  fuzz [SECONDS [NAME]]
                  fuzz the readers (all, or the one of this name) for this long each (needs a nightly toolchain and
                  cargo-fuzz)
  kernel          make the operations of tests/litmus/files on a real ext4 and xfs, and compare what a crash leaves of them
                  (needs root and loop devices)
  vm              check a module with planted bugs and file systems of the kernel in guests, and write docs/figures/vm.md;
                  POWERFAIL names another binary than that of a release build
  torture [MINUTES [SEED]], torture short
                  run powerfail under attack, and check that it ends well and leaves nothing behind; POWERFAIL names
                  another binary than that of the tests";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        ["ci"] => ci(),
        ["test"] => test(),
        ["size"] => shippable().map(drop),
        ["example"] => example(),
        ["targets"] => chosen().and_then(|binary| targets::run(&binary, None)),
        ["targets", name] => chosen().and_then(|binary| targets::run(&binary, Some(name))),
        ["cluster"] => chosen().and_then(|binary| cluster::run_recipes(&binary)),
        ["planted"] => planted::run(cargo),
        ["deb"] => package(),
        ["notices"] => notices::text().map(|text| print!("{text}")),
        ["picture"] => picture(),
        ["book"] => make_book(),
        ["bench"] => bench(None, &[]),
        ["bench", name, ref options @ ..] => bench(Some(name), options),
        ["fuzz"] => fuzz("60", None),
        ["fuzz", seconds] => fuzz(seconds, None),
        ["fuzz", seconds, name] => fuzz(seconds, Some(name)),
        ["kernel"] => kernel::run(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..")),
        ["vm"] => chosen().and_then(|binary| {
            vm::campaign(&binary, &Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        }),
        ["torture"] => torture("10", None),
        ["torture", "short"] => attacked().and_then(|binary| torture::run_short(&binary)),
        ["torture", minutes] => torture(minutes, None),
        ["torture", minutes, seed] => torture(minutes, Some(seed)),
        [torture::ROUND, ref arguments @ ..] => torture::round_arguments(arguments)
            .and_then(|(seed, paths)| torture::run_inside(seed, &paths)),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Builds the Debian package from a release.
fn package() -> anyhow::Result<()> {
    let binary = shippable()?;
    let out = binary
        .ancestors()
        .nth(2)
        .context("a directory of builds")?
        .join("deb");
    std::fs::create_dir_all(&out)?;
    let package = deb::build(&binary, &out, "-Zxz")?;
    println!("{}", package.display());
    Ok(())
}

/// Makes the picture of a report, from a check of an example.
fn picture() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let binary = debug_binary()?;
    // The path is in the picture.
    let folder = Path::new("/tmp/powerfail-example");
    std::fs::create_dir(folder).with_context(|| folder.display().to_string())?;
    let source = "counter.c";
    std::fs::copy(root.join("examples").join(source), folder.join(source))?;
    let mut compiler = Command::new("gcc");
    run(compiler
        .args(["-g", "-o", "counter", source])
        .current_dir(folder))?;
    let mut check = Command::new(&binary);
    check.args([
        "check",
        "--html",
        "report.html",
        "--",
        "./counter",
        "{pool}",
    ]);
    // A bug is found: the exit code is not 0.
    check
        .current_dir(folder)
        .stdout(std::process::Stdio::null())
        .status()?;
    let mut chromium = Command::new("chromium");
    chromium.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
    ]);
    chromium.args([
        "--window-size=1000,1180",
        "--blink-settings=preferredColorScheme=1",
    ]);
    let picture = root.join("docs/figures/report.png");
    chromium.arg(format!("--screenshot={}", picture.display()));
    run(chromium.arg(format!("file://{}/report.html", folder.display())))?;
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

/// Builds the documentation as a book.
fn make_book() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let first = book::build(&root, &root.join("target/book"))?;
    println!("{}", first.display());
    Ok(())
}

/// All checks. Every step runs, so that one run shows all that is wrong; the tests come last, and
/// their count is the last line.
fn ci() -> anyhow::Result<()> {
    let mut broken = Vec::new();
    if let Err(error) = packages::install_missing() {
        eprintln!("xtask: {error:#}");
        broken.push("packages");
    }
    let clippy = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--",
        "-D",
        "warnings",
    ];
    // The fuzz target is a workspace of its own and needs a nightly toolchain: only its formatting
    // can be checked here.
    let fuzz_fmt = ["fmt", "--check", "--manifest-path", "fuzz/Cargo.toml"];
    let steps: [(&str, Command); 4] = [
        ("fmt", cargo(&["fmt", "--all", "--check"])),
        ("fmt of fuzz", cargo(&fuzz_fmt)),
        ("clippy", ci_cargo(&clippy)),
        ("docs", {
            // With examples, dependencies have the features that tests need, as for clippy: they are checked once.
            let targets = ["--lib", "--bins", "--examples"];
            let mut docs = ci_cargo(&["doc", "--workspace", "--no-deps", "--locked"]);
            docs.args(targets);
            docs.env("RUSTDOCFLAGS", "-D warnings");
            docs
        }),
    ];
    for (name, mut command) in steps {
        if let Err(error) = step(name, || run(&mut command)) {
            eprintln!("xtask: {error:#}");
            broken.push(name);
        }
    }
    if let Err(error) = step("book", make_book) {
        eprintln!("xtask: {error:#}");
        broken.push("book");
    }
    let mut tally = Tally::default();
    let tests = step("tests", || {
        tally = tests::run(ci_cargo)?;
        Ok(())
    });
    if let Err(error) = tests {
        eprintln!("xtask: {error:#}");
        broken.push("tests");
    }
    if !tally.all_passed() {
        broken.push("tests");
    }
    if let Err(error) = step("torture", || torture::run_short(&debug_binary()?)) {
        eprintln!("xtask: {error:#}");
        broken.push("torture");
    }
    broken.dedup();
    if !broken.is_empty() {
        eprintln!("xtask: failed: {}", broken.join(", "));
    }
    println!("{} passed, {} failed", tally.passed, tally.failed);
    if broken.is_empty() {
        Ok(())
    } else {
        std::process::exit(1)
    }
}

/// Only the tests.
fn test() -> anyhow::Result<()> {
    let tally = tests::run(cargo)?;
    println!("{} passed, {} failed", tally.passed, tally.failed);
    if !tally.all_passed() {
        std::process::exit(1);
    }
    Ok(())
}

/// The most that the binary may take on disk: what users download and install.
const BINARY_MAX_BYTES: u64 = 30_000_000;

/// Builds the binary as `cargo install` does and fails if it is larger than the limit. Returns its path. Not a part of
/// `ci`: the build takes as long as half of the tests.
fn shippable() -> anyhow::Result<PathBuf> {
    let binary = release()?;
    let metadata = std::fs::metadata(&binary)
        .with_context(|| format!("cannot read the size of {}", binary.display()))?;
    let len_bytes = metadata.len();
    println!("the binary has {:.1} MB", megabytes(len_bytes));
    if len_bytes > BINARY_MAX_BYTES {
        let limit = megabytes(BINARY_MAX_BYTES);
        bail!("{} is larger than {limit:.1} MB", binary.display());
    }
    Ok(binary)
}

/// Builds the binary as it ships, and returns its path.
fn release() -> anyhow::Result<PathBuf> {
    let build = ["build", "--release", "--locked", "--package", "powerfail"];
    run(&mut ci_cargo(&build))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let binary = std::path::absolute(Path::new(&target).join("release/powerfail"))?;
    Ok(binary)
}

fn megabytes(len_bytes: u64) -> f64 {
    // A binary has far less than 2^52 bytes.
    #[allow(clippy::cast_precision_loss)]
    let bytes = len_bytes as f64;
    bytes / 1e6
}

/// The way of a program through the tool, with a program that forgets to flush.
fn example() -> anyhow::Result<()> {
    run(&mut cargo(&[
        "build",
        "--quiet",
        "--release",
        "--package",
        "powerfail",
    ]))?;
    let folder = Path::new("target/example");
    std::fs::create_dir_all(folder).context("cannot make target/example")?;
    let (program, trace) = (folder.join("forgotten_flush"), folder.join("trace"));
    run(Command::new("gcc")
        .args(["-g", "-O1", "-o"])
        .arg(&program)
        .arg("examples/forgotten_flush.c"))?;
    let powerfail = |arguments: &[&str]| {
        println!("\n$ powerfail {}", arguments.join(" "));
        run(Command::new("target/release/powerfail").args(arguments))
    };
    let (program, trace) = (program.to_string_lossy(), trace.to_string_lossy());
    powerfail(&["record", "-o", &trace, "--", &program, "{pool}"])?;
    powerfail(&["trace", "events", &trace])?;
    powerfail(&["trace", "states", &trace])?;
    println!(
        "\nThe line of the record is open: its stores may be lost, although the flag, which is \
         flushed and fenced, is surely durable.\nexamples/forgotten_flush.c says why."
    );
    Ok(())
}

/// The binary that the variable `POWERFAIL` names, or that of a release build.
fn chosen() -> anyhow::Result<PathBuf> {
    match std::env::var_os("POWERFAIL") {
        Some(path) => std::path::absolute(path).context("the path in POWERFAIL"),
        None => release(),
    }
}

/// Benchmarks that run the binary.
const BENCHES_OF_BINARY: [&str; 10] = [
    "record", "size", "check", "failures", "files", "explore", "growth", "eager", "races", "fuzz",
];

fn bench(name: Option<&str>, options: &[&str]) -> anyhow::Result<()> {
    if name.is_none_or(|name| name == "failures") {
        packages::install(&["libc6-dbg"])?;
    }
    if name.is_none_or(|name| BENCHES_OF_BINARY.contains(&name)) {
        run(&mut cargo(&[
            "build",
            "--release",
            "--package",
            "powerfail",
        ]))?;
    }
    let mut command = cargo(&["bench", "--package", "powerfail-benches"]);
    if let Some(name) = name {
        command.args(["--bench", name]);
    }
    command.arg("--").args(options);
    run(&mut command)
}

fn fuzz(seconds: &str, name: Option<&str>) -> anyhow::Result<()> {
    seconds
        .parse::<u32>()
        .with_context(|| format!("not a number of seconds: {seconds}"))?;
    let mut names = Vec::new();
    for entry in std::fs::read_dir("fuzz/fuzz_targets")? {
        let path = entry?.path();
        names.extend(
            path.file_stem()
                .map(|name| name.to_string_lossy().into_owned()),
        );
    }
    names.sort();
    names.retain(|known| name.is_none_or(|name| name == known));
    anyhow::ensure!(!names.is_empty(), "there is no such fuzz target");
    for name in names {
        fuzz_one(seconds, &name)?;
    }
    Ok(())
}

fn fuzz_one(seconds: &str, name: &str) -> anyhow::Result<()> {
    let time = format!("-max_total_time={seconds}");
    let mut command = Command::new("cargo");
    command.args(["+nightly", "fuzz", "run", name, "--", &time]);
    // The alias runs under the stable toolchain, whose variables must not reach the nightly one.
    for variable in ["CARGO", "RUSTUP_TOOLCHAIN", "RUSTC", "RUSTDOC"] {
        command.env_remove(variable);
    }
    run(&mut command).context("is cargo-fuzz installed? `cargo install cargo-fuzz` does it")
}

/// Runs powerfail under attack for some minutes.
fn torture(minutes: &str, seed: Option<&str>) -> anyhow::Result<()> {
    let minutes: u64 = minutes
        .parse()
        .with_context(|| format!("not a number of minutes: {minutes}"))?;
    let seed = match seed {
        Some(seed) => seed
            .parse()
            .with_context(|| format!("not a seed: {seed}"))?,
        // Another one each time; it is printed.
        None => SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() << 20,
    };
    let time = Duration::from_secs(60 * minutes);
    torture::run(&attacked()?, seed, time)
}

/// The binary that is attacked: that which the variable `POWERFAIL` names, or that of the tests.
fn attacked() -> anyhow::Result<PathBuf> {
    match std::env::var_os("POWERFAIL") {
        Some(_) => chosen(),
        None => debug_binary(),
    }
}

/// Builds the binary as tests run it, with a test of it: so nothing is built twice.
fn debug_binary() -> anyhow::Result<PathBuf> {
    let build = [
        "test",
        "--workspace",
        "--locked",
        "--no-run",
        "--test",
        "cli",
    ];
    run(&mut ci_cargo(&build))?;
    Ok(std::path::absolute("target/debug/powerfail")?)
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments);
    command
}

/// Cargo for a build from nothing: incremental compilation costs time that no later build saves.
fn ci_cargo(arguments: &[&str]) -> Command {
    let mut command = cargo(arguments);
    if std::env::var_os("CI").is_some() {
        command.env("CARGO_INCREMENTAL", "0");
    }
    command
}

/// Runs one step and says how long it took, and how much of the processors: that is the figure to compare where other
/// things run as well.
fn step(name: &str, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    eprintln!("== {name}");
    let spent = || CpuTime::of("self").children;
    let (start, before) = (Instant::now(), spent());
    let result = work();
    let spent = spent().saturating_sub(before);
    eprintln!(
        "== {name}: {:.0} s, {} s of CPU",
        start.elapsed().as_secs_f64(),
        spent.as_secs()
    );
    result
}
