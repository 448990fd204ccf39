//! Which files are pools.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use globset::GlobMatcher;
use powerfail_trace::recording::{IgnoreReason, NoData};

use crate::error::RecordError;
use crate::glob;
use crate::sparse::FileIdentity;

/// A path, and the pattern that it may be.
#[derive(Clone, Debug)]
struct Selector {
    path: PathBuf,
    pattern: Option<GlobMatcher>,
}

/// Which files are pools.
#[derive(Clone, Debug, Default)]
pub(crate) struct PoolFilter {
    /// An empty list selects all files.
    selected: Vec<Selector>,
    excluded: Vec<Selector>,
    /// The path of `{pool}`.
    fresh: Option<PathBuf>,
    /// All files of this directory are.
    within: Option<PathBuf>,
}

impl Selector {
    /// A relative path is one in the working directory.
    fn new(given: &Path) -> Result<Self, RecordError> {
        let path = std::path::absolute(given).unwrap_or_else(|_| given.into());
        let path = without_parents(&path);
        // The working directory is not a pattern, whatever its name is.
        let directory = std::env::current_dir().unwrap_or_default();
        let pattern = match path.strip_prefix(&directory) {
            Ok(within) if given.is_relative() => glob::escaped(&directory).join(within),
            _ => path.clone(),
        };
        let pattern = glob::pattern(&pattern).map_err(|reason| RecordError::Pattern {
            pattern: given.to_path_buf(),
            reason,
        })?;
        Ok(Self { path, pattern })
    }

    /// Whether it selects a file: by its path, or because links lead to it.
    fn selects(&self, path: &Path, identity: FileIdentity) -> bool {
        self.path == path
            || self.pattern.as_ref().is_some_and(|it| it.is_match(path))
            || self.path.metadata().is_ok_and(|metadata| {
                (metadata.dev(), metadata.ino()) == (identity.device, identity.inode)
            })
    }
}

/// An absolute path without `..`, which paths of mapped files do not have.
fn without_parents(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}

impl PoolFilter {
    /// Paths and patterns, relative ones in the working directory.
    pub(crate) fn new(selected: &[PathBuf], excluded: &[PathBuf]) -> Result<Self, RecordError> {
        let selectors = |paths: &[PathBuf]| -> Result<Vec<Selector>, RecordError> {
            paths.iter().map(|path| Selector::new(path)).collect()
        };
        Ok(Self {
            selected: selectors(selected)?,
            excluded: selectors(excluded)?,
            fresh: None,
            within: None,
        })
    }

    /// Adds a path, whatever is selected.
    pub(crate) fn also(&mut self, path: &Path) {
        self.fresh = Some(path.into());
    }

    /// Adds all files of a directory.
    pub(crate) fn also_within(&mut self, directory: &Path) {
        self.within = Some(directory.into());
    }

    /// Why a file is not a pool; `None` if it is one.
    pub(crate) fn reason_against(
        &self,
        path: &Path,
        identity: FileIdentity,
    ) -> Option<IgnoreReason> {
        let is_in = |list: &[Selector]| list.iter().any(|it| it.selects(path, identity));
        if self.within.is_some() && self.within.as_deref() == path.parent() {
            None
        } else if is_in(&self.excluded) {
            Some(IgnoreReason::Excluded)
        } else if self.fresh.as_deref() == Some(path) || is_in(&self.selected) {
            None
        } else if self.selected.is_empty() {
            no_data(path).map(IgnoreReason::NoData)
        } else {
            Some(IgnoreReason::NotSelected)
        }
    }
}

/// Whether a file is known to hold no data, by its path: it is empty or does not say what it is when it is first mapped.
fn no_data(path: &Path) -> Option<NoData> {
    let name = path.file_name()?.as_bytes();
    let directory = path.parent()?;
    let directory_name = directory.file_name().map_or(&[][..], OsStrExt::as_bytes);
    let is_number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let is_shared_memory = directory == Path::new("/dev/shm");
    if directory_name.starts_with(b"hsperfdata_") {
        Some(NoData::JavaCounters)
    } else if name.ends_with(b"-shm") {
        Some(NoData::SqliteSharedMemory)
    } else if name == b"lock.mdb" || name.ends_with(b"-lock") || name.ends_with(b"-lck") {
        Some(NoData::LmdbLock)
    } else if name.strip_prefix(b"__db.").is_some_and(is_number) {
        Some(NoData::BerkeleyRegion)
    } else if is_shared_memory && name.starts_with(b"sem.") {
        Some(NoData::Semaphore)
    } else if is_shared_memory && name.starts_with(b"PostgreSQL.") {
        Some(NoData::PostgresMemory)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::PoolFilter;
    use crate::sparse::FileIdentity;
    use powerfail_trace::recording::{IgnoreReason, NoData};
    use std::path::{Path, PathBuf};

    const NO_FILE: FileIdentity = FileIdentity {
        device: u64::MAX,
        inode: u64::MAX,
    };

    fn reason(filter: &PoolFilter, path: &str) -> Option<IgnoreReason> {
        filter.reason_against(Path::new(path), NO_FILE)
    }

    #[test]
    fn a_pattern_may_begin_in_the_parent_directory() {
        let filter = PoolFilter::new(&[PathBuf::from("../beside/*.pool")], &[]).unwrap();
        let directory = std::env::current_dir().unwrap();
        let parent = directory.parent().unwrap();
        let reason = |path: &Path| filter.reason_against(path, NO_FILE);
        assert_eq!(reason(&parent.join("beside/a.pool")), None);
        let other = Some(IgnoreReason::NotSelected);
        assert_eq!(reason(&directory.join("beside/a.pool")), other);
    }

    #[test]
    fn none_is_all_that_may_hold_data() {
        let filter = PoolFilter::new(&[], &[]).unwrap();
        for (path, expected) in [
            ("/anything", None),
            ("/tmp/hsperfdata_root/17", Some(NoData::JavaCounters)),
            ("/a/store.db-shm", Some(NoData::SqliteSharedMemory)),
            ("/a/lock.mdb", Some(NoData::LmdbLock)),
            ("/a/data.mdb", None),
            ("/a/store-lock", Some(NoData::LmdbLock)),
            ("/a/__db.001", Some(NoData::BerkeleyRegion)),
            ("/a/__db.store", None),
            ("/dev/shm/sem.x", Some(NoData::Semaphore)),
            ("/a/sem.x", None),
            ("/dev/shm/PostgreSQL.1", Some(NoData::PostgresMemory)),
        ] {
            assert_eq!(
                reason(&filter, path),
                expected.map(IgnoreReason::NoData),
                "{path}"
            );
        }
    }

    #[test]
    fn what_is_named_decides() {
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        let filter = PoolFilter::new(&paths(&["/a/*-shm"]), &[]).unwrap();
        assert_eq!(reason(&filter, "/a/store-shm"), None);
        assert_eq!(reason(&filter, "/a/store"), Some(IgnoreReason::NotSelected));
        let mut filter = PoolFilter::new(&[], &paths(&["/a/*.log"])).unwrap();
        filter.also(Path::new("/a/x-lock"));
        assert_eq!(reason(&filter, "/a/b.log"), Some(IgnoreReason::Excluded));
        assert_eq!(reason(&filter, "/a/b"), None);
        assert_eq!(reason(&filter, "/a/x-lock"), None);
    }

    #[test]
    fn a_directory_besides_what_is_named() {
        let mut filter = PoolFilter::new(&["/mnt/pool".into()], &[]).unwrap();
        filter.also_within(Path::new("/run.memory"));
        assert_eq!(reason(&filter, "/run.memory/heap"), None);
        assert!(reason(&filter, "/heap").is_some());
    }

    #[test]
    fn paths_patterns_and_links() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, b"").unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let filter = PoolFilter::new(&["/mnt/*.pool".into(), link], &[]).unwrap();
        assert_eq!(reason(&filter, "/mnt/a.pool"), None);
        assert!(reason(&filter, "/mnt/a").is_some());
        let identity = FileIdentity::of_path(&file).unwrap();
        assert_eq!(filter.reason_against(&file, identity), None);
    }
}
