//! The process that afl-fuzz kills when an execution takes too long.

use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::AflError;
use super::host::{Host, INTERRUPT_CHECK};

/// A process that waits. It reads from a pipe whose only writer is this process, so it ends with this process.
pub(super) struct StandIn {
    child: Child,
}

impl StandIn {
    pub(super) fn start() -> Result<Self, AflError> {
        let child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|source| AflError::System {
                what: "run cat",
                source,
            })?;
        Ok(Self { child })
    }

    pub(super) fn id(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(i32::MAX)
    }

    pub(super) fn is_killed(&mut self) -> Result<bool, AflError> {
        let status = self.child.try_wait().map_err(|source| AflError::System {
            what: "wait for a process",
            source,
        })?;
        Ok(status.is_some())
    }

    /// Waits until it is killed; returns false if afl-fuzz has gone or this process is interrupted.
    pub(super) fn wait_until_killed(&self, host: &Host) -> Result<bool, AflError> {
        let failed = AflError::system("wait for a process");
        let pid = Pid::from_raw(self.id()).ok_or_else(|| failed(Errno::SRCH))?;
        let process = pidfd_open(pid, PidfdFlags::empty()).map_err(&failed)?;
        loop {
            let mut both = [
                PollFd::new(&process, PollFlags::IN),
                // A closed other end is always reported.
                PollFd::from_borrowed_fd(host.orders(), PollFlags::empty()),
            ];
            match poll(&mut both, Some(&INTERRUPT_CHECK)) {
                Ok(0) | Err(Errno::INTR) if host.is_interrupted() => return Ok(false),
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(failed(error)),
            }
            if both[0].revents().contains(PollFlags::IN) {
                return Ok(true);
            }
            if !both[1].revents().is_empty() {
                return Ok(false);
            }
        }
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
