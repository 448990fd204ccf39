//! Which files are pools.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use globset::GlobMatcher;

use crate::glob;
use crate::sparse::FileIdentity;

/// Which files are pools.
#[derive(Clone, Debug, Default)]
pub(crate) struct PoolFilter {
    /// Absolute paths, and the patterns that some of them are. An empty list selects all files.
    selected: Vec<(PathBuf, Option<GlobMatcher>)>,
    /// All files of this directory are.
    within: Option<PathBuf>,
}

impl PoolFilter {
    /// Paths and patterns, relative ones in the working directory.
    pub(crate) fn new(selected: &[PathBuf]) -> Self {
        let absolute = |path: &PathBuf| {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            let pattern = glob::pattern(&path);
            (path, pattern)
        };
        Self {
            selected: selected.iter().map(absolute).collect(),
            within: None,
        }
    }

    /// Adds a path, if not everything is a pool anyway.
    pub(crate) fn also(&mut self, path: &Path) {
        if !self.selected.is_empty() {
            self.selected.push((path.into(), None));
        }
    }

    /// Adds all files of a directory.
    pub(crate) fn also_within(&mut self, directory: &Path) {
        self.within = Some(directory.into());
    }

    /// Whether a file is a pool: by its path, or because a selected path leads to it by links.
    pub(crate) fn selects(&self, path: &Path, identity: FileIdentity) -> bool {
        self.selected.is_empty()
            || self.within.is_some() && self.within.as_deref() == path.parent()
            || self.selected.iter().any(|(selected, pattern)| {
                selected == path
                    || pattern.as_ref().is_some_and(|it| it.is_match(path))
                    || selected.metadata().is_ok_and(|metadata| {
                        (metadata.dev(), metadata.ino()) == (identity.device, identity.inode)
                    })
            })
    }
}

#[cfg(test)]
mod tests {
    use super::PoolFilter;
    use crate::sparse::FileIdentity;
    use std::path::Path;

    const NO_FILE: FileIdentity = FileIdentity {
        device: u64::MAX,
        inode: u64::MAX,
    };

    #[test]
    fn none_is_all() {
        let mut filter = PoolFilter::new(&[]);
        filter.also(Path::new("/x"));
        assert!(filter.selects(Path::new("/anything"), NO_FILE));
    }

    #[test]
    fn a_directory_besides_what_is_named() {
        let mut filter = PoolFilter::new(&["/mnt/pool".into()]);
        filter.also_within(Path::new("/run.memory"));
        assert!(filter.selects(Path::new("/run.memory/heap"), NO_FILE));
        assert!(!filter.selects(Path::new("/heap"), NO_FILE));
    }

    #[test]
    fn paths_patterns_and_links() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, b"").unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let filter = PoolFilter::new(&["/mnt/*.pool".into(), link]);
        assert!(filter.selects(Path::new("/mnt/a.pool"), NO_FILE));
        assert!(!filter.selects(Path::new("/mnt/a"), NO_FILE));
        assert!(filter.selects(&file, FileIdentity::of_path(&file).unwrap()));
    }
}
