//! What stands for the reader of the pages: the programs and files that he has, and what he does between two commands.
//! Every entry of a table names its page and a part of a command.

use std::fs;
use std::path::{Path, PathBuf};

use super::root;
use crate::common::{CLEAN, FINDINGS, Folder, SETUP, UNSUPPORTED};

/// What does not run here, and why.
pub(super) const EXCUSED: [(&str, &str, &str); 7] = [
    (
        "README.md",
        "cargo run",
        "builds powerfail; the tests of the demo run what is built, and compare what it prints",
    ),
    ("README.md", "cargo xtask ci", "runs this test"),
    (
        "guide/first-hour.md",
        "cargo install",
        "builds powerfail, which runs here as it was built for the tests",
    ),
    (
        "guide/clusters.md",
        "kubectl",
        "needs a cluster of Kubernetes; another test runs what its pods would run",
    ),
    (
        "guide/fuzzing.md",
        "--broker",
        "waits for instances on other machines; the tests of fuzzing run two together",
    ),
    (
        "guide/fuzzing.md",
        "--join",
        "needs that broker; the tests of fuzzing run two together",
    ),
    (
        "guide/vm.md",
        "powerfail vm check",
        "boots a kernel, which takes a minute; the tests of guests do it once",
    ),
];

/// How blocks begin that the test of the demo compares.
pub(super) const COMPARED_WITH_THE_DEMO: &str =
    "error[PF0301]: recovery fails if the power fails in powerfail::demo_store::insert";

/// What the reader does before a command. Most of it stands in the page in words.
pub(super) const BEFORE: [(&str, &str, &str); 21] = [
    (
        "guide/annotations.md",
        "trace events",
        "powerfail record -o run.trace -- ./list '{pool}'",
    ),
    ("guide/checking.md", "--lock", "mkdir lib"),
    (
        "guide/checking.md",
        "--at",
        "powerfail record -o run.trace -- ./my-program '{pool}' 1000",
    ),
    (
        "guide/checking.md",
        "powerfail replay ID  ",
        "powerfail check -- ./store '{pool}'",
    ),
    (
        "guide/checking.md",
        "known.json",
        "powerfail init --force -- ./store data.pool",
    ),
    (
        "guide/checking.md",
        "known.json",
        "powerfail check --format json=known.json",
    ),
    (
        "guide/ci.md",
        "origin/main",
        "powerfail init -- ./store data.pool",
    ),
    (
        "guide/ci.md",
        "origin/main",
        "git init --quiet && git add powerfail.toml",
    ),
    (
        "guide/ci.md",
        "origin/main",
        "git -c user.name=reader -c user.email=reader@invalid commit --quiet -m all",
    ),
    (
        "guide/ci.md",
        "origin/main",
        "git update-ref refs/remotes/origin/main HEAD",
    ),
    ("guide/ci.md", "last-run", "powerfail check --out last-run"),
    (
        "guide/clusters.md",
        "powerfail merge powerfail-out.*",
        "mv powerfail-out.2-of-3 kept",
    ),
    (
        "guide/clusters.md",
        "powerfail merge powerfail-out.1",
        "! [ -e kept ] || mv kept powerfail-out.2-of-3",
    ),
    (
        "guide/clusters.md",
        "shares/*",
        "mkdir shares && mv powerfail-out.*-of-3 shares",
    ),
    (
        "guide/fuzzing-targets.md",
        "clang -fsanitize",
        "cp counter.c target.c",
    ),
    (
        "guide/races.md",
        "races run.trace --recover './store --verify {pool}'",
        "powerfail record -o run.trace -- ./store '{pool}'",
    ),
    (
        "guide/races.md",
        "log.trace",
        "powerfail record -o log.trace -- ./log '{pool}'",
    ),
    (
        "guide/races.md",
        "races run.trace --recover './store --verify {dir}'",
        "powerfail record -o run.trace -- ./store '{dir}'",
    ),
    ("guide/recording.md", "/mnt/pmem", "mkdir pmem"),
    ("guide/recording.md", "/var/lib", "mkdir data"),
    (
        "guide/recording.md",
        "static-program '{pool}'",
        "gcc -static -g -o static-program store.c",
    ),
];

/// What stands in a page for something that only the reader knows, or would take too long, and what takes its place, in
/// commands and in what they print.
pub(super) const REPLACED: [(&str, &str, &str); 31] = [
    ("README.md", "--time 10m", "--execs 50 --check-with lint"),
    ("guide/checking.md", "/var/lib/store", "{folder}/lib"),
    (
        "guide/checking.md",
        "replay ID",
        "replay $(sed -n 's/^ *\"id\": \"\\(.*\\)\".*/\\1/p' powerfail-out/report.json | head -n 1)",
    ),
    ("guide/checking.md", "--image DIR", "--image image"),
    ("guide/checking.md", "--export DIR", "--export export"),
    (
        "guide/checking.md",
        "--recover CMD",
        "--recover './store {pool}'",
    ),
    ("guide/checking.md", "--at 1200", "--at 7"),
    // Two shares of 64; the job that merges them; what merging knows.
    ("guide/clusters.md", "slurm.sh 64", "slurm.sh 2"),
    ("guide/clusters.md", "slurm-fuzz.sh 64", "slurm-fuzz.sh 2"),
    ("guide/clusters.md", "4712", "2"),
    ("guide/clusters.md", "15 results", "[..] results"),
    ("guide/clusters.md", "2 are new", "[..] new"),
    (
        "guide/clusters.md",
        "parallel.sh 8 run.trace results",
        "parallel.sh 2 run.trace parallel",
    ),
    (
        "guide/clusters.md",
        "--time 12h",
        "--execs 20 --check-with lint",
    ),
    ("guide/fuzzing.md", "--time 10m", "--execs 200"),
    ("guide/fuzzing.md", "--time 1h", "--execs 50"),
    (
        "guide/fuzzing.md",
        "--out team",
        "--execs 20 --check-with none --out team",
    ),
    (
        "guide/fuzzing.md",
        "712ae318",
        "$(ls powerfail-fuzz/findings | head -n 1)",
    ),
    (
        "guide/fuzzing.md",
        "3fe1",
        "$(sed -n 's/.*\"image\":{\"id\":\"\\(................\\).*/\\1/p' powerfail-fuzz/images.jsonl | tail -n 1)",
    ),
    ("guide/fuzzing.md", "powerfail-fuzz 17", "powerfail-fuzz 1"),
    ("guide/fuzzing.md", "afl-fuzz -i", "afl-fuzz -V 1 -i"),
    (
        "guide/fuzzing-targets.md",
        "--desock",
        "--desock --execs 3 --check-with none",
    ),
    ("guide/databases.md", "./app", "../app"),
    ("guide/recording.md", "/mnt/pmem", "pmem"),
    ("guide/recording.md", "/var/lib/my-program", "data"),
    ("guide/recording.md", "4711", "[..]"),
    ("guide/recording.md", "10m", "1s"),
    ("guide/recording.md", "/usr/bin/busybox", "[..]busybox"),
    (
        "guide/recording.md",
        "4712 ([..]/server) waits in accept of descriptor 3 (socket:[91234])",
        "[..] waits in accept of descriptor 3 [..]",
    ),
    ("reference/litmus.md", "FILE...", "litmus/M*.json"),
    ("reference/litmus.md", "FILE", "litmus/MP.json"),
];

/// Commands that end in another way than their kind does.
pub(super) const ENDS: [(&str, &str, i32); 16] = [
    // Recovery is denied something without any crash.
    ("guide/checking.md", "--lock", SETUP),
    // These only write files.
    ("guide/checking.md", "--image DIR", CLEAN),
    ("guide/checking.md", "--export DIR", CLEAN),
    // All findings are known.
    ("guide/checking.md", "--baseline known.json", CLEAN),
    ("guide/ci.md", "--baseline powerfail-baseline.json", CLEAN),
    // A share has done its work, whatever it has found.
    ("guide/clusters.md", "--partition", CLEAN),
    // A share is missing.
    (
        "guide/clusters.md",
        "powerfail merge powerfail-out.*",
        SETUP,
    ),
    // With the findings of all shares.
    ("guide/clusters.md", "parallel.sh", FINDINGS),
    ("guide/databases.md", " extra", CLEAN),
    // Campaigns that check something find it.
    ("guide/fuzzing.md", "--out team", CLEAN),
    ("guide/fuzzing.md", "powerfail fuzz --", FINDINGS),
    ("README.md", "powerfail fuzz --", FINDINGS),
    ("guide/races.md", "--infer", CLEAN),
    ("guide/recording.md", "busybox cat", UNSUPPORTED),
    ("guide/recording.md", "--record-timeout", SETUP),
    ("guide/fuzzing-targets.md", "--desock", CLEAN),
];

/// A folder with the programs of the reader.
pub(super) fn folder() -> Folder {
    let folder = Folder::new();
    let root = root();
    let programs = root.join("crates/cli/tests/check/programs");
    let copy = |from: PathBuf, to: &str| fs::copy(from, folder.path(to)).expect("a copy");
    copy(programs.join("reader.c"), "store.c");
    copy(programs.join("commits.c"), "log.c");
    for name in ["counter.c", "settings.c"] {
        copy(root.join("examples").join(name), name);
    }
    copy(root.join("include/powerfail.h"), "powerfail.h");
    // Sources are named as in the pages, without their directories.
    folder.build_here("store", "store.c", &[]);
    let include = format!("-I{}", programs.display());
    folder.build_here("log", "log.c", &["-DKIND=1", &include]);
    for name in [
        "any-program",
        "app",
        "index-test",
        "kv",
        "list",
        "load",
        "my-program",
        "server",
        "verify",
    ] {
        fs::hard_link(folder.path("store"), folder.path(name)).expect("a link");
    }
    folder.make_sbatch();
    let link = |from: &Path, to: &str| {
        std::os::unix::fs::symlink(from, folder.path(to)).expect("a link");
    };
    link(Path::new(env!("CARGO_BIN_EXE_powerfail")), "bin/powerfail");
    link(&root.join("tests/litmus"), "litmus");
    link(&root.join("examples"), "examples");
    folder
}
