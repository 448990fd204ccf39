//! A failure point.

use powerfail_model::{Event, EventIndex, StoreKind, ThreadIndex};
use powerfail_trace::StackId;

use crate::digest::ImageDigest;

/// What happens next where the power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Trigger {
    /// A flush instruction.
    Flush,
    /// A fence instruction, or a locked operation that stores nothing in a pool.
    Fence,
    /// msync, fsync or fdatasync.
    Sync,
    /// A locked store, which is a fence first.
    LockedStore,
    /// Any other store.
    Store,
    /// A change of a pool's length.
    Resize,
    /// The program wants the power to fail here, or is about to say that no failure counts any more.
    Annotation,
    /// A call of a library that orders what it stores.
    Call,
    /// Nothing: the run has ended.
    End,
}

impl Trigger {
    /// What an event is.
    pub const fn of(event: &Event<'_>) -> Self {
        match event {
            Event::Store {
                kind: StoreKind::Locked,
                ..
            } => Self::LockedStore,
            Event::Store { .. } => Self::Store,
            Event::Flush { .. } => Self::Flush,
            Event::Fence(_) => Self::Fence,
            Event::Sync { .. } => Self::Sync,
            Event::Resize { .. } => Self::Resize,
        }
    }
}

/// A moment at which to let the power fail: just before an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailurePoint {
    /// The event that does not happen any more.
    pub at: EventIndex,
    /// The call stack of that event.
    pub stack: StackId,
    /// Its thread.
    pub thread: ThreadIndex,
    /// What kind of event it is.
    pub trigger: Trigger,
    /// How many failure points with the same call stack came before.
    pub occurrence: u64,
    /// The pools at that moment, with all stores so far, if digests were asked for. Equal digests
    /// mean equal images.
    pub digest: Option<ImageDigest>,
}
