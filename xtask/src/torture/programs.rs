//! The programs that are run: planted ones, hostile ones, and programs of the system that know nothing of powerfail.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::run;

/// Planted programs, with bugs and without.
const PLANTED: [&str; 8] = [
    "fail/atomicity/count_before_entry.c",
    "fail/recovery-crash/division.c",
    "fail/recovery-hang/cycle.c",
    "fail/redundant-flush/each_element.c",
    "fail/durability/fence_before_flush.c",
    "fail/ordering/array_flushed_in_part.c",
    "fail/ordering/copy_of_unflushed_value.c",
    "pass/atomicity/count_before_entry.c",
];

/// Programs that attack: threads that race, recoveries that do whatever a recovery should not do, and odd directories.
const HOSTILE: [&str; 3] = ["torture/racing.c", "torture/hostile.c", "torture/tree.c"];

/// A planted program that is linked statically: it is recorded under QEMU.
pub(crate) const STATIC: &str = "static";

/// Where the programs are.
pub(crate) struct Programs {
    folder: PathBuf,
}

impl Programs {
    /// Builds all of them.
    pub(crate) fn build(folder: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(folder)?;
        for (number, source) in PLANTED.iter().enumerate() {
            compile(source, &folder.join(planted_name(number)), &[])?;
        }
        for source in HOSTILE {
            let name = Path::new(source).file_stem().context("a name")?;
            compile(source, &folder.join(name), &[])?;
        }
        compile(PLANTED[0], &folder.join(STATIC), &["-static"])?;
        Ok(Self {
            folder: folder.to_path_buf(),
        })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

/// The name of a planted program.
pub(crate) fn planted_name(number: usize) -> String {
    format!("planted-{number}")
}

/// How many planted programs there are.
pub(crate) const fn planted_count() -> usize {
    PLANTED.len()
}

fn compile(source: &str, to: &Path, more: &[&str]) -> anyhow::Result<()> {
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mut compiler = Command::new("gcc");
    compiler.args(["-std=gnu11", "-O1", "-g", "-pthread", "-Wl,-z,now"]);
    if !processors.split_whitespace().any(|flag| flag == "clwb") {
        compiler.arg("-DPM_CLFLUSHOPT");
    }
    run(compiler
        .args(more)
        .arg(Path::new("tests").join(source))
        .arg("-o")
        .arg(to))
}
