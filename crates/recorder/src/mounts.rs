//! Shows a target copies of trees at their own paths, and lets it write nowhere else: in a mount namespace of its own.
//!
//! A tree that does not exist any more, such as that of `{dir}`, needs a directory to be mounted over. It is made before
//! the target starts, empty, and removed afterwards.
//!
//! # Safety
//!
//! [`Steps::enter`] runs between fork and exec: it makes system calls with strings that were made before, allocates
//! nothing and takes no lock.

#![allow(unsafe_code, reason = "makes system calls between fork and exec")]

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};

use crate::error::RecordError;
use crate::options::PrivateTrees;

/// What is mounted.
#[derive(Debug)]
struct Plan {
    /// Directories, and where they are shown.
    shown: Vec<(CString, CString)>,
    /// What else may be written to; `None` is everything.
    writable: Option<Vec<CString>>,
    /// The directory in which the target starts: entered again, because a mount may lie on it now.
    current: CString,
}

/// The mounts of a target, and the directories that were made for them.
#[derive(Debug)]
pub(crate) struct Mounts {
    plan: Arc<Plan>,
    /// Removed in this order when this is dropped. Locked, so that no other powerfail takes them for a leftover.
    made: Vec<(PathBuf, Option<File>)>,
}

/// What the target does before it is executed.
pub(crate) struct Steps(Arc<Plan>);

fn c_string(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

impl Mounts {
    /// Prepares mounts, if there are any.
    pub(crate) fn of(trees: Option<&PrivateTrees>) -> Result<Option<Self>, RecordError> {
        let failed = |error| RecordError::system("prepare the mounts of the target", error);
        trees.map(|it| Self::new(it).map_err(failed)).transpose()
    }

    fn new(trees: &PrivateTrees) -> io::Result<Self> {
        let mut shown = Vec::new();
        for (original, private) in &trees.trees {
            shown.push((c_string(private)?, c_string(original)?));
        }
        let writable = trees.writable.as_ref().map(|paths| {
            let paths = paths.iter().filter(|it| it.exists());
            paths.map(|it| c_string(it)).collect::<io::Result<_>>()
        });
        let plan = Plan {
            shown,
            writable: writable.transpose()?,
            current: c_string(&std::env::current_dir()?)?,
        };
        let mut mounts = Self {
            plan: Arc::new(plan),
            made: Vec::new(),
        };
        for (original, _) in &trees.trees {
            mounts.make(original)?;
        }
        Ok(mounts)
    }

    /// Makes a directory and those above it, as far as they do not exist.
    fn make(&mut self, path: &Path) -> io::Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            self.make(parent)?;
        }
        fs::create_dir(path)?;
        let lock = File::open(path).ok();
        if let Some(lock) = &lock {
            let _ = flock(lock, FlockOperation::NonBlockingLockExclusive);
        }
        self.made.insert(0, (path.to_path_buf(), lock));
        Ok(())
    }

    pub(crate) fn steps(&self) -> Steps {
        Steps(Arc::clone(&self.plan))
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        for (path, _) in &self.made {
            // It is empty: the target has written to what was mounted over it.
            let _ = fs::remove_dir(path);
        }
    }
}

impl Steps {
    /// Enters the namespace and mounts. In the child, between fork and exec.
    pub(crate) fn enter(&self) -> io::Result<()> {
        // SAFETY: a plain system call without pointers.
        checked(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
        mount(None, c"/", libc::MS_REC | libc::MS_PRIVATE)?;
        for (private, original) in &self.0.shown {
            mount(Some(private), original, libc::MS_BIND)?;
        }
        if let Some(writable) = &self.0.writable {
            for path in writable {
                mount(Some(path), path, libc::MS_BIND | libc::MS_REC)?;
            }
            set_read_only(c"/", true)?;
            // The runtime patches the target through its own `mem`.
            set_read_only(c"/proc", false)?;
            let trees = self.0.shown.iter().map(|(_, original)| original);
            for path in trees.chain(writable) {
                set_read_only(path, false)?;
            }
        }
        // SAFETY: a C string that lives as long as the plan.
        checked(unsafe { libc::chdir(self.0.current.as_ptr()) })
    }
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn mount(source: Option<&CStr>, at: &CStr, flags: libc::c_ulong) -> io::Result<()> {
    let source = source.map_or(ptr::null(), CStr::as_ptr);
    // SAFETY: C strings that live during the call; no type and no data are needed with these flags.
    checked(unsafe { libc::mount(source, at.as_ptr(), ptr::null(), flags, ptr::null()) })
}

/// Makes a mount and those below it read-only, or writable.
fn set_read_only(at: &CStr, is_set: bool) -> io::Result<()> {
    const RDONLY: u64 = 1;
    let (set, clear) = if is_set { (RDONLY, 0) } else { (0, RDONLY) };
    // The structure that `mount_setattr` takes: what to set, what to clear, propagation, user namespace.
    let attributes: [u64; 4] = [set, clear, 0, 0];
    // SAFETY: a C string and an array on this stack, with its length.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            at.as_ptr(),
            libc::AT_RECURSIVE,
            attributes.as_ptr(),
            size_of_val(&attributes),
        )
    };
    checked(result as libc::c_int)
}
