//! One process at a time works on a directory.
//!
//! `lock` is locked with `flock`, which ends with the process, however it ends, and says who has it. A process
//! that was forked from the one that had the lock keeps it when that one is killed. So a lock whose process is
//! known to be dead is taken over: the file is replaced, and whoever holds the old one holds nothing.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{CorpusError, Result};

pub(crate) const LOCK_FILE: &str = "lock";

/// The lock of a directory, until it is dropped.
#[derive(Debug)]
pub struct Lock {
    directory: PathBuf,
    _file: File,
}

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
    /// [`CorpusError::Locked`], if another process works there.
    pub fn take(directory: &Path) -> Result<Self> {
        let path = directory.join(LOCK_FILE);
        // One at a time looks at the file, so that two do not replace it at once. File systems that cannot
        // lock a directory have nothing but the file.
        let turn = File::open(directory).map_err(CorpusError::file("open", directory))?;
        drop(turn.lock());
        let mut file = open(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                check_stale(directory, &path, &file)?;
                fs::remove_file(&path).map_err(CorpusError::file("replace", &path))?;
                file = open(&path)?;
                file.try_lock().map_err(|error| match error {
                    TryLockError::WouldBlock => CorpusError::Locked {
                        path: directory.to_owned(),
                        by: "another process".to_owned(),
                    },
                    TryLockError::Error(error) => CorpusError::file("lock", &path)(error),
                })?;
            }
            Err(TryLockError::Error(error)) => {
                return Err(CorpusError::file("lock", &path)(error));
            }
        }
        // Who has it is for people, and for taking over what a kill leaves. The lock is one without it, also
        // where the disk is full.
        if let Ok(text) = serde_json::to_string(&Holder::this_process()) {
            drop(file.set_len(0).and_then(|()| writeln!(file, "{text}")));
        }
        Ok(Self {
            directory: directory.to_owned(),
            _file: file,
        })
    }

    /// The directory it is the lock of.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

fn open(path: &Path) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(CorpusError::file("open", path))
}

/// A lock is an error, unless its process is dead.
fn check_stale(directory: &Path, path: &Path, file: &File) -> Result<()> {
    let text = io::read_to_string(file).map_err(CorpusError::file("read", path))?;
    let holder: Option<Holder> = serde_json::from_str(&text).ok();
    if holder.as_ref().is_some_and(Holder::is_dead) {
        return Ok(());
    }
    let by = match holder {
        Some(holder) => format!("process {}", holder.pid),
        None => "another process".to_owned(),
    };
    Err(CorpusError::Locked {
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
