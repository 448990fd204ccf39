//! Checks all programs with planted bugs, and writes how many findings each bug has and where they point.
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
    fs::write(TABLE, page(&programs)).with_context(|| format!("cannot write {TABLE}"))?;
    println!("{TABLE} is written");
    Ok(())
}

/// The programs, by their names.
fn read(folder: &Path) -> anyhow::Result<BTreeMap<String, Figures>> {
    let mut programs = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let program: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
        let name = program["program"].as_str().context("no name")?;
        let figures = Figures::of(&program).with_context(|| format!("{}", path.display()))?;
        programs.insert(name.to_owned(), figures);
    }
    if programs.is_empty() {
        bail!("the tests left no figures in {}", folder.display());
    }
    Ok(programs)
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
}
