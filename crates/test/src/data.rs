//! What a test keeps its data in.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use crate::pool::Pool;

/// A pool or a directory.
pub trait Data: Sized + sealed::Sealed {
    /// What stands for its path in the arguments of powerfail.
    #[doc(hidden)]
    const PLACEHOLDER: &'static str;

    /// Opens it, and creates it if it does not exist.
    #[doc(hidden)]
    fn open(path: &Path, len_bytes: u64) -> std::io::Result<Self>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for crate::Pool {}
    impl Sealed for super::Directory {}
}

impl Data for Pool {
    const PLACEHOLDER: &'static str = "{pool}";

    fn open(path: &Path, len_bytes: u64) -> std::io::Result<Self> {
        Self::open(path, len_bytes)
    }
}

/// A directory whose files survive, or not. It derefs to its path.
#[derive(Clone, Debug)]
pub struct Directory {
    path: PathBuf,
}

impl Deref for Directory {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

impl Data for Directory {
    const PLACEHOLDER: &'static str = "{dir}";

    fn open(path: &Path, _: u64) -> std::io::Result<Self> {
        std::fs::create_dir_all(path)?;
        Ok(Self {
            path: path.to_path_buf(),
        })
    }
}
