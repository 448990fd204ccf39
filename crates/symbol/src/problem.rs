//! What can be wrong with the files of modules, and why a frame has no source.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

use crate::BuildId;

/// Something about a module's files that costs source lines, or makes them less sure.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Problem {
    /// The file does not exist or cannot be read.
    #[error("{path}: cannot be read: {kind}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        kind: io::ErrorKind,
    },
    /// The path does not name a regular file.
    #[error("{path}: not a regular file")]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file does not begin as an ELF file does.
    #[error("{path}: not an ELF file")]
    NotElf {
        /// The file.
        path: PathBuf,
    },
    /// The file is for a machine that powerfail does not record on.
    #[error("{path}: a {what} file, not a 64-bit little-endian one")]
    OtherArchitecture {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        what: &'static str,
    },
    /// The file ends before something that it says it contains.
    #[error("{path}: cut: {len_bytes} bytes long, but {needed_bytes} are needed")]
    Truncated {
        /// The file.
        path: PathBuf,
        /// How long it would have to be.
        needed_bytes: u64,
        /// How long it is.
        len_bytes: u64,
    },
    /// The file contradicts itself.
    #[error("{path}: damaged: {what}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The file asks for more memory than [`MAX_DEBUG_BYTES`](crate::MAX_DEBUG_BYTES).
    #[error("{path}: too large: {needed_bytes} bytes of debug information")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// How much it asks for.
        needed_bytes: u64,
    },
    /// The module's file is not the one that was recorded. It is not used.
    #[error("{path}: was rebuilt since the recording (build-id {recorded} then, {found} now)")]
    Rebuilt {
        /// The file.
        path: PathBuf,
        /// The build-id in the trace.
        recorded: BuildId,
        /// The build-id of the file.
        found: BuildId,
    },
    /// Neither the trace nor the file has a build-id: the file is used, but if it was rebuilt since the
    /// recording, its lines are wrong, and that cannot be detected.
    #[error("{path}: has no build-id, so a rebuilt file would go unnoticed")]
    Unverified {
        /// The file.
        path: PathBuf,
    },
    /// A separate debug file belongs to another build. It is not used.
    #[error("{path}: belongs to another build (build-id {found}, not {wanted})")]
    OtherBuild {
        /// The debug file.
        path: PathBuf,
        /// The build-id that it should have.
        wanted: BuildId,
        /// The build-id that it has.
        found: BuildId,
    },
    /// A separate debug file does not have the checksum that the module names. It is not used.
    #[error("{path}: checksum {found:08x}, but the module asks for {wanted:08x}")]
    OtherChecksum {
        /// The debug file.
        path: PathBuf,
        /// The checksum in the module.
        wanted: u32,
        /// The checksum of the file.
        found: u32,
    },
    /// The debug information continues in another file, which is missing: some names and inlined calls
    /// are lost.
    #[error("{path}: its debug information continues in {wanted}, which cannot be used")]
    Incomplete {
        /// The file with the first part.
        path: PathBuf,
        /// The file with the rest.
        wanted: PathBuf,
    },
    /// The module has no debug information, and no separate debug file was found.
    #[error("{path}: has no debug information, and no separate debug file was found")]
    NoDebugInfo {
        /// The file.
        path: PathBuf,
    },
}

impl Problem {
    /// Whether source lines are there in spite of it.
    pub(crate) fn leaves_lines(&self) -> bool {
        matches!(self, Self::Unverified { .. } | Self::Incomplete { .. })
    }
}

/// Why a frame has no source.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NoSource {
    /// The frame is in no module: generated code, or the kernel's.
    #[error("the address is in no module")]
    NoModule,
    /// The trace does not define the frame's module.
    #[error("the trace does not define the module")]
    UnknownModule,
    /// The module's files give no source at all.
    #[error(transparent)]
    Module(Arc<Problem>),
    /// The module has debug information, which says nothing about this address.
    #[error("the debug information says nothing about this address")]
    NotCovered,
}
