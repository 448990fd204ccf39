//! What may survive a crash.

mod event;
mod ids;

pub use event::{Event, FenceKind, FlushKind, Step, StoreKind};
pub use ids::{EventIndex, LineId, LineIndex, Place, PoolIndex, PoolOffset, ThreadIndex};
