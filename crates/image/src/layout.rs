//! Which private file stands for which pool.
//!
//! A directory of images mirrors the directories of the pools: files keep their names, because
//! programs find one file by the name of another. If all pools lie in one directory, so do their
//! copies; otherwise each directory has a numbered one.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use powerfail_model::PoolIndex;
use powerfail_trace::{PoolKind, Trace};

use crate::error::{Context, ImageError, Result};

/// Maps the pools of a trace to private files. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Layout(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    directories: Vec<PrivateDirectory>,
    files: Vec<LayoutFile>,
    companions: Vec<Companion>,
}

/// A directory with pools, and the one that stands for it.
#[derive(Debug)]
pub(crate) struct PrivateDirectory {
    pub(crate) original: PathBuf,
    /// Empty if it is the directory of the image itself.
    pub(crate) relative: PathBuf,
}

/// A file that is a pool, or several: a program may remove its pool and make a new one in its place.
#[derive(Debug)]
pub(crate) struct LayoutFile {
    pub(crate) original: PathBuf,
    pub(crate) relative: PathBuf,
    pub(crate) mode: u32,
    pub(crate) pools: Vec<PoolIndex>,
}

/// A file that is not a pool but goes with them.
#[derive(Debug)]
pub(crate) struct Companion {
    pub(crate) relative: PathBuf,
    pub(crate) mode: u32,
    pub(crate) content: Vec<u8>,
}

const DEFAULT_MODE: u32 = 0o600;

impl Layout {
    /// The files of a trace: all pools that were recorded, and `companions`, other files that
    /// recovery needs beside them, as they are now.
    pub fn of(trace: &Trace, companions: &[PathBuf]) -> Result<Self> {
        let mut files: Vec<(PathBuf, Vec<PoolIndex>)> = Vec::new();
        for (index, pool) in (0..).map(PoolIndex).zip(trace.pools()) {
            // One that was recorded has a file, and an address; one that was written by hand has neither.
            if pool.kind == PoolKind::AnonymousRange && pool.address == 0 {
                continue;
            }
            let path = cleaned(&trace.meta().working_directory.join(&pool.path));
            match files.iter_mut().find(|(known, _)| *known == path) {
                Some((_, pools)) => pools.push(index),
                None => files.push((path, vec![index])),
            }
        }
        let mut others = Vec::new();
        for path in companions {
            let path = cleaned(&trace.meta().working_directory.join(path));
            if files.iter().all(|(file, _)| *file != path) && !others.contains(&path) {
                others.push(path);
            }
        }
        let mut originals: Vec<PathBuf> = Vec::new();
        for path in files.iter().map(|(path, _)| path).chain(&others) {
            let directory = parent_of(path);
            if !originals.contains(&directory) {
                originals.push(directory);
            }
        }
        let flat = originals.len() == 1;
        let directories: Vec<PrivateDirectory> = originals
            .into_iter()
            .enumerate()
            .map(|(number, original)| PrivateDirectory {
                original,
                relative: if flat {
                    PathBuf::new()
                } else {
                    number.to_string().into()
                },
            })
            .collect();
        let relative = |path: &Path| {
            let parent = parent_of(path);
            let directory = directories.iter().find(|known| known.original == parent);
            let name = path.file_name().unwrap_or("pool".as_ref());
            directory
                .map_or_else(PathBuf::new, |found| found.relative.clone())
                .join(name)
        };
        let companions = others
            .iter()
            .map(|path| Companion::read(path, relative(path)))
            .collect::<Result<_>>()?;
        let files = files
            .into_iter()
            .map(|(original, pools)| LayoutFile {
                relative: relative(&original),
                mode: mode_of(&original),
                original,
                pools,
            })
            .collect();
        Ok(Self(Arc::new(Inner {
            directories,
            files,
            companions,
        })))
    }

    /// The directories of pools and companions, and what stands for each inside of a directory of
    /// images.
    pub fn directories(&self) -> impl ExactSizeIterator<Item = (&Path, &Path)> {
        self.0
            .directories
            .iter()
            .map(|directory| (directory.original.as_path(), directory.relative.as_path()))
    }

    /// The pool files, and what stands for each inside of a directory of images.
    pub fn files(&self) -> impl ExactSizeIterator<Item = (&Path, &Path)> {
        self.0
            .files
            .iter()
            .map(|file| (file.original.as_path(), file.relative.as_path()))
    }

    pub(crate) fn pool_files(&self) -> &[LayoutFile] {
        &self.0.files
    }

    pub(crate) fn companions(&self) -> &[Companion] {
        &self.0.companions
    }

    /// Where the file of a pool is inside of a directory of images.
    pub(crate) fn relative_of(&self, pool: PoolIndex) -> Option<&Path> {
        let file = self
            .0
            .files
            .iter()
            .find(|file| file.pools.contains(&pool))?;
        Some(&file.relative)
    }
}

impl Companion {
    fn read(path: &Path, relative: PathBuf) -> Result<Self> {
        let mut file = File::open(path).context("open", path)?;
        let metadata = file.metadata().context("read", path)?;
        if !metadata.is_file() {
            return Err(ImageError::NotACompanion { path: path.into() });
        }
        let mut content = Vec::new();
        file.read_to_end(&mut content).context("read", path)?;
        Ok(Self {
            relative,
            mode: metadata.permissions().mode() & 0o7777,
            content,
        })
    }
}

/// The regular files of at most `limit_bytes` that lie beside the pools of a trace and are none: what
/// recovery may look for there, such as the description of a pool set. Sorted.
pub fn find_companions(trace: &Trace, limit_bytes: u64) -> Result<Vec<PathBuf>> {
    let pools = Layout::of(trace, &[])?;
    let mut found = Vec::new();
    for directory in pools.0.directories.iter().map(|known| &known.original) {
        // A device's neighbours are other devices, and a directory may be gone.
        let Ok(entries) = fs::read_dir(directory) else {
            continue;
        };
        for entry in entries {
            let entry = entry.context("list", directory)?;
            let path = entry.path();
            let small = entry
                .metadata()
                .is_ok_and(|metadata| metadata.is_file() && metadata.len() <= limit_bytes);
            if small && pools.0.files.iter().all(|file| file.original != path) {
                found.push(path);
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// The permissions of the pool, if it is still there.
fn mode_of(original: &Path) -> u32 {
    fs::metadata(original)
        .ok()
        .filter(fs::Metadata::is_file)
        .map_or(DEFAULT_MODE, |metadata| {
            metadata.permissions().mode() & 0o7777
        })
}

fn parent_of(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("/")).to_path_buf()
}

/// The path without `.` and `..`, as it is written: the files may be gone.
fn cleaned(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                clean.pop();
            }
            other => clean.push(other),
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned_as_they_are_written() {
        assert_eq!(cleaned(Path::new("/a/./b/../c")), Path::new("/a/c"));
        assert_eq!(cleaned(Path::new("/../x")), Path::new("/x"));
    }
}
