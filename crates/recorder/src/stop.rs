//! A handle that stops the target of a recording.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Stops the target of a recording from another thread, for a target that does not end by itself.
#[derive(Clone, Debug, Default)]
pub struct StopHandle(Arc<AtomicBool>);

impl StopHandle {
    /// Lets the recorder send SIGTERM to the target. Nothing happens if the target has ended.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether a stop was requested since the last call.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}
