//! Incomplete ends of files that a kill has left.

use std::fmt;
use std::path::{Path, PathBuf};

/// An incomplete end that was cut off. Nothing of it had been reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The file.
    pub path: PathBuf,
    /// How many bytes are lost.
    pub lost_bytes: u64,
}

impl Cut {
    /// Adds a cut to a list, if something was cut off.
    pub(crate) fn note(cuts: &mut Vec<Self>, path: &Path, lost_bytes: u64) {
        if lost_bytes > 0 {
            cuts.push(Self {
                path: path.to_owned(),
                lost_bytes,
            });
        }
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, lost_bytes } = self;
        let path = path.display();
        write!(
            out,
            "{path}: cut off {lost_bytes} bytes that were not completely written"
        )
    }
}
