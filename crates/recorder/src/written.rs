//! Files that the target writes with system calls of processes that have not mapped them. Their content is not recorded.

use std::collections::{BTreeSet, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use powerfail_trace::recording::PoolSummary;

use crate::sparse::FileIdentity;
use crate::tree::Trees;

/// How many files are remembered, at most.
const FILES_MAX: usize = 1 << 16;

/// What is known of these files.
#[derive(Debug, Default)]
pub(crate) struct WrittenFiles {
    paths: BTreeSet<PathBuf>,
    /// The files themselves.
    files: HashSet<FileIdentity>,
    /// Messages about further files.
    passed_over: u64,
    /// Pools, and the processes that wrote to them while others had them mapped.
    pools: BTreeSet<(PathBuf, i32)>,
}

impl WrittenFiles {
    /// The target wrote to a file that was not a pool yet.
    pub(crate) fn insert(&mut self, file: FileIdentity, path: PathBuf) {
        if self.paths.len() < FILES_MAX {
            self.paths.insert(path);
            self.files.insert(file);
        } else if !self.paths.contains(&path) {
            self.passed_over += 1;
        }
    }

    /// The target gave a file a new name.
    pub(crate) fn rename(&mut self, file: FileIdentity, path: PathBuf) {
        if self.files.contains(&file) {
            self.insert(file, path);
        }
    }

    /// A process that has not mapped a pool wrote to its file.
    pub(crate) fn insert_pool(&mut self, path: &Path, process: i32) {
        self.pools.insert((path.to_path_buf(), process));
    }

    /// Those beside a pool and named after it, such as a journal: recovery may need them.
    pub(crate) fn companions(&self, pools: &[PoolSummary]) -> Vec<PathBuf> {
        let name = |path: &Path| Some(path.file_name()?.as_bytes().to_owned());
        let belongs = |file: &Path, pool: &Path| {
            file != pool
                && file.parent() == pool.parent()
                && name(file)
                    .zip(name(pool))
                    .is_some_and(|(file, pool)| file.starts_with(&pool))
        };
        let written = self.paths.iter();
        written
            .filter(|file| pools.iter().any(|pool| belongs(file, &pool.path)))
            .cloned()
            .collect()
    }

    /// Those that are neither pools nor in a tree. What the target prints is no data of it, also if that goes to a file.
    pub(crate) fn outside(&self, pools: &[PoolSummary], trees: &Trees) -> Vec<PathBuf> {
        let is_pool = |path: &PathBuf| pools.iter().any(|pool| pool.path == *path);
        let outside = self.paths.iter().filter(|path| !trees.contains(path));
        outside
            .filter(|path| !is_pool(path) && !is_own_output(path))
            .cloned()
            .collect()
    }

    /// What was done to pools and is not recorded, a sentence each.
    pub(crate) fn unrecorded(&self) -> impl Iterator<Item = String> {
        self.pools.iter().map(|(path, process)| {
            format!(
                "process {process} wrote to {} with system calls without having mapped it, which is not recorded",
                path.display()
            )
        })
    }

    /// Says that there were more files than are remembered, if so.
    pub(crate) fn warning(&self) -> Option<String> {
        (self.passed_over > 0).then(|| {
            format!(
                "the target wrote more than {FILES_MAX} files that are not pools; {} more were not examined, so recovery may \
                 need one that is not reported",
                self.passed_over
            )
        })
    }
}

/// Whether a file is the standard output or the standard error of this process, which the target inherits.
fn is_own_output(path: &Path) -> bool {
    let identity = |status: rustix::fs::Stat| (status.st_dev, status.st_ino);
    let Ok(file) = rustix::fs::stat(path).map(identity) else {
        return false;
    };
    let outputs = [
        rustix::fs::fstat(std::io::stdout()),
        rustix::fs::fstat(std::io::stderr()),
    ];
    outputs.into_iter().flatten().any(|it| identity(it) == file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_target_prints_is_known() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        assert!(is_own_output(Path::new("/proc/self/fd/1")));
        assert!(!is_own_output(file.path()));
    }

    fn file(number: usize) -> FileIdentity {
        FileIdentity {
            device: 1,
            inode: number as u64,
        }
    }

    /// Only a file that was written is of interest under its new name.
    #[test]
    fn a_file_that_was_written_is_known_by_its_new_name() {
        let mut written = WrittenFiles::default();
        written.insert(file(1), "/data/new".into());
        written.rename(file(1), "/data/list".into());
        written.rename(file(2), "/data/other".into());
        let outside = written.outside(&[], &Trees::default());
        let names = ["/data/list", "/data/new"].map(PathBuf::from);
        assert_eq!(outside, names);
    }

    #[test]
    fn files_beyond_the_limit_are_counted() {
        let mut written = WrittenFiles::default();
        for number in 0..FILES_MAX {
            written.insert(file(number), format!("/data/{number}").into());
        }
        written.insert(file(7), "/data/7".into());
        assert_eq!(written.warning(), None);
        written.insert(file(FILES_MAX), "/data/one more".into());
        written.insert(file(FILES_MAX + 1), "/data/and another".into());
        let warning = written.warning().expect("a warning");
        assert!(warning.contains("more than 65536 files"), "{warning}");
        assert!(warning.contains("2 more were not examined"), "{warning}");
    }
}
