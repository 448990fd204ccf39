//! The part of xtask that tests use as well: software of others, the packages that it needs, planted bugs,
//! what the kernel says of the model of files, the Debian package with the licences of what is in it, and the book.

pub mod book;
pub mod cluster;
pub mod deb;
pub mod kernel;
pub mod markdown;
pub mod notices;
pub mod packages;
pub mod planted;
pub mod random;
pub mod targets;
pub mod torture;
pub mod vm;

use std::process::Command;

use anyhow::{Context, bail};

/// Runs a command, which must succeed.
pub fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot run {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed: {status}");
    }
    Ok(())
}
