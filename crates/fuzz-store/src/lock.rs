//! The lock of a campaign directory: one process at a time changes it.
//!
//! The file `lock` is locked with `flock` and names the process that holds it. The kernel ties such a lock to the
//! open file description, which every forked child shares until it executes another program. That has two
//! consequences:
//!
//! 1. Dropping a [`Lock`] unlocks the file explicitly. Closing the descriptor would not be enough: a child that
//!    another thread is just starting would keep the directory locked.
//! 2. When the holder is killed, a child of it may still hold the lock. A lock whose holder is known to be dead is
//!    therefore taken over: the file is replaced, and the lock on the old file no longer means anything.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use powerfail_files::output;
use serde::{Deserialize, Serialize};

use crate::{Result, StoreError};

pub(crate) const LOCK_FILE: &str = "lock";

/// The lock of a directory, released on drop.
#[derive(Debug)]
pub struct Lock {
    directory: PathBuf,
    file: File,
}

/// Locks the directory itself while the lock file is inspected and replaced, so that two processes do not replace it
/// at once. Released on drop.
struct Turn(File);

/// A process, such that another one of the same number is not taken for it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Holder {
    pid: u32,
    /// When it was started, in the kernel's ticks.
    start: u64,
    /// The boot and the namespace in which the number is one.
    boot: String,
    namespace: String,
}

impl Lock {
    /// Takes the lock of a directory.
    ///
    /// # Errors
    /// [`StoreError::Locked`], if another process works there.
    pub fn take(directory: &Path) -> Result<Self> {
        let path = directory.join(LOCK_FILE);
        let _turn = Turn::wait(directory)?;
        let mut file = open(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                check_stale(directory, &path, &file)?;
                fs::remove_file(&path).map_err(StoreError::file("replace", &path))?;
                file = open(&path)?;
                file.try_lock().map_err(|error| match error {
                    TryLockError::WouldBlock => StoreError::Locked {
                        path: directory.to_owned(),
                        by: "another process".to_owned(),
                    },
                    TryLockError::Error(error) => StoreError::file("lock", &path)(error),
                })?;
            }
            Err(TryLockError::Error(error)) => {
                return Err(StoreError::file("lock", &path)(error));
            }
        }
        // Who has it is for people, and for taking over what a kill leaves. The lock is one without it, also
        // where the disk is full.
        if let Ok(text) = serde_json::to_string(&Holder::this_process()) {
            drop(file.set_len(0).and_then(|()| writeln!(file, "{text}")));
        }
        Ok(Self {
            directory: directory.to_owned(),
            file,
        })
    }

    /// The directory it is the lock of.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // See the module header: a child of another thread may share the descriptor. If this fails, closing it is
        // all that is left to do.
        let _ = self.file.unlock();
    }
}

impl Turn {
    fn wait(directory: &Path) -> Result<Self> {
        let file = File::open(directory).map_err(StoreError::file("open", directory))?;
        // Some file systems cannot lock a directory. There, the lock file alone has to do.
        let _ = file.lock();
        Ok(Self(file))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

fn open(path: &Path) -> Result<File> {
    output::open(path).map_err(StoreError::file("open", path))
}

/// A lock is an error, unless its process is dead.
fn check_stale(directory: &Path, path: &Path, file: &File) -> Result<()> {
    let text = io::read_to_string(file).map_err(StoreError::file("read", path))?;
    let holder: Option<Holder> = serde_json::from_str(&text).ok();
    if holder.as_ref().is_some_and(Holder::is_dead) {
        return Ok(());
    }
    let by = match holder {
        Some(holder) => format!("process {}", holder.pid),
        None => "another process".to_owned(),
    };
    Err(StoreError::Locked {
        path: directory.to_owned(),
        by,
    })
}

impl Holder {
    fn this_process() -> Self {
        let pid = std::process::id();
        Self {
            pid,
            start: start_of(pid).unwrap_or_default(),
            boot: boot(),
            namespace: namespace(),
        }
    }

    /// Whether it is certain that the process has ended.
    fn is_dead(&self) -> bool {
        self.start != 0
            && !self.boot.is_empty()
            && !self.namespace.is_empty()
            && self.boot == boot()
            && self.namespace == namespace()
            && start_of(self.pid) != Some(self.start)
    }
}

fn boot() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    boot.trim().to_owned()
}

fn namespace() -> String {
    let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    link.to_string_lossy().into_owned()
}

/// When a process was started; `None`: there is none, or it is dead and waits to be reaped.
fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may hold anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<_> = fields.split_whitespace().collect();
    match *fields.first()? {
        "Z" | "X" => None,
        _ => fields.get(19)?.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::Lock;

    /// A child between `fork` and `exec` shares the descriptor of the lock; so does this one, until its input ends.
    #[test]
    fn a_child_that_shares_the_descriptor_does_not_keep_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        let lock = Lock::take(directory.path()).unwrap();
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(lock.file.try_clone().unwrap())
            .spawn()
            .unwrap();
        assert!(Lock::take(directory.path()).is_err());
        drop(lock);
        let again = Lock::take(directory.path());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(again.is_ok(), "{again:?}");
        assert!(Lock::take(directory.path()).is_err(), "it is held again");
    }
}
