//! `cargo xtask kernel`: does the kernel agree with the model of ordinary files?
//!
//! The work is done by `xtask/kernel/agrees.py`, which needs root and loop devices: no test can rely on them.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use crate::packages;

/// File systems that are tried. A copy of a mounted Btrfs cannot be mounted beside it, so that one is missing.
const FILE_SYSTEMS: [&str; 2] = ["ext4", "xfs"];

/// Makes the operations of all litmus files about files on real file systems and compares what is left of them.
pub fn run(repository: &Path) -> anyhow::Result<()> {
    packages::install(&["python3", "e2fsprogs", "xfsprogs"])?;
    let scratch = std::env::temp_dir().join(format!("powerfail-kernel-{}", std::process::id()));
    std::fs::create_dir(&scratch).with_context(|| scratch.display().to_string())?;
    let status = Command::new("python3")
        .arg(repository.join("xtask/kernel/agrees.py"))
        .args([repository, scratch.as_path()])
        .args(FILE_SYSTEMS)
        .status()
        .context("python3")?;
    if !status.success() {
        bail!(
            "the kernel does not agree, or could not be asked; {} is kept",
            scratch.display()
        );
    }
    std::fs::remove_dir_all(&scratch).with_context(|| scratch.display().to_string())
}
