//! A directory, and the files beneath it.
//!
//! A name is walked component by component, and each is opened relative to the one before without following a link. So a
//! name cannot lead outside, whatever lies in the directory, and also where `openat2` does not exist or is forbidden.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;

use crate::content;
use crate::input::read_whole;
use crate::refusal;

/// Opens a directory to find others in it. It need not be readable.
const WALK: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// Opens a file to read. Opening does not wait for the other end of a FIFO.
pub(crate) const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);
/// Makes a file where none is.
const NEW: OFlags = OFlags::RDWR
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// An open directory. Names are relative to it; see the module header.
#[derive(Debug)]
pub struct Directory {
    handle: OwnedFd,
    path: PathBuf,
}

impl Directory {
    /// Opens a directory that the user has named. A link is followed: the user has chosen it.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::at(path, WALK - OFlags::NOFOLLOW)
    }

    /// Creates a directory, with its parents where needed, or opens an existing one. It is not a link.
    pub fn create(path: &Path) -> io::Result<Self> {
        if fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
            return Err(refusal::link());
        }
        fs::create_dir_all(path)?;
        Self::at(path, WALK)
    }

    /// Makes a new directory.
    pub fn create_new(path: &Path) -> io::Result<Self> {
        fs::create_dir(path)?;
        Self::at(path, WALK)
    }

    fn at(path: &Path, flags: OFlags) -> io::Result<Self> {
        let handle = openat(CWD, path, flags, Mode::empty())
            .map_err(|error| refusal::explained(error, CWD, path))?;
        let path = path.to_path_buf();
        Ok(Self { handle, path })
    }

    /// Its path, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The number of its inode. A copy has another one.
    pub(crate) fn inode(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.handle)?.st_ino)
    }

    /// Opens a directory beneath this one.
    pub fn directory(&self, name: &Path) -> io::Result<Self> {
        let mut handle = self.handle.try_clone()?;
        for part in parts(name)? {
            handle = openat(&handle, part, WALK, Mode::empty())
                .map_err(|error| refusal::explained(error, &handle, part.as_ref()))?;
        }
        let path = self.path.join(name);
        Ok(Self { handle, path })
    }

    /// Opens a directory beneath this one, and makes what is missing on the way.
    pub fn create_directory(&self, name: &Path) -> io::Result<Self> {
        let mut made = self.directory(Path::new(""))?;
        for part in parts(name)? {
            match mkdirat(&made.handle, part, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            made = made.directory(part.as_ref())?;
        }
        Ok(made)
    }

    /// Opens a regular file beneath this directory to read it.
    pub fn read(&self, name: &Path) -> io::Result<File> {
        let file = self.open_in_parent(name, READ)?;
        Ok(refusal::regular(file)?.0)
    }

    /// Reads a file that is not longer than it may be.
    pub fn read_bytes(&self, name: &Path, limit_bytes: u64) -> io::Result<Vec<u8>> {
        read_whole(&self.read(name)?, limit_bytes)
    }

    /// Makes a new file beneath this directory.
    pub fn create_file(&self, name: &Path) -> io::Result<File> {
        self.open_in_parent(name, NEW)
    }

    /// Copies a file into a new one beneath this directory, with the permissions that a copy may have.
    pub fn copy(&self, from: &File, name: &Path) -> io::Result<()> {
        let mode = from.metadata()?.mode() & 0o777;
        let to = self.create_file(name)?;
        content::copy(from, &to)?;
        to.set_permissions(Permissions::from_mode(mode))
    }

    /// The names of all files beneath a directory in this one, sorted. Anything else that is no directory is an error, and
    /// a directory that does not exist has none.
    pub fn files_below(&self, name: &Path) -> io::Result<Vec<PathBuf>> {
        let directory = match self.directory(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            directory => directory?,
        };
        let mut found = Vec::new();
        for entry in fs::read_dir(&directory.path)? {
            let entry = entry?;
            let name = name.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                found.extend(self.files_below(&name)?);
            } else {
                self.read(&name)?;
                found.push(name);
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    fn open_in_parent(&self, name: &Path, flags: OFlags) -> io::Result<File> {
        let parts = parts(name)?;
        let Some((last, parents)) = parts.split_last() else {
            return Err(refusal::outside());
        };
        let parent = self.directory(&parents.iter().collect::<PathBuf>())?;
        let file = openat(&parent.handle, *last, flags, Mode::from_raw_mode(0o666))
            .map_err(|error| refusal::explained(error, &parent.handle, last.as_ref()))?;
        Ok(File::from(file))
    }
}

/// Whether a name stays beneath its directory, as it is written, and is not that directory itself.
pub fn is_beneath(name: &Path) -> bool {
    parts(name).is_ok_and(|parts| !parts.is_empty())
}

/// The components of a name that stays beneath its directory.
fn parts(name: &Path) -> io::Result<Vec<&OsStr>> {
    let mut parts = Vec::new();
    for component in name.components() {
        match component {
            Component::Normal(part) => parts.push(part),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(refusal::outside());
            }
        }
    }
    Ok(parts)
}
