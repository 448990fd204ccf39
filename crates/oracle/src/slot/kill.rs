//! Kills the recoveries of a slot from another thread.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::Arc;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Kills the processes of one [`Slot`](crate::Slot), from any thread.
///
/// The handle refers to the process that starts recoveries, not to its number: after the slot is
/// dropped it does nothing, whichever process has that number then.
#[derive(Clone, Debug)]
pub struct KillHandle(Arc<OwnedFd>);

impl KillHandle {
    /// A handle to a child that was not yet waited for, so that its number is still its own.
    pub(super) fn of(zygote: &Child) -> io::Result<Self> {
        let pid = Pid::from_child(zygote);
        let descriptor = pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Self(Arc::new(descriptor)))
    }

    /// Kills the process that starts recoveries and, with it, everything that it started. A run in
    /// progress, and every later one, fails with [`OracleError::ZygoteDied`](crate::OracleError::ZygoteDied).
    pub fn kill(&self) {
        // An error means that the process has already ended.
        let _ = pidfd_send_signal(&*self.0, Signal::KILL);
    }
}
