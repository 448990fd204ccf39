//! The pool that `{pool}` stands for, and the file that `{input}` stands for.
//!
//! Their directory is removed when the recording ends. If powerfail is killed, the next recording
//! removes it: a directory is locked as long as its process lives. A campaign names a directory, so that
//! paths are the same in all of its recordings; nothing is left in that but the directory itself.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, DirEntry, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::{FlockOperation, flock};
use rustix::io::retry_on_intr;
use tempfile::TempDir;

use crate::error::RecordError;
use crate::input::{INPUT_PLACEHOLDER, InputChannel, find, insert_words, substitute};
use crate::options::RecordOptions;

/// The placeholder of a fresh pool in an argument.
pub(crate) const POOL_PLACEHOLDER: &[u8] = b"{pool}";
/// The placeholder of its directory.
pub(crate) const DIRECTORY_PLACEHOLDER: &[u8] = b"{dir}";
/// How the names of its directories begin. No other program uses it.
const PREFIX: &str = "powerfail-fresh-";

/// The mode of directories: other users neither read pools nor put files beside them.
const OWNER_ONLY: u32 = 0o700;

/// The path that `{pool}` stands for in a recording, for other threads. It is known before the target starts.
#[derive(Clone, Debug, Default)]
pub struct FreshPath(Arc<Mutex<Option<PathBuf>>>);

impl FreshPath {
    pub(crate) fn set(&self, path: Option<&Path>) {
        if let Ok(mut known) = self.0.lock() {
            *known = path.map(Path::to_path_buf);
        }
    }

    /// A word of a command with the path in place of `{pool}`, as in the arguments of the target. The same word if the
    /// recording has no such path.
    pub fn replace(&self, word: &OsStr) -> OsString {
        match self.0.lock().as_deref() {
            Ok(Some(path)) => {
                let word = substitute(word, POOL_PLACEHOLDER, path.as_os_str());
                match path.parent() {
                    Some(parent) => substitute(&word, DIRECTORY_PLACEHOLDER, parent.as_os_str()),
                    None => word,
                }
            }
            _ => word.to_os_string(),
        }
    }
}

/// The arguments, with the paths of the fresh pool and of the input substituted.
pub(crate) struct FreshPool {
    pub(crate) arguments: Vec<OsString>,
    pool: Option<PathBuf>,
    /// The directory of pool and files.
    directory: Option<PathBuf>,
    /// Whether an argument names the directory.
    is_directory_named: bool,
    /// Removed when this is dropped.
    _place: Option<PoolDirectory>,
}

/// Where pool and input are.
enum PoolDirectory {
    /// In a directory for this recording.
    Fresh(Directory),
    /// In a directory that the caller chose.
    Given(GivenDirectory),
}

/// A directory for a pool.
struct Directory {
    /// Removed when this is dropped.
    path: TempDir,
    /// Locked as long as this process lives.
    _lock: Option<File>,
}

/// A directory whose name a campaign has chosen. What is made in it is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct GivenDirectory {
    pub(crate) path: PathBuf,
    /// Locked as long as this process lives.
    lock: File,
}

/// The name of the directory below a campaign's in which `{pool}` lies.
const POOL_DIRECTORY: &str = "pm";
const POOL_NAME: &str = "pool";
const INPUT_NAME: &str = "input";

/// Where the files are whose contents are an image, in a directory of a campaign.
pub fn pool_directory(directory: &Path) -> PathBuf {
    directory.join(POOL_DIRECTORY)
}

/// What `{pool}` stands for in a directory of a campaign.
pub fn pool_path(directory: &Path) -> PathBuf {
    pool_directory(directory).join(POOL_NAME)
}

/// What `{input}` stands for in a directory of a campaign.
pub fn input_path(directory: &Path) -> PathBuf {
    directory.join(INPUT_NAME)
}

impl FreshPool {
    /// Creates the directory of a pool if an argument needs one, with the contents and the input.
    pub(crate) fn new(
        arguments: &[OsString],
        options: &RecordOptions,
    ) -> Result<Self, RecordError> {
        let failed = |error| RecordError::system("create a directory for the pool", error);
        let has = |placeholder| {
            let mut texts = arguments.iter().map(|argument| argument.as_bytes());
            texts.any(|text| find(text, placeholder).is_some())
        };
        let is_file = |channel: InputChannel| channel == InputChannel::File;
        let has_file = options
            .input
            .as_ref()
            .is_some_and(|input| is_file(input.channel));
        options.fresh.set(None);
        let is_needed = has(POOL_PLACEHOLDER)
            || has(DIRECTORY_PLACEHOLDER)
            || options.contents.is_some()
            || options.directory.is_some()
            || has_file;
        let mut arguments = arguments.to_vec();
        let (mut pool, mut place) = (None, None);
        let mut own_directory = None;
        let is_directory_named = has(DIRECTORY_PLACEHOLDER);
        let is_pool_needed = !is_directory_named || has(POOL_PLACEHOLDER);
        if is_needed {
            let made = PoolDirectory::new(options).map_err(failed)?;
            let directory = made.path();
            let path = pool_path(directory);
            let pools = pool_directory(directory);
            if let Some(contents) = &options.contents {
                let written = powerfail_files::Directory::open(&pools)
                    .and_then(|pools| contents.write(&pools));
                written.map_err(|error| RecordError::system("write the pool", error))?;
            }
            for argument in &mut arguments {
                *argument = substitute(argument, POOL_PLACEHOLDER, path.as_os_str());
                *argument = substitute(argument, DIRECTORY_PLACEHOLDER, pools.as_os_str());
            }
            if let Some(input) = options
                .input
                .as_ref()
                .filter(|input| is_file(input.channel))
            {
                let path = input_path(directory);
                fs::write(&path, &input.bytes)
                    .map_err(|error| RecordError::system("write the input", error))?;
                for argument in &mut arguments {
                    *argument = substitute(argument, INPUT_PLACEHOLDER, path.as_os_str());
                }
            }
            options.fresh.set(Some(&path));
            pool = is_pool_needed.then_some(path);
            (place, own_directory) = (Some(made), Some(pools));
        }
        if let Some(input) = &options.input
            && input.channel == InputChannel::Arguments
        {
            arguments = insert_words(&arguments, &input.bytes);
        }
        Ok(Self {
            arguments,
            pool,
            directory: own_directory,
            is_directory_named,
            _place: place,
        })
    }

    /// The directory of the pool.
    pub(crate) fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// The same, if an argument names it.
    pub(crate) fn named_directory(&self) -> Option<&Path> {
        self.directory().filter(|_| self.is_directory_named)
    }

    /// Where the pool will be.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.pool.as_deref()
    }
}

impl PoolDirectory {
    /// Makes it, with an empty directory for the pool.
    fn new(options: &RecordOptions) -> io::Result<Self> {
        let place = if let Some(directory) = &options.directory {
            Self::Given(GivenDirectory::new(directory)?)
        } else {
            let default = Path::new("/dev/shm");
            let parent = match &options.pm_dir {
                Some(parent) => parent.clone(),
                None if default.is_dir() => default.to_path_buf(),
                None => std::env::temp_dir(),
            };
            let parent = std::path::absolute(&parent).unwrap_or(parent);
            Self::Fresh(Directory::new(&parent)?)
        };
        fs::create_dir(pool_directory(place.path()))?;
        Ok(place)
    }

    fn path(&self) -> &Path {
        match self {
            Self::Fresh(directory) => directory.path.path(),
            Self::Given(directory) => &directory.path,
        }
    }
}

impl GivenDirectory {
    /// Creates the directory if it does not exist, and removes what a killed recording left in it.
    pub(crate) fn new(directory: &Path) -> io::Result<Self> {
        let path = std::path::absolute(directory)?;
        DirBuilder::new()
            .recursive(true)
            .mode(OWNER_ONLY)
            .create(&path)?;
        // Its name can be predicted, so another user may have made it.
        let metadata = path.symlink_metadata()?;
        if !metadata.is_dir() || metadata.uid() != rustix::process::geteuid().as_raw() {
            let found = format!("{} is not a directory of this user", path.display());
            return Err(io::Error::other(found));
        }
        let lock = File::open(&path)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let given = Self { path, lock };
        given.clear()?;
        Ok(given)
    }

    fn clear(&self) -> io::Result<()> {
        let gone = |result: io::Result<()>| match result {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        };
        gone(fs::remove_dir_all(pool_directory(&self.path)))?;
        gone(fs::remove_file(input_path(&self.path)))
    }
}

impl Drop for GivenDirectory {
    fn drop(&mut self) {
        // The next recording tries again.
        let _ = self.clear();
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

impl Directory {
    /// Creates a directory, and removes those of killed processes.
    fn new(parent: &Path) -> io::Result<Self> {
        remove_left(parent);
        loop {
            let path = tempfile::Builder::new()
                .prefix(PREFIX)
                .permissions(fs::Permissions::from_mode(OWNER_ONLY))
                .tempdir_in(parent)?;
            if let Some(directory) = Self::keep(path) {
                return Ok(directory);
            }
        }
    }

    /// Locks a directory that was just created. `None` if another process took it for an abandoned one before it
    /// was locked: that process keeps it locked until it is removed. (A lock of the parent directory would prevent
    /// that, but any process that holds that lock would hold up all recordings.)
    fn keep(path: TempDir) -> Option<Self> {
        let lock = File::open(path.path()).ok();
        let lock = lock.filter(|lock| {
            let locked = retry_on_intr(|| flock(lock, FlockOperation::LockExclusive));
            locked.is_ok()
        });
        path.path().is_dir().then(|| Self { path, _lock: lock })
    }
}

/// A directory of a process that was killed.
struct Left {
    path: PathBuf,
    /// Held until the directory is removed: a process that has just created it may wait for this lock, and then
    /// sees that the directory is gone.
    _lock: File,
}

impl Left {
    /// `None` if it is not ours, or if a process has it locked.
    fn find(entry: &DirEntry) -> Option<Self> {
        let is_ours = entry.file_name().as_bytes().starts_with(PREFIX.as_bytes())
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
            && entry
                .metadata()
                .is_ok_and(|metadata| metadata.uid() == rustix::process::getuid().as_raw());
        let path = is_ours.then(|| entry.path())?;
        let lock = File::open(&path).ok()?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(Self { path, _lock: lock })
    }

    /// One that cannot be removed stays.
    fn remove(self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the directories that no process has locked.
fn remove_left(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for left in entries.flatten().filter_map(|entry| Left::find(&entry)) {
        left.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Directory, File, FlockOperation, GivenDirectory, Left, OWNER_ONLY, PREFIX, PermissionsExt,
        flock, fs, input_path, pool_directory, remove_left,
    };

    #[test]
    fn a_given_directory_is_for_one_at_a_time() -> std::io::Result<()> {
        let parent = tempfile::tempdir()?;
        let path = parent.path().join("slot");
        let one = GivenDirectory::new(&path)?;
        assert!(GivenDirectory::new(&path).is_err());
        std::fs::create_dir(pool_directory(&path))?;
        std::fs::write(input_path(&path), "x")?;
        std::fs::write(path.join("other"), "x")?;
        // As if its process had been killed: nothing is removed, but no process has it locked.
        let lock = one.lock.try_clone()?;
        std::mem::forget(one);
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::Unlock)?;
        let two = GivenDirectory::new(&path)?;
        assert!(!pool_directory(&path).exists() && !input_path(&path).exists());
        drop(two);
        assert!(path.join("other").exists());
        Ok(())
    }

    #[test]
    fn directories_are_for_their_owner_only() {
        let parent = tempfile::tempdir().unwrap();
        let fresh = Directory::new(parent.path()).unwrap();
        let given = GivenDirectory::new(&parent.path().join("given")).unwrap();
        for path in [fresh.path.path(), given.path.as_path()] {
            let mode = path.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, OWNER_ONLY, "{}", path.display());
        }
        let link = parent.path().join("link");
        std::os::unix::fs::symlink(&given.path, &link).unwrap();
        drop(given);
        let refused = GivenDirectory::new(&link).unwrap_err();
        assert!(refused.to_string().contains("not a directory of this user"));
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
    fn a_locked_parent_directory_is_no_obstacle() {
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

    /// The process that creates a directory and one that takes it for abandoned agree, in any order.
    #[test]
    fn a_directory_that_is_about_to_be_removed_is_not_kept() {
        let parent = tempfile::tempdir().unwrap();
        let mut builder = tempfile::Builder::new();
        let fresh = builder.prefix(PREFIX).tempdir_in(parent.path()).unwrap();
        let entry = fs::read_dir(parent.path()).unwrap().next().unwrap();
        let left = Left::find(&entry.unwrap()).unwrap();
        std::thread::scope(|scope| {
            let kept = scope.spawn(|| Directory::keep(fresh).is_some());
            left.remove();
            assert!(!kept.join().unwrap());
        });
    }

    /// Each thread creates directories while the others look for abandoned ones.
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
