//! Enters namespaces, so that recovery is isolated from the rest of the system.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::exit;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};

use crate::message::IsolationLevel;
use crate::zygote::step::StepError;
use crate::zygote::system::{self, Waited};

/// Signals from the terminal are for the oracle, which decides what they mean for its zygotes.
pub(crate) fn leave_the_terminal() {
    let _ = rustix::process::setsid();
    system::close_all_on_exec();
    system::forbid_core_dumps();
    system::fix_addresses();
}

/// The process that started this one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Host {
    process: i32,
    group: i32,
}

impl Host {
    /// To be called before namespaces are entered, in which it has no number.
    pub(crate) fn current() -> Self {
        let parent = rustix::process::getppid();
        let process = parent.map_or(0, |it| it.as_raw_nonzero().get());
        Self {
            process,
            group: system::process_group(process),
        }
    }

    /// The processes that commands must not signal and, as negative numbers, process groups.
    pub(crate) fn supervisors(self, level: IsolationLevel) -> Vec<i32> {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        match level {
            // Others are not visible.
            IsolationLevel::Full => vec![own],
            IsolationLevel::Mounts | IsolationLevel::None => {
                let mut all = vec![own, -own, self.process, -self.group];
                // 0 stands for the own group of a command.
                all.retain(|it| *it != 0);
                all
            }
        }
    }
}

/// Isolates this process as far as the level says. With a process namespace, this function returns in the first
/// process of the namespace; the process that called it only waits for that one.
pub(crate) fn enter(
    level: IsolationLevel,
    socket: UnixStream,
) -> Result<UnixStream, (UnixStream, StepError)> {
    let result = match level {
        IsolationLevel::None => adopt(),
        IsolationLevel::Mounts => own_mounts(0).and_then(|()| adopt()),
        IsolationLevel::Full => {
            own_mounts(libc::CLONE_NEWPID).and_then(|()| match system::fork() {
                Ok(None) => own_processes(),
                Ok(Some(child)) => wait_for(child, &socket),
                Err(error) => Err(StepError::new("fork", error)),
            })
        }
    };
    match result {
        Ok(()) => Ok(socket),
        Err(error) => Err((socket, error)),
    }
}

fn adopt() -> Result<(), StepError> {
    system::adopt_orphans().map_err(|error| StepError::new("adopt orphans", error))
}

/// Enters a mount namespace, and more by flags. A user who may not create one directly may create one in a user
/// namespace, in which the user stays the same.
fn own_mounts(flags: libc::c_int) -> Result<(), StepError> {
    let flags = flags | libc::CLONE_NEWNS;
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    if !user.is_root() || system::unshare(flags).is_err() {
        system::unshare(flags | libc::CLONE_NEWUSER)
            .map_err(|error| StepError::new("create namespaces", error))?;
        let map = |file: &str, text: String| {
            fs::write(file, text).map_err(|error| StepError::new(format!("write {file}"), error))
        };
        map("/proc/self/setgroups", "deny".into())?;
        map(
            "/proc/self/uid_map",
            format!("{user} {user} 1", user = user.as_raw()),
        )?;
        map(
            "/proc/self/gid_map",
            format!("{group} {group} 1", group = group.as_raw()),
        )?;
    }
    // Nothing that is mounted from here on is visible outside.
    mount_change(
        "/",
        MountPropagationFlags::REC | MountPropagationFlags::PRIVATE,
    )
    .map_err(|error| StepError::new("make mounts private", error))
}

/// Runs in the first process of the namespace.
fn own_processes() -> Result<(), StepError> {
    let failed = |error| StepError::new("set the signal for the death of the parent", error);
    system::die_with_parent().map_err(failed)?;
    // Otherwise the process numbers in /proc would be those of the namespace outside.
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount(c"proc", c"/proc", c"proc", flags, None)
        .map_err(|error| StepError::new("mount /proc", error))
}

/// Waits for the first process of the namespace, from outside, and ends as it does.
fn wait_for(child: i32, socket: &UnixStream) -> ! {
    // Only the first process keeps the socket, so that the oracle sees when it ends.
    system::close_number(socket.as_raw_fd());
    loop {
        match system::wait(child, true) {
            Ok(Waited::Child(_, status)) if libc::WIFEXITED(status) => {
                exit(libc::WEXITSTATUS(status))
            }
            Ok(Waited::Nothing) => {}
            Ok(Waited::Child(..) | Waited::NoChildren) | Err(_) => exit(1),
        }
    }
}
