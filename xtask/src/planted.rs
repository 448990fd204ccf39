//! Checks all programs with planted bugs, and writes how many findings each bug has, where they point, and what its check
//! costs.
//!
//! `cargo xtask planted` runs the tests of the planted programs, which leave a file for each program, and writes
//! `docs/figures/planted.md`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::run as run_command;

/// Where the figures are written.
const TABLE: &str = "docs/figures/planted.md";
/// Where the tests leave a file for each program.
const FOLDER: &str = "target/planted";

/// What was found in a program, or in several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Figures {
    programs: usize,
    bugs: usize,
    findings: usize,
    /// Programs with exactly one finding for each bug.
    exact: usize,
    /// Findings whose first place is the planted line, as `tests/README.md` defines it.
    first: usize,
    /// Findings with advice, and those of them whose advice was applied to the trace.
    advised: usize,
    verified: usize,
}

impl Figures {
    fn of(program: &Value) -> anyhow::Result<Self> {
        let findings = program["findings"].as_array().context("no findings")?;
        let count = |name: &str| findings.iter().filter(|it| it[name] == true).count();
        let bugs = program["bugs"].as_u64().context("no number of bugs")?;
        let bugs = usize::try_from(bugs)?;
        Ok(Self {
            programs: 1,
            bugs,
            findings: findings.len(),
            exact: usize::from(findings.len() == bugs),
            first: count("is_first"),
            advised: count("is_advised"),
            verified: count("is_verified"),
        })
    }

    fn add(&mut self, other: &Self) {
        self.programs += other.programs;
        self.bugs += other.bugs;
        self.findings += other.findings;
        self.exact += other.exact;
        self.first += other.first;
        self.advised += other.advised;
        self.verified += other.verified;
    }

    fn row(&self, name: &str) -> String {
        let Self {
            programs,
            bugs,
            findings,
            exact,
            first,
            advised,
            verified,
        } = self;
        format!(
            "| {name} | {programs} | {bugs} | {findings} | {exact} | {first} | {advised} | {verified} |\n"
        )
    }

    /// Whether there is something to look at: more or fewer findings than bugs, or one at another line.
    fn is_inexact(&self) -> bool {
        self.exact == 0 || self.first < self.findings
    }
}

/// Checks the programs and writes the figures.
pub fn run(cargo: impl Fn(&[&str]) -> Command) -> anyhow::Result<()> {
    let folder = Path::new(FOLDER);
    if folder.exists() {
        fs::remove_dir_all(folder).context("cannot remove old figures")?;
    }
    fs::create_dir_all(folder).context("cannot make a folder for figures")?;
    let mut tests = cargo(&["test", "--package", "powerfail", "--test", "planted"]);
    tests.env("POWERFAIL_PLANTED", std::path::absolute(folder)?);
    run_command(&mut tests)?;
    let programs = read(folder)?;
    let page = page(&programs) + &times(&read_times(folder)?);
    fs::write(TABLE, page).with_context(|| format!("cannot write {TABLE}"))?;
    println!("{TABLE} is written");
    Ok(())
}

/// What the tests left.
fn read_all(folder: &Path) -> anyhow::Result<Vec<Value>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)? {
        all.push(serde_json::from_str(&fs::read_to_string(entry?.path())?)?);
    }
    Ok(all)
}

/// The programs, by their names.
fn read(folder: &Path) -> anyhow::Result<BTreeMap<String, Figures>> {
    let mut programs = BTreeMap::new();
    for program in read_all(folder)? {
        if let Some(name) = program["program"].as_str() {
            let figures = Figures::of(&program).with_context(|| name.to_owned())?;
            programs.insert(name.to_owned(), figures);
        }
    }
    if programs.is_empty() {
        bail!("the tests left no figures in {}", folder.display());
    }
    Ok(programs)
}

/// Processor time of the checks of a program and of its twin, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Times {
    bug: Option<u64>,
    twin: Option<u64>,
}

impl Times {
    /// Whether the check with the bug takes more than three times as long as that of its twin, and a second.
    fn is_slow(self) -> bool {
        let limit = self.twin.map(|twin| 3 * twin + 1000);
        self.bug.zip(limit).is_some_and(|(bug, limit)| bug > limit)
    }
}

/// The times of programs that have a twin, by their names.
fn read_times(folder: &Path) -> anyhow::Result<BTreeMap<String, Times>> {
    let mut times: BTreeMap<String, Times> = BTreeMap::new();
    for program in read_all(folder)? {
        let cpu_ms = program["cpu_ms"].as_u64();
        if let Some(name) = program["program"].as_str() {
            times.entry(name.to_owned()).or_default().bug = cpu_ms;
        } else if let Some(name) = program["twin"].as_str() {
            times.entry(name.to_owned()).or_default().twin = cpu_ms;
        }
    }
    times.retain(|_, times| times.bug.is_some() && times.twin.is_some());
    Ok(times)
}

/// The part of the page about processor time: what is above the limit, and the ten that take the longest.
fn times(programs: &BTreeMap<String, Times>) -> String {
    let slow = programs.values().filter(|times| times.is_slow()).count();
    let mut page = format!(
        "\n## Processor time with the bug and without it\n\n\
         In seconds, of powerfail and all recoveries, with `--jobs 1`; debug build. {} of the programs take at most three\n\
         times as long as their repaired twin, plus a second. The others, and the ten that take the longest:\n\n\
         | | with the bug | twin | above the limit |\n|---|---:|---:|---|\n",
        share(programs.len() - slow, programs.len()),
    );
    let mut longest: Vec<_> = programs.iter().collect();
    longest.sort_by_key(|(_, times)| std::cmp::Reverse(times.bug));
    for (place, (name, times)) in longest.into_iter().enumerate() {
        if place < 10 || times.is_slow() {
            let seconds = |ms: Option<u64>| {
                let tenths = ms.unwrap_or_default() / 100;
                format!("{}.{}", tenths / 10, tenths % 10)
            };
            let is_slow = if times.is_slow() { "yes" } else { "" };
            let (bug, twin) = (seconds(times.bug), seconds(times.twin));
            let _ = writeln!(page, "| {name} | {bug} | {twin} | {is_slow} |");
        }
    }
    page
}

fn page(programs: &BTreeMap<String, Figures>) -> String {
    const HEADER: &str = "| | programs | bugs | findings | exactly one finding a bug | first place at the planted line | with advice | advice verified |\n\
        |---|---:|---:|---:|---:|---:|---:|---:|\n";
    let mut all = Figures::default();
    let mut classes: BTreeMap<&str, Figures> = BTreeMap::new();
    for (name, figures) in programs {
        let class = name.split('/').next().unwrap_or_default();
        classes.entry(class).or_default().add(figures);
        all.add(figures);
    }
    let mut page = format!(
        "# Planted bugs: one finding each, at its line\n\n\
         `cargo xtask planted` makes this page: it checks the programs of `tests/fail` and counts their findings. (That\n\
         each of them is found, and nothing in the repaired twins, is what the tests check.)\n\n\
         - {} of the programs have exactly one finding for each planted bug.\n\
         - {} of the findings have the planted line as their first place, as [tests/README.md](../../tests/README.md)\n  \
           defines it.\n\
         - {} of the findings with advice had it applied to the trace, and the failing state was gone.\n\n",
        share(all.exact, all.programs),
        share(all.first, all.findings),
        share(all.verified, all.advised),
    );
    page += HEADER;
    for (class, figures) in &classes {
        page += &figures.row(class);
    }
    page += &all.row("all");
    let inexact = programs.iter().filter(|(_, figures)| figures.is_inexact());
    let inexact: Vec<_> = inexact.collect();
    if !inexact.is_empty() {
        let _ = writeln!(
            page,
            "\n## Programs with another number of findings, or with one at another line\n"
        );
        page += HEADER;
        for (name, figures) in inexact {
            page += &figures.row(name);
        }
    }
    page
}

/// `98.5 % (197 of 200)`.
fn share(part: usize, all: usize) -> String {
    let tenths = (1000 * part).checked_div(all).unwrap_or(1000);
    format!("{}.{} % ({part} of {all})", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_program_is_exact_if_it_has_a_finding_for_each_bug() {
        let finding = |is_first: bool| {
            json!({
                "code": "PF0101", "is_first": is_first,
                "is_advised": true, "is_verified": false,
            })
        };
        let program =
            |findings: Vec<Value>| json!({ "program": "a/b.c", "bugs": 1, "findings": findings });
        let one = Figures::of(&program(vec![finding(true)])).expect("figures");
        assert!(!one.is_inexact());
        let elsewhere = Figures::of(&program(vec![finding(false)])).expect("figures");
        assert!(elsewhere.exact == 1 && elsewhere.is_inexact());
        let two = Figures::of(&program(vec![finding(true), finding(true)])).expect("figures");
        assert!(two.exact == 0 && two.is_inexact());
        let page = page(&BTreeMap::from([
            ("a/one.c".to_owned(), one),
            ("a/two.c".to_owned(), two),
        ]));
        assert!(page.contains("50.0 % (1 of 2) of the programs"), "{page}");
        assert!(page.contains("| a | 2 | 2 | 3 | 1 | 3 | 3 | 0 |"), "{page}");
        assert!(page.contains("| a/two.c |") && !page.contains("| a/one.c |"));
    }

    #[test]
    fn a_check_may_take_three_times_as_long_as_its_twin() {
        let of = |bug, twin| Times {
            bug: Some(bug),
            twin: Some(twin),
        };
        let programs = BTreeMap::from([
            ("a/quick.c".to_owned(), of(1_600, 200)),
            ("a/slow.c".to_owned(), of(1_700, 200)),
        ]);
        let page = times(&programs);
        assert!(page.contains("50.0 % (1 of 2) of the programs"), "{page}");
        assert!(page.contains("| a/slow.c | 1.7 | 0.2 | yes |"), "{page}");
        assert!(page.contains("| a/quick.c | 1.6 | 0.2 |  |"), "{page}");
    }
}
