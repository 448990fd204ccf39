//! Before which events the power may fail.

use powerfail_model::{Event, StoreKind};

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
}

impl Granularity {
    /// What `event` is to this granularity, if the power may fail just before it.
    pub const fn trigger(self, event: &Event<'_>) -> Option<Trigger> {
        let (trigger, is_flush, is_fence, is_store) = match event {
            Event::Store {
                kind: StoreKind::Locked,
                ..
            } => (Trigger::LockedStore, false, true, true),
            Event::Store { .. } => (Trigger::Store, false, false, true),
            Event::Flush { .. } => (Trigger::Flush, true, false, false),
            Event::Fence(_) => (Trigger::Fence, false, true, false),
            Event::Sync { .. } => (Trigger::Sync, true, true, false),
            Event::Resize { .. } => (Trigger::Resize, false, false, true),
        };
        let wanted = match self {
            Self::Flush => is_flush,
            Self::Fence => is_fence,
            Self::FlushAndFence => is_flush || is_fence,
            Self::Store => is_store,
            Self::All => true,
        };
        if wanted { Some(trigger) } else { None }
    }
}
