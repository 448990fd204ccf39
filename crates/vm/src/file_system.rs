//! The file systems that powerfail knows: how each is made, mounted and checked, and what it promises.
//!
//! Making and checking happen on the host, on the file behind persistent memory: the same programs, at full speed.

use std::path::Path;
use std::process::Command;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Result, VmError};
use crate::layout::MIB;
use crate::tools::program;

/// A file system, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileSystem {
    /// ext4 with DAX.
    Ext4,
    /// XFS with DAX.
    Xfs,
    /// None: the scripts use the device themselves.
    None,
}

/// When an operation is promised to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Promise {
    /// After a sync only: what was not changed since must be there.
    Sync,
    /// When it returns: after a crash there is the state before or after the operation in flight.
    Return,
}

impl FileSystem {
    /// Its name, as users write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::None => "none",
        }
    }

    /// What `mount -t` is told; empty if nothing is mounted.
    pub(crate) const fn kernel_name(self) -> &'static str {
        match self {
            Self::None => "",
            other => other.name(),
        }
    }

    pub(crate) const fn mount_options(self) -> &'static str {
        match self {
            Self::Ext4 | Self::Xfs => "dax=always,noatime",
            Self::None => "",
        }
    }

    /// The modules that it needs, besides those that these name themselves.
    pub(crate) fn modules(self) -> impl Iterator<Item = &'static str> {
        let names: &[&str] = match self {
            // The checksum is asked for by its name, at run time.
            Self::Ext4 => &["crc32c_generic", "ext4"],
            Self::Xfs => &["crc32c_generic", "xfs"],
            Self::None => &[],
        };
        names.iter().copied()
    }

    /// How much memory it gets if nothing is asked for. XFS refuses less.
    pub const fn default_pm_len(self) -> u64 {
        match self {
            Self::Ext4 => 16 * MIB,
            Self::Xfs => 304 * MIB,
            Self::None => 4 * MIB,
        }
    }

    /// How much memory it needs: XFS refuses less, and ext4 has no journal then.
    pub const fn min_pm_len(self) -> u64 {
        match self {
            Self::Ext4 => 8 * MIB,
            Self::Xfs => 300 * MIB,
            Self::None => 0,
        }
    }

    /// Makes an empty file system in a file.
    pub fn make(self, file: &Path) -> Result<()> {
        let command = match self {
            Self::Ext4 => {
                let mut command = Command::new(program("mkfs.ext4", "e2fsprogs")?);
                // No lazy work in the background: a recording has what the workload does. A fixed name, so that
                // two runs are alike.
                command.args(["-q", "-F", "-b", "4096", "-E"]);
                command.arg("lazy_itable_init=0,lazy_journal_init=0,hash_seed=00000000-0000-4000-8000-000000000000");
                command.args(["-U", "00000000-0000-4000-8000-000000000001"]);
                command
            }
            Self::Xfs => {
                let mut command = Command::new(program("mkfs.xfs", "xfsprogs")?);
                // DAX and shared extents exclude each other.
                command.args([
                    "-q",
                    "-f",
                    "-m",
                    "reflink=0,uuid=00000000-0000-4000-8000-000000000001",
                ]);
                command
            }
            Self::None => return Ok(()),
        };
        let mut command = command;
        command.arg(file).env("LC_ALL", "C");
        let output = run(command)?;
        if output.status.success() {
            return Ok(());
        }
        Err(VmError::Command {
            command: format!("mkfs of {}", self.name()),
            output: text(&output),
        })
    }

    /// The command that checks a file system after recovery, without changing it.
    pub(crate) fn check_command(self, file: &Path) -> Result<Option<Command>> {
        let mut command = match self {
            Self::Ext4 => Command::new(program("e2fsck", "e2fsprogs")?),
            Self::Xfs => Command::new(program("xfs_repair", "xfsprogs")?),
            Self::None => return Ok(None),
        };
        command.args(["-f", "-n"]).arg(file).env("LC_ALL", "C");
        Ok(Some(command))
    }

    /// Checks a file system after recovery, without changing it. What is wrong, if anything is.
    pub fn check(self, file: &Path) -> Result<Option<String>> {
        let Some(command) = self.check_command(file)? else {
            return Ok(None);
        };
        let output = run(command)?;
        if output.status.success() {
            return Ok(None);
        }
        Ok(Some(format!(
            "fsck of {} finds errors:\n{}",
            self.name(),
            text(&output)
        )))
    }

    /// What it promises about operations that have returned.
    pub const fn promise(self) -> Promise {
        match self {
            Self::Ext4 | Self::Xfs => Promise::Sync,
            Self::None => Promise::Return,
        }
    }
}

fn run(mut command: Command) -> Result<std::process::Output> {
    let name = command.get_program().to_owned();
    let output = command.output();
    output.map_err(VmError::file("run", Path::new(&name)))
}

fn text(output: &std::process::Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    text.trim().to_owned()
}

impl FromStr for FileSystem {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "ext4" => Ok(Self::Ext4),
            "xfs" => Ok(Self::Xfs),
            "none" => Ok(Self::None),
            _ => Err("the file systems are ext4, xfs and none".to_owned()),
        }
    }
}
