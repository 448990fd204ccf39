//! Kills the recoveries of a slot from another thread.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Kills the processes of one [`Slot`](crate::Slot), from any thread.
///
/// The handle refers to the process that starts recoveries, not to its number: after the slot is
/// dropped it does nothing, whichever process has that number then.
#[derive(Clone, Debug)]
pub struct KillHandle(Arc<Mutex<Target>>);

#[derive(Debug)]
struct Target {
    zygote: OwnedFd,
    is_killed: bool,
}

impl KillHandle {
    /// A handle to a child that was not yet waited for, so that its number is still its own.
    pub(super) fn of(zygote: &Child) -> io::Result<Self> {
        Ok(Self(Arc::new(Mutex::new(Target {
            zygote: descriptor_of(zygote)?,
            is_killed: false,
        }))))
    }

    /// Kills the process that starts recoveries and, with it, everything that it started. A run in
    /// progress, and every later one, fails with [`OracleError::ZygoteDied`](crate::OracleError::ZygoteDied).
    pub fn kill(&self) {
        let mut target = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        target.is_killed = true;
        // An error means that the process has already ended.
        let _ = pidfd_send_signal(&target.zygote, Signal::KILL);
    }

    /// Whether the slot is not to be used any more.
    pub(super) fn is_killed(&self) -> bool {
        let target = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        target.is_killed
    }

    /// Refers to a child that takes the place of one that has died. It is killed at once if the other was.
    pub(super) fn replace(&self, zygote: &Child) -> io::Result<()> {
        let mut target = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        target.zygote = descriptor_of(zygote)?;
        if target.is_killed {
            let _ = pidfd_send_signal(&target.zygote, Signal::KILL);
        }
        Ok(())
    }
}

fn descriptor_of(zygote: &Child) -> io::Result<OwnedFd> {
    Ok(pidfd_open(Pid::from_child(zygote), PidfdFlags::empty())?)
}
