//! `cargo xtask kernel`: does the kernel agree with the model of ordinary files?
//!
//! The work is done by `xtask/kernel/agrees.py`, which needs root and loop devices: no test can rely on them.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use crate::packages;

/// File systems that are tried. Before Linux 6.7, a copy of a mounted Btrfs cannot be mounted beside it.
const FILE_SYSTEMS: [&str; 3] = ["ext4", "xfs", "btrfs"];

/// Images in memory: on a disk, each of two thousand mounts waits for it.
const MEMORY: &str = "/dev/shm";

/// Makes the operations of all litmus files about files on real file systems and compares what is left of them.
pub fn run(repository: &Path) -> anyhow::Result<()> {
    packages::install(&["python3", "e2fsprogs", "xfsprogs", "btrfs-progs"])?;
    let memory = Path::new(MEMORY);
    let parent = if memory.is_dir() {
        memory.to_path_buf()
    } else {
        std::env::temp_dir()
    };
    let scratch = parent.join(format!("powerfail-kernel-{}", std::process::id()));
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
