//! What the confinement of a command denied.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::message;

/// An access that a command tried and that its confinement denied.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DeniedAccess {
    /// To create, change or remove this file.
    Write(#[serde(with = "message::path")] PathBuf),
    /// To mount or unmount something here.
    Mount(#[serde(with = "message::path")] PathBuf),
    /// To reach another machine.
    Network,
}

impl DeniedAccess {
    /// The path that was to be written.
    pub fn written(&self) -> Option<&Path> {
        match self {
            Self::Write(path) => Some(path),
            Self::Mount(_) | Self::Network => None,
        }
    }
}

impl fmt::Display for DeniedAccess {
    /// As the end of a sentence: `writing /etc/store.conf`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(path) => write!(formatter, "writing {}", path.display()),
            Self::Mount(path) => write!(formatter, "changing the mount {}", path.display()),
            Self::Network => formatter.write_str("the network"),
        }
    }
}
