//! What commands read of files and write to them.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::verdict::{Backtrace, Verdict};

/// A part of a file that a command has used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileUse {
    /// The device of the file.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
    /// Which bytes. What is mapped counts as read.
    pub range: Range<u64>,
    /// From where it was read; `None` if it was written.
    pub reader: Option<Backtrace>,
}

/// A run of recovery whose uses of files were watched.
#[derive(Clone, Debug)]
pub struct WatchedRun {
    /// The verdict.
    pub verdict: Verdict,
    /// The output of each command, except the content that a dump prints.
    pub outputs: Vec<String>,
    /// What was read and written of the files of the tree, in this order.
    pub uses: Vec<FileUse>,
}
