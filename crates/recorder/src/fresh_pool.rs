//! The pool that `{pool}` stands for.
//!
//! Its directory is removed when the recording ends. If powerfail is killed, the next recording
//! removes it: a directory is locked as long as its process lives.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use crate::error::RecordError;

/// What stands for a fresh pool in an argument.
const POOL_PLACEHOLDER: &[u8] = b"{pool}";
/// How the names of its directories begin. Nobody else's do.
const PREFIX: &str = "powerfail-fresh-";

/// The arguments, with the fresh pool if they ask for one.
pub(crate) struct FreshPool {
    pub(crate) arguments: Vec<OsString>,
    directory: Option<Directory>,
}

/// A directory for a pool.
struct Directory {
    /// Removed when this is dropped.
    path: TempDir,
    /// Locked as long as this process lives.
    _lock: Option<File>,
}

impl FreshPool {
    const NAME: &str = "pool";

    /// Makes the directory of a pool if an argument asks for one.
    pub(crate) fn new(arguments: &[OsString], pm_dir: Option<&Path>) -> Result<Self, RecordError> {
        if !arguments
            .iter()
            .any(|argument| find(argument.as_bytes(), POOL_PLACEHOLDER).is_some())
        {
            return Ok(Self {
                arguments: arguments.to_vec(),
                directory: None,
            });
        }
        let default = Path::new("/dev/shm");
        let parent = match pm_dir {
            Some(parent) => parent.to_path_buf(),
            None if default.is_dir() => default.to_path_buf(),
            None => std::env::temp_dir(),
        };
        let parent = std::path::absolute(&parent).unwrap_or(parent);
        let directory = Directory::new(&parent)
            .map_err(|error| RecordError::system("make a directory for the pool", error))?;
        let path = directory.path.path().join(Self::NAME);
        let arguments = arguments
            .iter()
            .map(|argument| substitute(argument, path.as_os_str()))
            .collect();
        Ok(Self {
            arguments,
            directory: Some(directory),
        })
    }

    /// Where the pool will be.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        let directory = self.directory.as_ref()?;
        Some(directory.path.path().join(Self::NAME))
    }
}

impl Directory {
    /// Makes one, and removes those of processes that were killed.
    fn new(parent: &Path) -> io::Result<Self> {
        remove_left(parent);
        loop {
            let path = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
            if let Some(directory) = Self::keep(path) {
                return Ok(directory);
            }
        }
    }

    /// Locks a directory that was just made. None if somebody took it for one that was left before it was
    /// locked. (A lock of the parent would prevent that, but whoever else has that locked would hold up
    /// all recordings.)
    fn keep(path: TempDir) -> Option<Self> {
        let lock = File::open(path.path()).ok();
        let lock = lock.filter(|lock| flock(lock, FlockOperation::LockExclusive).is_ok());
        path.path().is_dir().then(|| Self { path, _lock: lock })
    }
}

/// Removes the directories that nobody has locked. One that cannot be removed stays.
fn remove_left(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let is_ours = entry.file_name().as_bytes().starts_with(PREFIX.as_bytes())
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
            && entry
                .metadata()
                .is_ok_and(|metadata| metadata.uid() == rustix::process::getuid().as_raw());
        let is_left = |lock: File| flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        if is_ours && File::open(entry.path()).is_ok_and(is_left) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn find(text: &[u8], pattern: &[u8]) -> Option<usize> {
    text.windows(pattern.len())
        .position(|window| window == pattern)
}

fn substitute(argument: &OsStr, path: &OsStr) -> OsString {
    let mut rest = argument.as_bytes();
    let mut result = Vec::new();
    while let Some(at) = find(rest, POOL_PLACEHOLDER) {
        result.extend_from_slice(&rest[..at]);
        result.extend_from_slice(path.as_bytes());
        rest = &rest[at + POOL_PLACEHOLDER.len()..];
    }
    result.extend_from_slice(rest);
    OsString::from_vec(result)
}

#[cfg(test)]
mod tests {
    use super::{Directory, File, FlockOperation, PREFIX, flock, remove_left, substitute};

    #[test]
    fn placeholders() {
        assert_eq!(
            substitute("--a={pool}:{pool}".as_ref(), "/x".as_ref()),
            "--a=/x:/x"
        );
        assert_eq!(substitute("{poo}".as_ref(), "/x".as_ref()), "{poo}");
    }

    #[test]
    fn only_what_was_left_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let left = parent.path().join(format!("{PREFIX}left"));
        std::fs::create_dir(&left).unwrap();
        std::fs::write(left.join("pool"), "x").unwrap();
        let other = parent.path().join("powerfail-mine");
        std::fs::create_dir(&other).unwrap();
        let one = Directory::new(parent.path()).unwrap();
        assert!(!left.exists() && other.exists());
        let two = Directory::new(parent.path()).unwrap();
        assert!(one.path.path().exists() && two.path.path().exists());
    }

    #[test]
    fn a_parent_that_somebody_has_locked_is_no_obstacle() {
        let parent = tempfile::tempdir().unwrap();
        let lock = File::open(parent.path()).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        assert!(Directory::new(parent.path()).is_ok());
    }

    #[test]
    fn a_directory_that_was_taken_for_a_left_one_is_not_kept() {
        let parent = tempfile::tempdir().unwrap();
        let fresh = || {
            let mut builder = tempfile::Builder::new();
            builder.prefix(PREFIX).tempdir_in(parent.path()).unwrap()
        };
        let taken = fresh();
        remove_left(parent.path());
        assert!(Directory::keep(taken).is_none());
        let kept = Directory::keep(fresh()).unwrap();
        remove_left(parent.path());
        assert!(kept.path.path().exists());
    }

    /// Each makes directories while the others look for ones that were left.
    #[test]
    fn many_at_once_do_not_take_each_other_for_left() {
        let parent = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let directory = Directory::new(parent.path()).unwrap();
                        std::fs::write(directory.path.path().join("pool"), "x").unwrap();
                    }
                });
            }
        });
    }
}
