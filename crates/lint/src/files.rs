//! The lint of ordinary files: patterns of misuse of write, fsync and rename that the operations show without any crash.
//!
//! [`lint_files`] passes over operations once, forwards; [`lint_trace`] takes them from a trace. What is durable is decided by the frontier of the model, under the
//! rules of a file system; what is redundant, under those of all. `docs/reference/findings/` says for each code how it is decided.
//!
//! A hit that is not confirmed is a candidate: the pattern is there, and only a crash can tell whether recovery gets along with it.

mod pass;

use powerfail_finding::{Code, Role};
use powerfail_model::files::{ByteRange, Entry, FileSystem, NodeId, Operation, OperationIndex};
use powerfail_trace::StackId;

pub use pass::{lint_files, lint_trace};

/// What the pass is told.
#[derive(Clone, Copy, Debug)]
pub struct FileStep<'a> {
    /// Its place; indexes grow from step to step but need not be dense.
    pub index: OperationIndex,
    /// From where it was called.
    pub stack: StackId,
    /// What happened.
    pub event: FileEvent<'a>,
}

/// What happened to the files of a tree.
#[derive(Clone, Copy, Debug)]
pub enum FileEvent<'a> {
    /// An operation succeeded.
    Operation(&'a Operation),
    /// The program said that everything so far is done.
    Acknowledged,
    /// A sync of a file returned an error that says that data may be lost: not `EINTR`, not `EINVAL`.
    SyncFailed(NodeId),
    /// A rename or a link to this entry failed because it would cross file systems.
    CrossedDevices(&'a Entry),
}

/// What the pass assumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLintOptions {
    /// Under whose rules something is durable.
    pub file_system: FileSystem,
    /// Whether the end of the run is an acknowledgement. What is found there is a candidate if there was no other.
    pub end_acknowledges: bool,
}

impl Default for FileLintOptions {
    fn default() -> Self {
        Self {
            file_system: FileSystem::default(),
            end_acknowledges: true,
        }
    }
}

/// One distinct bug: a kind of finding at certain places in the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileHit {
    /// What it is.
    pub code: Code,
    /// The operations that have a part in it, at its first occurrence. What is lost or useless comes first.
    pub sites: Vec<FileSite>,
    /// How often it was seen.
    pub count: u64,
    /// Of a sync: how often its call stack synced at all.
    pub of: Option<u64>,
    /// Whether the operations alone prove it. Otherwise it is a candidate, and a crash has to show it.
    pub confirmed: bool,
    /// The sync that is missing: of a file or a directory, before this operation or at the end.
    pub missing_sync: Option<MissingSync>,
    /// What a useless sync of a range may have been meant for.
    pub beside: Option<DataBeside>,
}

/// A sync of a range makes nothing durable, and data of its file that is not durable lies outside of the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataBeside {
    /// The file.
    pub node: NodeId,
    /// The range that is synced.
    pub range: ByteRange,
}

/// An operation that has a part in a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileSite {
    /// Its part.
    pub role: Role,
    /// The operation.
    pub index: OperationIndex,
    /// From where it was called.
    pub stack: StackId,
}

/// A sync that would have prevented a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingSync {
    /// The file or directory to sync.
    pub node: NodeId,
    /// Before which operation; `None` at the end.
    pub before: Option<OperationIndex>,
}
