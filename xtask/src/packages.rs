//! The Debian packages that building and testing need.

use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::{run, targets, vm};

/// Packages, and why each is needed.
const NEEDED: [(&str, &str); 29] = [
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
    ("python3", "targets of tests are written in it"),
    ("python3-yaml", "a test reads the files for CI systems"),
    ("libpmem-dev", "targets of tests copy with it"),
    ("libpmem2-dev", "a target of tests maps its pool with it"),
    ("libpmemobj-dev", "targets of tests keep objects in it"),
    ("libpmemlog-dev", "a target of tests appends to its log"),
    ("libpmemblk-dev", "a target of tests writes its blocks"),
    ("pmdk-tools", "pmempool is a target of tests"),
    ("liblmdb-dev", "a target of tests keeps a database in it"),
    (
        "libsqlite3-dev",
        "an example of the guides keeps a database in it",
    ),
    ("memcached", "a target of tests, with its items in a pool"),
    ("chromium", "pages of reports are tested in it"),
    ("cmake", "a test of a program in C runs powerfail by it"),
    ("meson", "the same"),
    (
        "pkg-config",
        "meson finds the header with annotations by it",
    ),
    ("git", "--changed-since asks it"),
    ("fio", "a target of tests, on a mapped file"),
    ("qemu-user", "records statically linked targets of tests"),
    ("musl-tools", "a target of tests is linked with it"),
    ("qemu-system-x86", "a test checks a file system in a guest"),
    ("busybox-static", "the guest runs it"),
    ("parallel", "a recipe for shares of a run is tested with it"),
    (
        "iproute2",
        "campaigns on several machines are tested in networks of their own",
    ),
];

/// Installs what is missing; without the right to do so, names it.
pub fn install_missing() -> anyhow::Result<()> {
    if !is_debian() {
        eprintln!(
            "xtask: not a Debian system; these must be there: {}",
            NEEDED.map(|(name, _)| name).join(" ")
        );
        return Ok(());
    }
    let mut all = NEEDED.map(|(name, _)| name).to_vec();
    all.extend(targets::packages_of_tests());
    install(&all)?;
    // Tests find it there, and use no network.
    let kernel = vm::kernel(&vm::work_directory()?)?;
    vm::install_headers(&kernel)
}

/// Installs those of the packages that are missing; without the right to do so, names them.
pub fn install(packages: &[&str]) -> anyhow::Result<()> {
    let missing: Vec<&str> = packages
        .iter()
        .copied()
        .filter(|name| !is_installed(name))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    if !is_root()? {
        bail!("packages are missing, install them with: sudo apt-get install {names}");
    }
    eprintln!("== installing {names}");
    run(Command::new("apt-get").args(["update", "--quiet"]))?;
    run(Command::new("apt-get")
        .args(["install", "--yes", "--quiet", "--no-install-recommends"])
        .args(missing)
        .env("DEBIAN_FRONTEND", "noninteractive"))
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
