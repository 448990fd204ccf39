//! The directory of persistent memory that is not a file of the target: its heap, and the ranges that it
//! registers. It lies beside the trace and is removed when the recording ends, because the trace has its content.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use powerfail_protocol::memory::{
    HEAP_NAME, HEAP_VARIABLE, RANGE_SUFFIX, RANGES_VARIABLE, heap_file_len,
};

use crate::error::RecordError;

/// What its name ends with.
const SUFFIX: &str = ".memory";

/// The directory of the heap and of registered ranges.
#[derive(Debug)]
pub(crate) struct MemoryDirectory {
    path: PathBuf,
    heap: Option<PathBuf>,
}

impl MemoryDirectory {
    /// Finds the directory, removes what a killed recording left in it, and creates the heap if one is wanted.
    pub(crate) fn new(trace: &Path, heap_bytes: Option<u64>) -> Result<Self, RecordError> {
        let failed = |error: io::Error| RecordError::system("create a persistent heap", error);
        let trace = std::path::absolute(trace).map_err(failed)?;
        let parent = trace.parent().unwrap_or(Path::new("/"));
        // The kernel names files without links.
        let parent = parent.canonicalize().unwrap_or_else(|_| parent.into());
        let mut name = trace.file_name().unwrap_or("trace".as_ref()).to_owned();
        name.push(SUFFIX);
        let mut directory = Self {
            path: parent.join(name),
            heap: None,
        };
        // What a link points to is not ours, neither to remove nor to write to.
        powerfail_files::output::refuse_link(&directory.path).map_err(failed)?;
        directory.remove();
        if let Some(bytes) = heap_bytes {
            fs::create_dir(&directory.path).map_err(failed)?;
            let path = directory.path.join(HEAP_NAME);
            let mut options = File::options();
            options.write(true).create_new(true).mode(0o600);
            let file = options.open(&path).map_err(failed)?;
            directory.heap = Some(path);
            file.set_len(heap_file_len(bytes)).map_err(failed)?;
        }
        Ok(directory)
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file of the heap, if there is one.
    pub(crate) fn heap(&self) -> Option<&Path> {
        self.heap.as_deref()
    }

    /// The variables that tell the runtime about it.
    pub(crate) fn variables(&self) -> Vec<(&'static str, OsString)> {
        let mut variables = vec![(RANGES_VARIABLE, self.path.clone().into())];
        variables.extend(self.heap.iter().map(|path| (HEAP_VARIABLE, path.into())));
        variables
    }

    /// Removes our files, and the directory if it is empty then.
    fn remove(&self) {
        let Ok(entries) = fs::read_dir(&self.path) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let is_range = || name.to_string_lossy().ends_with(RANGE_SUFFIX);
            if name == HEAP_NAME || is_range() {
                let _ = fs::remove_file(entry.path());
            }
        }
        let _ = fs::remove_dir(&self.path);
    }
}

impl Drop for MemoryDirectory {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::MemoryDirectory;
    use powerfail_protocol::memory::heap_file_len;

    #[test]
    fn a_heap_is_sparse_and_goes_away() {
        let place = tempfile::tempdir().unwrap();
        let trace = place.path().join("run.trace");
        let memory = MemoryDirectory::new(&trace, Some(1 << 30)).unwrap();
        let heap = memory.heap().unwrap().to_owned();
        let metadata = heap.metadata().unwrap();
        assert_eq!(metadata.len(), heap_file_len(1 << 30));
        assert_eq!(std::os::unix::fs::MetadataExt::blocks(&metadata), 0);
        assert_eq!(heap.parent(), Some(memory.path()));
        std::fs::write(memory.path().join("a.pool"), "x").unwrap();
        drop(memory);
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_not_ours_stays() {
        let place = tempfile::tempdir().unwrap();
        let trace = place.path().join("run.trace");
        let memory = MemoryDirectory::new(&trace, Some(1)).unwrap();
        let other = memory.path().join("other");
        std::fs::write(&other, "x").unwrap();
        drop(memory);
        assert!(other.exists());
        assert!(MemoryDirectory::new(&trace, None).unwrap().heap().is_none());
        assert!(other.exists());
    }
}
