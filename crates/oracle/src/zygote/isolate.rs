//! Enters namespaces.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::exit;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};

use crate::message::Level;
use crate::zygote::system::{self, Waited};

/// Signals from the terminal are for the oracle, which decides what they mean for its zygotes.
pub(crate) fn leave_the_terminal() {
    let _ = rustix::process::setsid();
    system::close_all_on_exec();
    system::forbid_core_dumps();
    system::fix_addresses();
}

/// Goes as far apart as the level says. With a namespace of processes, the caller goes on as its first
/// process, and the process that it was only waits for it.
pub(crate) fn enter(level: Level, socket: UnixStream) -> Result<UnixStream, (UnixStream, String)> {
    let result = match level {
        Level::Plain => adopt(),
        Level::Mounts => own_mounts(0).and_then(|()| adopt()),
        Level::Full => own_mounts(libc::CLONE_NEWPID).and_then(|()| match system::fork() {
            Ok(None) => own_processes(),
            Ok(Some(child)) => wait_for(child, &socket),
            Err(error) => Err(format!("fork: {error}")),
        }),
    };
    match result {
        Ok(()) => Ok(socket),
        Err(reason) => Err((socket, reason)),
    }
}

fn adopt() -> Result<(), String> {
    system::adopt_orphans().map_err(|error| format!("adopting orphans: {error}"))
}

/// A namespace of mounts, and more by flags. Who is not allowed to have one may have one in a namespace
/// of users, in which he is the same user.
fn own_mounts(flags: libc::c_int) -> Result<(), String> {
    let flags = flags | libc::CLONE_NEWNS;
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    if !user.is_root() || system::unshare(flags).is_err() {
        system::unshare(flags | libc::CLONE_NEWUSER)
            .map_err(|error| format!("namespaces: {error}"))?;
        let map = |file: &str, text: String| {
            fs::write(file, text).map_err(|error| format!("{file}: {error}"))
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
    // Nothing that is mounted from here on may be seen outside.
    mount_change(
        "/",
        MountPropagationFlags::REC | MountPropagationFlags::PRIVATE,
    )
    .map_err(|error| format!("private mounts: {error}"))
}

/// Runs in the first process of the namespace.
fn own_processes() -> Result<(), String> {
    system::die_with_parent().map_err(|error| format!("dying with the parent: {error}"))?;
    // Else process numbers in /proc would be those of the namespace outside.
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount(c"proc", c"/proc", c"proc", flags, None).map_err(|error| format!("/proc: {error}"))
}

/// What the process outside of the namespace does for the rest of its life.
fn wait_for(child: i32, socket: &UnixStream) -> ! {
    // The first process alone holds the conversation, so that its end is seen.
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
