//! Starts the target with the runtime preloaded.
//!
//! # Safety
//!
//! The code between fork and exec uses only system calls that are safe after a fork of a process
//! with threads: it allocates nothing, takes no lock, and touches no memory but its own stack.

#![allow(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Instant;

use powerfail_protocol::shared::{
    DescriptorPath, HOST_VARIABLE, HostAddress, PMDK_HINT_ADDRESS, SHARED_FD_VARIABLE,
    SOCKET_FD_VARIABLE,
};
use rustix::process::{Pid, Resource, Signal};

use crate::error::RecordError;
use crate::inspect::Executable;
use crate::limits;
use crate::mounts::Mounts;
use crate::shared_file::SharedFile;
use crate::wait::{Exit, wait_for};

/// No randomisation, so that runs can be compared; and libraries in the middle of the address space
/// instead of at its top, so that there is room on both sides for code that is jumped to.
const LAYOUT: libc::c_int = libc::ADDR_NO_RANDOMIZE | libc::ADDR_COMPAT_LAYOUT;
/// The variable that names libraries for the loader of a dynamic program to load first.
const PRELOAD_VARIABLE: &str = "LD_PRELOAD";
/// Makes libpmem flush files that are not on DAX.
const FORCE_VARIABLE: &str = "PMEM_IS_PMEM_FORCE";
/// The same for libpmem2.
const GRANULARITY_VARIABLE: &str = "PMEM2_FORCE_GRANULARITY";
/// Makes libpmem map pools at the same address in every run.
const HINT_VARIABLE: &str = "PMEM_MMAP_HINT";

/// A started target. Killed and reaped when it is dropped before it has ended.
#[derive(Debug)]
pub(crate) struct Target {
    pid: Pid,
    pub(crate) started: Instant,
    ended: bool,
    /// The runtime: programs that the target executes load it from this process.
    _runtime: Option<OwnedFd>,
}

/// What the target inherits.
pub(crate) struct Inheritance<'a> {
    pub(crate) shared: &'a SharedFile,
    pub(crate) socket: OwnedFd,
    /// The runtime; `None` if nothing is to be preloaded.
    pub(crate) runtime: Option<OwnedFd>,
    /// Further variables of its environment.
    pub(crate) variables: Vec<(OsString, OsString)>,
    /// Its standard input; `None`: that of this process.
    pub(crate) stdin: Option<File>,
    /// Whether its output is discarded.
    pub(crate) discards_output: bool,
    /// The length of the longest file that it may write; it also dumps no core and has a session of its own.
    /// `None`: as this process.
    pub(crate) file_limit_bytes: Option<u64>,
    /// Its own mounts; `None`: those of this process.
    pub(crate) mounts: Option<&'a Mounts>,
}

/// Copies the runtime into a sealed file that a loader can open. `None` for no bytes.
pub(crate) fn runtime_file(runtime: &[u8]) -> Result<Option<OwnedFd>, RecordError> {
    if runtime.is_empty() {
        return Ok(None);
    }
    let file = powerfail_files::memory::sealed("powerfail-runtime", runtime);
    let failed = |error| RecordError::system("copy the runtime into memory", error);
    file.map(Some).map_err(failed)
}

/// Starts the target. It is killed when this thread ends.
pub(crate) fn start(
    executable: &Executable,
    command: &OsStr,
    arguments: &[OsString],
    inheritance: Inheritance<'_>,
) -> Result<Target, RecordError> {
    limits::inspect()?;
    let sources = vec![
        inheritance.shared.as_fd().as_raw_fd(),
        inheritance.socket.as_raw_fd(),
    ];
    let first = first_number(&sources);
    let numbers: Vec<(RawFd, RawFd)> = sources.into_iter().zip(first..).collect();
    let mut child = Command::new(&executable.path);
    child.arg0(command).args(arguments);
    child.env(SHARED_FD_VARIABLE, first.to_string());
    child.env(SOCKET_FD_VARIABLE, (first + 1).to_string());
    let address = host_address(inheritance.shared, Some(&inheritance.socket))?;
    child.env(HOST_VARIABLE, address.to_string());
    child.envs(
        inheritance
            .variables
            .iter()
            .map(|(name, value)| (name, value)),
    );
    if let Some(stdin) = &inheritance.stdin {
        let stdin = stdin
            .try_clone()
            .map_err(|error| RecordError::system("pass the input to the target", error))?;
        child.stdin(stdin);
    }
    if inheritance.discards_output {
        child.stdout(Stdio::null()).stderr(Stdio::null());
    }
    if let Some(runtime) = &inheritance.runtime {
        // Of this process: a target may close its descriptors before it executes another program.
        let number = runtime.as_raw_fd().cast_unsigned();
        let path = DescriptorPath(std::process::id(), number);
        let mut preload = OsString::from(path.to_string());
        if let Some(existing) =
            std::env::var_os(PRELOAD_VARIABLE).filter(|existing| !existing.is_empty())
        {
            preload.push(":");
            preload.push(existing);
        }
        child.env(PRELOAD_VARIABLE, preload);
    }
    let hint = format!("{PMDK_HINT_ADDRESS:x}");
    let of_pmdk = [
        (FORCE_VARIABLE, "1"),
        (GRANULARITY_VARIABLE, "CACHE_LINE"),
        (HINT_VARIABLE, &hint),
    ];
    for (name, value) in of_pmdk {
        if std::env::var_os(name).is_none() {
            child.env(name, value);
        }
    }
    let parent = rustix::process::getpid().as_raw_nonzero().get();
    let file_limit = inheritance.file_limit_bytes;
    let mounts = inheritance.mounts.map(Mounts::steps);
    // SAFETY: the closure keeps to what the module's header says; the numbers it uses are of
    // descriptors that `inheritance` keeps open until after the start.
    unsafe {
        child.pre_exec(move || {
            prepare(&numbers, parent)?;
            if let Some(mounts) = &mounts {
                mounts.enter()?;
            }
            file_limit.map_or(Ok(()), confine)
        });
    }
    let started = Instant::now();
    let spawned = child
        .spawn()
        .map_err(|error| RecordError::system("start the target", error))?;
    let pid = Pid::from_raw(spawned.id().cast_signed())
        .ok_or_else(|| RecordError::system("start the target", io::ErrorKind::Other))?;
    Ok(Target {
        pid,
        started,
        ended: false,
        _runtime: inheritance.runtime,
    })
}

/// Where a process finds this one. `socket` is what the target inherits.
pub(crate) fn host_address(
    shared: &SharedFile,
    socket: Option<&OwnedFd>,
) -> Result<HostAddress, RecordError> {
    let failed = |error| RecordError::system("inspect the socket for the target", error);
    let inode = match socket {
        Some(socket) => rustix::fs::fstat(socket).map_err(failed)?.st_ino,
        None => 0,
    };
    Ok(HostAddress {
        process: std::process::id(),
        shared: shared.as_fd().as_raw_fd().cast_unsigned(),
        // The kernel numbers sockets with 32 bits.
        socket_inode: inode as u32,
    })
}

/// The first of two descriptor numbers that the target would not reach by itself, none of which
/// is a source.
fn first_number(sources: &[RawFd]) -> RawFd {
    const USUAL_LIMIT: u64 = 1024;
    const ROOM: RawFd = 8;
    let limit = rustix::process::getrlimit(Resource::Nofile)
        .current
        .unwrap_or(USUAL_LIMIT)
        .min(USUAL_LIMIT);
    let mut first = RawFd::try_from(limit).unwrap_or(1024) - ROOM;
    while first > ROOM
        && sources
            .iter()
            .any(|source| (first..first + ROOM).contains(source))
    {
        first -= ROOM;
    }
    first
}

/// Runs in the child, between fork and exec.
fn prepare(numbers: &[(RawFd, RawFd)], parent: i32) -> io::Result<()> {
    for (source, number) in numbers {
        // SAFETY: plain system call on numbers; the new one does not close on exec.
        if unsafe { libc::dup2(*source, *number) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: plain system calls without pointers.
    unsafe {
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
            return Err(io::Error::last_os_error());
        }
        // The parent may have died before the line above.
        if libc::getppid() != parent {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let personality = libc::personality(0xffff_ffff);
        if personality < 0
            || libc::personality(u64::from((personality | LAYOUT).cast_unsigned())) < 0
        {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Limits a target that is repeated. Runs in the child, between fork and exec.
fn confine(file_limit_bytes: u64) -> io::Result<()> {
    // SAFETY: a plain system call without pointers.
    if unsafe { libc::setsid() } < 0 {
        return Err(io::Error::last_os_error());
    }
    lower(libc::RLIMIT_CORE, 0)?;
    // The runtime lifts the limit for files of its own.
    lower(libc::RLIMIT_FSIZE, file_limit_bytes)
}

/// Lowers a soft limit, which the target can lift again up to the hard limit.
fn lower(resource: libc::__rlimit_resource_t, limit: u64) -> io::Result<()> {
    let mut limits = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: plain system calls; the limits are on this stack.
    unsafe {
        if libc::getrlimit(resource, &raw mut limits) != 0 {
            return Err(io::Error::last_os_error());
        }
        limits.rlim_cur = limit.min(limits.rlim_max);
        if libc::setrlimit(resource, &raw const limits) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

impl Target {
    /// Its process id.
    pub(crate) fn id(&self) -> Pid {
        self.pid
    }

    /// Whether it has ended, without waiting.
    pub(crate) fn look(&mut self) -> Result<Option<Exit>, RecordError> {
        let exit = wait_for(self.pid, false)
            .map_err(|error| RecordError::system("wait for the target", error))?;
        self.ended |= exit.is_some();
        Ok(exit)
    }

    /// Sends it a signal, unless it has ended.
    pub(crate) fn signal(&self, signal: Signal) {
        if !self.ended {
            let _ = rustix::process::kill_process(self.pid, signal);
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if !self.ended {
            // Only this process reaps it, so the id is still its own.
            let _ = rustix::process::kill_process(self.pid, Signal::KILL);
            let _ = wait_for(self.pid, true);
        }
    }
}
