//! The kinds of records, by name: for counting, filtering and printing.

use powerfail_model::{Event, FenceKind, FlushKind, StoreKind};

use crate::file::FileOperation;
use crate::record::{Body, MarkKind};

/// What kind of record it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordKind {
    /// An ordinary store.
    Store,
    /// A non-temporal store.
    NonTemporalStore,
    /// A locked operation that wrote to a pool.
    LockedStore,
    /// A store by the kernel.
    SystemStore,
    /// A flush with clflush.
    Clflush,
    /// A flush with clflushopt.
    Clflushopt,
    /// A flush with clwb.
    Clwb,
    /// A flush of an address in no pool.
    VolatileFlush,
    /// A store fence.
    Sfence,
    /// A full fence.
    Mfence,
    /// A locked operation that wrote to no pool.
    LockedFence,
    /// msync, fsync or fdatasync.
    Sync,
    /// A change of a pool's length.
    Resize,
    /// An output of the program.
    Output,
    /// An annotation in the program.
    Annotation,
    /// An operation of the workload begins.
    OperationBegin,
    /// An operation of the workload is complete.
    OperationEnd,
    /// A file, a directory or a symbolic link was made.
    Create,
    /// A file got one more name.
    Link,
    /// A name was removed.
    Unlink,
    /// A name was changed, or two were swapped.
    Rename,
    /// A system call wrote to a file.
    Write,
    /// A file was cut or extended.
    Truncate,
    /// A range of a file was allocated, zeroed, removed or inserted.
    Allocate,
    /// A file or a directory, or all of them, were made durable.
    FileSync,
    /// A file that was open for writing was closed.
    Close,
    /// A call on files failed in a way that matters: a sync, or a rename to another file system.
    FailedCall,
    /// A file was mapped as a pool.
    Mapped,
    /// A thread began.
    ThreadStart,
    /// A thread ended.
    ThreadEnd,
}

/// Kinds that people speak of together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordGroup {
    /// All that writes to a pool.
    Stores,
    /// All flush instructions.
    Flushes,
    /// All fences that are nothing else.
    Fences,
    /// Durability by system call.
    Syncs,
    /// What the program says, and its operations.
    Marks,
    /// Operations on files.
    Files,
    /// Beginning and end of threads, and lengths of pools.
    Lifecycle,
}

impl RecordKind {
    /// All kinds, in the order in which they are listed for people.
    pub const ALL: [Self; 30] = [
        Self::Store,
        Self::NonTemporalStore,
        Self::LockedStore,
        Self::SystemStore,
        Self::Clflush,
        Self::Clflushopt,
        Self::Clwb,
        Self::VolatileFlush,
        Self::Sfence,
        Self::Mfence,
        Self::LockedFence,
        Self::Sync,
        Self::Resize,
        Self::Output,
        Self::Annotation,
        Self::OperationBegin,
        Self::OperationEnd,
        Self::Create,
        Self::Link,
        Self::Unlink,
        Self::Rename,
        Self::Write,
        Self::Truncate,
        Self::Allocate,
        Self::FileSync,
        Self::Close,
        Self::FailedCall,
        Self::Mapped,
        Self::ThreadStart,
        Self::ThreadEnd,
    ];

    /// The kind of a record.
    pub const fn of(body: &Body<'_>) -> Self {
        match body {
            Body::Pm(Event::Store { kind, .. }) => match kind {
                StoreKind::Plain => Self::Store,
                StoreKind::NonTemporal => Self::NonTemporalStore,
                StoreKind::Locked => Self::LockedStore,
                StoreKind::System => Self::SystemStore,
            },
            Body::Pm(Event::Flush { kind, .. }) => match kind {
                FlushKind::Clflush => Self::Clflush,
                FlushKind::Clflushopt => Self::Clflushopt,
                FlushKind::Clwb => Self::Clwb,
            },
            Body::Pm(Event::Fence(kind)) => match kind {
                FenceKind::Sfence => Self::Sfence,
                FenceKind::Mfence => Self::Mfence,
                FenceKind::Locked => Self::LockedFence,
            },
            Body::Pm(Event::Sync { .. }) => Self::Sync,
            Body::Pm(Event::Resize { .. }) => Self::Resize,
            Body::VolatileFlush { .. } => Self::VolatileFlush,
            Body::Mark(mark) => match mark.kind {
                MarkKind::Output { .. } => Self::Output,
                MarkKind::Annotation(_) => Self::Annotation,
                MarkKind::OperationBegin => Self::OperationBegin,
                MarkKind::OperationEnd => Self::OperationEnd,
            },
            Body::File(operation) => match operation {
                FileOperation::Create { .. } => Self::Create,
                FileOperation::Link { .. } => Self::Link,
                FileOperation::Unlink { .. } => Self::Unlink,
                FileOperation::Rename { .. } | FileOperation::Exchange { .. } => Self::Rename,
                FileOperation::Write { .. } => Self::Write,
                FileOperation::Truncate { .. } => Self::Truncate,
                FileOperation::Change { .. } => Self::Allocate,
                FileOperation::SyncFile { .. } | FileOperation::SyncFileSystem => Self::FileSync,
                FileOperation::Close { .. } => Self::Close,
                FileOperation::FailedSync { .. } | FileOperation::CrossedDevices { .. } => {
                    Self::FailedCall
                }
            },
            Body::Mapped { .. } => Self::Mapped,
            Body::ThreadStart => Self::ThreadStart,
            Body::ThreadEnd => Self::ThreadEnd,
        }
    }

    /// Its name on the command line, in text and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::NonTemporalStore => "ntstore",
            Self::LockedStore => "locked-store",
            Self::SystemStore => "system-store",
            Self::Clflush => "clflush",
            Self::Clflushopt => "clflushopt",
            Self::Clwb => "clwb",
            Self::VolatileFlush => "volatile-flush",
            Self::Sfence => "sfence",
            Self::Mfence => "mfence",
            Self::LockedFence => "locked-fence",
            Self::Sync => "sync",
            Self::Resize => "resize",
            Self::Output => "output",
            Self::Annotation => "annotation",
            Self::OperationBegin => "operation-begin",
            Self::OperationEnd => "operation-end",
            Self::Create => "create",
            Self::Link => "link",
            Self::Unlink => "unlink",
            Self::Rename => "rename",
            Self::Write => "write",
            Self::Truncate => "truncate",
            Self::Allocate => "allocate",
            Self::FileSync => "file-sync",
            Self::Close => "close",
            Self::FailedCall => "failed-call",
            Self::Mapped => "mapped",
            Self::ThreadStart => "thread-start",
            Self::ThreadEnd => "thread-end",
        }
    }

    /// The kinds that people speak of together with it.
    pub const fn group(self) -> RecordGroup {
        match self {
            Self::Store | Self::NonTemporalStore | Self::LockedStore | Self::SystemStore => {
                RecordGroup::Stores
            }
            Self::Clflush | Self::Clflushopt | Self::Clwb | Self::VolatileFlush => {
                RecordGroup::Flushes
            }
            Self::Sfence | Self::Mfence | Self::LockedFence => RecordGroup::Fences,
            Self::Sync => RecordGroup::Syncs,
            Self::Output | Self::Annotation | Self::OperationBegin | Self::OperationEnd => {
                RecordGroup::Marks
            }
            Self::Create
            | Self::Link
            | Self::Unlink
            | Self::Rename
            | Self::Write
            | Self::Truncate
            | Self::Allocate
            | Self::FileSync
            | Self::Close
            | Self::FailedCall
            | Self::Mapped => RecordGroup::Files,
            Self::Resize | Self::ThreadStart | Self::ThreadEnd => RecordGroup::Lifecycle,
        }
    }
}

impl RecordGroup {
    /// All groups.
    pub const ALL: [Self; 7] = [
        Self::Stores,
        Self::Flushes,
        Self::Fences,
        Self::Syncs,
        Self::Marks,
        Self::Files,
        Self::Lifecycle,
    ];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stores => "stores",
            Self::Flushes => "flushes",
            Self::Fences => "fences",
            Self::Syncs => "syncs",
            Self::Marks => "marks",
            Self::Files => "files",
            Self::Lifecycle => "lifecycle",
        }
    }
}
