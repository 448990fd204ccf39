//! Checks storage software of others with the plain documented command, and writes the table of results.
//!
//! `cargo xtask targets` installs the packages, builds the programs of `tests/software`, runs `powerfail check` on each
//! of them, and writes `docs/figures/targets.md`. It fails if a result is not the expected one.

mod databases;
mod mapped;
mod writers;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::packages;

/// Where the table is written.
const TABLE: &str = "docs/figures/targets.md";

/// How a program is built from a file of `tests/software`.
#[derive(Clone, Copy, Debug)]
pub enum Build {
    /// C, with these flags.
    C(&'static [&'static str]),
    /// C++, with these flags.
    Cpp(&'static [&'static str]),
    /// Java.
    Java,
    /// Go with cgo, so that it is dynamic.
    Go,
    /// The same without C: it is static, and recorded under QEMU.
    StaticGo,
    /// A package of Rust; the source is its `Cargo.toml`.
    Cargo,
    /// A script.
    Nothing,
    /// A script that uses this package of npm, in this version.
    Npm(&'static str, &'static str),
    /// A script that uses this package of `PyPI`, in this version.
    Pip(&'static str, &'static str),
}

/// What the check must say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Nothing is found.
    Clean,
    /// Errors are found, and they are real.
    Bugs,
    /// It says that nothing was checked.
    NothingChecked,
    /// The target is refused by name.
    Refused,
    /// Only performance bugs are found.
    Performance,
    /// It ends in another way.
    Fails,
}

impl Expected {
    const fn name(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Bugs => "bugs",
            Self::NothingChecked => "nothing checked",
            Self::Refused => "refused",
            Self::Performance => "performance bugs",
            Self::Fails => "fails",
        }
    }
}

/// A program that is checked.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// What the table calls it.
    pub name: &'static str,
    packages: &'static [&'static str],
    /// The file in `tests/software`.
    source: &'static str,
    build: Build,
    /// Flags of `powerfail check` that the documented recipe has.
    flags: &'static [&'static str],
    recover: &'static str,
    command: &'static [&'static str],
    /// What the check must say.
    pub expected: Expected,
    /// What is covered, and why the expected result is the true one.
    covered: &'static str,
    /// Whether the tests run it as well.
    in_tests: bool,
}

/// The result of a check.
#[derive(Debug)]
pub struct Outcome {
    exit: Option<i32>,
    time: Duration,
    failure_points: u64,
    executions: u64,
    codes: Vec<String>,
    /// Everything that the check wrote.
    pub text: String,
}

/// The packages of the targets that the tests run.
pub(crate) fn packages_of_tests() -> impl Iterator<Item = &'static str> {
    tested().flat_map(|target| target.packages).copied()
}

/// The targets that the tests run.
pub fn tested() -> impl Iterator<Item = &'static Target> {
    all().filter(|target| target.in_tests)
}

/// All targets, in the order of the table.
fn all() -> impl Iterator<Item = &'static Target> {
    let lists = [databases::TARGETS, writers::TARGETS, mapped::TARGETS];
    lists.into_iter().flatten()
}

/// Runs all targets, or those whose name contains `filter`.
pub fn run(powerfail: &Path, filter: Option<&str>) -> anyhow::Result<()> {
    let chosen = all().filter(|target| filter.is_none_or(|filter| target.name.contains(filter)));
    let folder = std::path::absolute("target/software")?;
    fs::create_dir_all(&folder)?;
    let mut rows = if filter.is_some() {
        known_rows()?
    } else {
        BTreeMap::new()
    };
    let mut unexpected = Vec::new();
    for target in chosen {
        packages::install(target.packages)?;
        target.build(Path::new("tests/software"), &folder)?;
        let outcome = target.check(powerfail, &folder)?;
        let result = outcome.result();
        eprintln!(
            "{:24} {:16} {:6.1} s  {}",
            target.name,
            result.name(),
            outcome.time.as_secs_f64(),
            outcome.codes.join(" ")
        );
        if !outcome.is_expected_of(target) {
            eprintln!("  expected: {}\n{}", target.expected.name(), outcome.text);
            unexpected.push(target.name);
        }
        rows.insert(target.name.to_owned(), row(target, &outcome));
    }
    // A target that was not run keeps its row.
    let rows = all().filter_map(|target| rows.get(target.name));
    let rows: String = rows.map(String::as_str).collect();
    fs::write(TABLE, format!("{HEAD}{rows}")).with_context(|| format!("writing {TABLE}"))?;
    eprintln!("wrote {TABLE}");
    if !unexpected.is_empty() {
        bail!("unexpected results: {}", unexpected.join(", "));
    }
    Ok(())
}

/// The rows of the table as it is, by the names of the targets.
fn known_rows() -> anyhow::Result<BTreeMap<String, String>> {
    let table = fs::read_to_string(TABLE).with_context(|| format!("reading {TABLE}"))?;
    let rows = table.lines().filter_map(|line| {
        let (name, _) = line.strip_prefix("| ")?.split_once(" | ")?;
        Some((name.to_owned(), format!("{line}\n")))
    });
    Ok(rows.collect())
}

const HEAD: &str = "\
# Software of others

`cargo xtask targets` makes this table: it installs the packages of Debian, builds the programs of `tests/software`, and
checks each with the command in the table. Times are those of one run on one machine with two cores. Those of programs that get
`{dir}` were measured with a debug build while other builds kept the machine busy (load 10 to 20), the others with the release
binary on a quiet machine.

Programs that get `{dir}` keep ordinary files. What is found in them is of three kinds: several system calls that are not atomic
together (Tokyo Cabinet, redb, fjall, `cp`), operations that reach the disk in another order (git, Mercurial, `mv`, `sed -i`, `dbm.dumb`), and
acknowledged data that is not durable (GDBM, sled, LevelDB without sync).

Rows with the version of a package in their name are about packages of npm, PyPI and crates.io. Most of them have a bug that later
versions do not have: `write-file-atomic` up to 1.3.1, `nedb` up to 1.4.0 and `atomicwrites` 0.1 give a file its name before it is synced,
`atomicwrites` 1.0 does not sync the directory, and `tinydb` 2 and `persy` 0.1 sync nothing. The repaired versions are clean.

A check of Mercurial or ZODB starts Python hundreds of times. That of Mercurial ends with its budget of 120 s, and 34 of 415 crash states
were not tried.

The last column says whether the result is true.

| program | command | covered | time | failure points | executions | result | true? |
|---|---|---|---:|---:|---:|---|---|
";

fn row(target: &Target, outcome: &Outcome) -> String {
    let result = outcome.result();
    let mut codes = outcome.codes.clone();
    codes.dedup();
    let found = if codes.is_empty() {
        result.name().to_owned()
    } else {
        format!("{} ({})", result.name(), codes.join(", "))
    };
    let is_true = match target.expected {
        expected if expected == result => "true",
        _ => "**unexpected**",
    };
    let flags = target.flags.join(" ");
    let flags = if flags.is_empty() { flags } else { flags + " " };
    let mut row = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        row,
        "| {} | `check {flags}--recover '{}' -- {}` | {} | {:.1} s | {} | {} | {found} | {is_true} |",
        target.name,
        target.recover,
        target.command.join(" "),
        target.covered,
        outcome.time.as_secs_f64(),
        outcome.failure_points,
        outcome.executions,
    );
    row
}

impl Outcome {
    /// Whether this is what is expected of a target.
    pub fn is_expected_of(&self, target: &Target) -> bool {
        self.result() == target.expected
    }

    fn result(&self) -> Expected {
        match self.exit {
            Some(0) => Expected::Clean,
            Some(1) if self.codes.is_empty() => Expected::Performance,
            Some(1) => Expected::Bugs,
            Some(4) => Expected::Refused,
            Some(NOTHING_CHECKED) => Expected::NothingChecked,
            _ => Expected::Fails,
        }
    }
}

fn copy_script(source: &Path, folder: &Path) -> anyhow::Result<()> {
    fs::copy(source, folder.join(source.file_name().context("a name")?))?;
    Ok(())
}

/// The exit code of a check that checked nothing.
const NOTHING_CHECKED: i32 = 5;

impl Target {
    /// Builds it in a folder, from the folder of sources.
    pub fn build(&self, sources: &Path, folder: &Path) -> anyhow::Result<()> {
        let source = std::path::absolute(sources.join(self.source))?;
        let program = folder.join(source.file_stem().context("a file name")?);
        let compile = |compiler: &str, flags: &[&str]| {
            let mut command = Command::new(compiler);
            command.args(["-g", "-O1", "-w", "-o"]).arg(&program);
            command.arg(&source).args(flags);
            command
        };
        let mut command = match self.build {
            Build::C(flags) => compile("gcc", flags),
            Build::Cpp(flags) => compile("g++", flags),
            Build::Java => {
                let mut command = Command::new("javac");
                command.arg("-d").arg(folder).arg(&source);
                command
            }
            Build::Go => {
                let mut command = Command::new("go");
                command.args(["build", "-ldflags=-linkmode=external", "-o"]);
                let stem = self.source.trim_end_matches(".go");
                command.arg(folder.join(format!("{stem}-go"))).arg(&source);
                command.env("CGO_ENABLED", "1").env("HOME", folder);
                // Debian's packages of Go are sources, and no modules.
                command.env("GO111MODULE", "off");
                command.env("GOPATH", "/usr/share/gocode");
                command
            }
            Build::StaticGo => {
                let text = fs::read_to_string(&source)?;
                let copy = folder.join("static.go");
                fs::write(&copy, text.replace("import \"C\"\n", ""))?;
                let mut command = Command::new("go");
                command.args(["build", "-o"]);
                command.arg(folder.join("static-go")).arg(copy);
                command.env("CGO_ENABLED", "0").env("HOME", folder);
                command
            }
            Build::Cargo => {
                let target = folder.join("cargo");
                let mut command = Command::new("cargo");
                command.arg("build").arg("--manifest-path").arg(&source);
                command.arg("--target-dir").arg(&target);
                crate::run(&mut command)?;
                let package = source.parent().and_then(Path::file_name);
                let package = package.context("a package")?;
                fs::copy(target.join("debug").join(package), folder.join(package))?;
                return Ok(());
            }
            Build::Nothing => return copy_script(&source, folder),
            Build::Npm(package, version) => {
                copy_script(&source, folder)?;
                let mut command = Command::new("npm");
                command.args(["install", "--no-audit", "--no-fund", "--prefix"]);
                command.arg(folder.join(format!("npm-{package}-{version}")));
                command.arg(format!("{package}@{version}"));
                command
            }
            Build::Pip(package, version) => {
                copy_script(&source, folder)?;
                let mut command = Command::new("python3");
                command.args(["-m", "pip", "install", "-q", "--upgrade", "--target"]);
                command.arg(folder.join(format!("pip-{package}-{version}")));
                command.arg(format!("{package}=={version}"));
                command
            }
        };
        crate::run(&mut command).with_context(|| format!("building {}", source.display()))
    }

    /// Checks it in the folder in which it was built.
    pub fn check(&self, powerfail: &Path, folder: &Path) -> anyhow::Result<Outcome> {
        let out = PathBuf::from(format!("out-{}", self.name.replace(' ', "-")));
        let _ = fs::remove_dir_all(folder.join(&out));
        let begun = Instant::now();
        let output = Command::new(powerfail)
            .args(["check", "--format", "json", "--out"])
            .arg(&out)
            .args(self.flags)
            .args(["--recover", self.recover, "--"])
            .args(self.command.iter().map(OsStr::new))
            .current_dir(folder)
            .output()
            .with_context(|| format!("running {}", powerfail.display()))?;
        let time = begun.elapsed();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let errors = report["findings"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|finding| finding["severity"] == "error");
        let code = |finding: &Value| finding["code"].as_str().unwrap_or_default().to_owned();
        let mut codes: Vec<String> = errors.map(code).collect();
        codes.sort();
        let total = |name: &str| report["totals"][name].as_u64().unwrap_or_default();
        Ok(Outcome {
            exit: output.status.code(),
            time,
            failure_points: total("failure_points"),
            executions: total("recovery_runs"),
            codes,
            text: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}
