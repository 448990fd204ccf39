//! The Debian packages that building and testing need.

use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::run;

/// Packages, and why each is needed.
const NEEDED: [(&str, &str); 14] = [
    (
        "gcc",
        "the compression library of the trace file and targets of tests are C",
    ),
    ("libc6-dev", "the same"),
    ("g++", "a target of tests is C++"),
    ("clang", "a target of tests is instrumented by it"),
    (
        "libclang-rt-dev",
        "the instrumented target is linked with it",
    ),
    ("afl++", "a target of tests is instrumented by its compiler"),
    ("libpmem-dev", "targets of tests copy with it"),
    ("libpmemobj-dev", "targets of tests keep objects in it"),
    ("libpmemlog-dev", "a target of tests appends to its log"),
    ("libpmemblk-dev", "a target of tests writes its blocks"),
    ("pmdk-tools", "pmempool is a target of tests"),
    ("liblmdb-dev", "a target of tests keeps a database in it"),
    ("memcached", "a target of tests, with its items in a pool"),
    ("fio", "a target of tests, on a mapped file"),
];

/// Installs what is missing; without the right to do so, names it.
pub(crate) fn install_missing() -> anyhow::Result<()> {
    if !is_debian() {
        eprintln!(
            "xtask: not a Debian system; these must be there: {}",
            names(&NEEDED)
        );
        return Ok(());
    }
    let missing: Vec<_> = NEEDED
        .into_iter()
        .filter(|(name, _)| !is_installed(name))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !is_root()? {
        let names = names(&missing);
        bail!("packages are missing, install them with: sudo apt-get install {names}");
    }
    eprintln!("== installing {}", names(&missing));
    run(Command::new("apt-get").args(["update", "--quiet"]))?;
    run(Command::new("apt-get")
        .args(["install", "--yes", "--quiet", "--no-install-recommends"])
        .args(missing.iter().map(|(name, _)| name))
        .env("DEBIAN_FRONTEND", "noninteractive"))
}

fn names(packages: &[(&str, &str)]) -> String {
    packages
        .iter()
        .map(|(name, _)| *name)
        .collect::<Vec<_>>()
        .join(" ")
}

fn is_debian() -> bool {
    Command::new("dpkg-query")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_ok()
}

fn is_installed(package: &str) -> bool {
    Command::new("dpkg-query")
        .args(["--show", "--showformat=${db:Status-Status}", package])
        .stderr(Stdio::null())
        .output()
        .is_ok_and(|output| output.stdout == b"installed")
}

fn is_root() -> anyhow::Result<bool> {
    let output = Command::new("id")
        .arg("-u")
        .output()
        .context("cannot run id")?;
    Ok(output.stdout.trim_ascii() == b"0")
}
