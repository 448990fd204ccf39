//! Before which events the power may fail.

use powerfail_model::{Event, FenceKind, FlushKind, StoreKind};

use crate::point::Trigger;

/// Before which events the power may fail, always provided that the pools were changed since the
/// last failure point.
///
/// A locked store is a fence and then a store. A sync is flush and fence in one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Granularity {
    /// Before each flush that follows a store.
    Flush,
    /// Before each fence that follows a store.
    Fence,
    /// Before each flush and each fence that follows a store.
    #[default]
    FlushAndFence,
    /// Before each store (and each change of a pool's length) that follows another one: finds what
    /// goes wrong between two stores under one flush.
    Store,
    /// All of these.
    All,
    /// Before each operation of one kind that follows a store.
    Only(OperationKind),
}

/// A kind of operation before which the power may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationKind {
    /// A flush by this instruction.
    Flush(FlushKind),
    /// A fence by this instruction; not a locked operation.
    Fence(FenceKind),
    /// A locked operation, whether or not it stores in a pool.
    Locked,
    /// msync, fsync or fdatasync.
    Sync,
}

impl OperationKind {
    fn is(self, event: &Event<'_>) -> bool {
        match (self, event) {
            (Self::Flush(wanted), Event::Flush { kind, .. }) => wanted == *kind,
            (Self::Fence(wanted), Event::Fence(kind)) => wanted == *kind,
            (Self::Locked, Event::Fence(FenceKind::Locked)) | (Self::Sync, Event::Sync { .. }) => {
                true
            }
            (Self::Locked, Event::Store { kind, .. }) => *kind == StoreKind::Locked,
            _ => false,
        }
    }
}

impl Granularity {
    /// What `event` is to this granularity, if the power may fail just before it.
    pub fn trigger(self, event: &Event<'_>) -> Option<Trigger> {
        let trigger = Trigger::of(event);
        let (is_flush, is_fence, is_store) = match trigger {
            Trigger::LockedStore => (false, true, true),
            Trigger::Store | Trigger::Resize => (false, false, true),
            Trigger::Flush => (true, false, false),
            Trigger::Fence => (false, true, false),
            Trigger::Sync => (true, true, false),
            Trigger::Annotation | Trigger::Call | Trigger::End => (false, false, false),
        };
        let wanted = match self {
            Self::Flush => is_flush,
            Self::Fence => is_fence,
            Self::FlushAndFence => is_flush || is_fence,
            Self::Store => is_store,
            Self::All => true,
            Self::Only(operation) => operation.is(event),
        };
        if wanted { Some(trigger) } else { None }
    }
}
