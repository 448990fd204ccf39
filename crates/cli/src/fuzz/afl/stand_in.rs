//! A process for afl-fuzz to kill.

use std::process::{Child, Command, Stdio};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::host::{Host, LOOK_EVERY};
use crate::interrupt;

/// See the module header. It reads from a pipe that only we can write to, so it ends with us however we end.
pub(super) struct StandIn {
    child: Child,
}

impl StandIn {
    pub(super) fn start() -> anyhow::Result<Self> {
        let child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot run cat")?;
        Ok(Self { child })
    }

    pub(super) fn id(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(i32::MAX)
    }

    pub(super) fn is_killed(&mut self) -> anyhow::Result<bool> {
        Ok(self
            .child
            .try_wait()
            .context("a process of ours")?
            .is_some())
    }

    /// Waits until it is killed; gives false if afl-fuzz has gone, or we are to go.
    pub(super) fn wait_until_killed(&self, host: &Host) -> anyhow::Result<bool> {
        let pid = Pid::from_raw(self.id()).context("a process of ours")?;
        let process = pidfd_open(pid, PidfdFlags::empty()).context("a process of ours")?;
        loop {
            let mut both = [
                PollFd::new(&process, PollFlags::IN),
                // Its other end is closed: that is always reported.
                PollFd::from_borrowed_fd(host.orders(), PollFlags::empty()),
            ];
            match poll(&mut both, Some(&LOOK_EVERY)) {
                Ok(0) | Err(Errno::INTR) if interrupt::is_interrupted() => return Ok(false),
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(error).context("cannot wait for afl-fuzz"),
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
