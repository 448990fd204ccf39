//! Why a file is not opened, in words.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, statat};
use rustix::io::Errno;

const LINK: &str = "it is a symbolic link, and powerfail follows none here";
const OUTSIDE: &str = "it is outside of its directory";
const NOT_REGULAR: &str = "not a regular file";
const SHARED: &str = "it has another name (a hard link), and what has that name would change";

fn refuse(kind: io::ErrorKind, sentence: &'static str) -> io::Error {
    io::Error::new(kind, sentence)
}

/// A name leads out of its directory.
pub(crate) fn outside() -> io::Error {
    refuse(io::ErrorKind::InvalidInput, OUTSIDE)
}

/// A path is a link.
pub(crate) fn link() -> io::Error {
    refuse(io::ErrorKind::InvalidInput, LINK)
}

/// Explains why something was not opened without following links. The system has several errors for a link.
pub(crate) fn explained(error: Errno, directory: impl rustix::fd::AsFd, name: &Path) -> io::Error {
    let is_link = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Symlink);
    match error {
        Errno::LOOP | Errno::NOTDIR if is_link => link(),
        // A FIFO without a reader, or a socket.
        Errno::NXIO => refuse(io::ErrorKind::InvalidInput, NOT_REGULAR),
        error => error.into(),
    }
}

/// The file, if it is a regular one.
pub(crate) fn regular(file: File) -> io::Result<(File, Metadata)> {
    let metadata = file.metadata()?;
    if metadata.is_file() {
        Ok((file, metadata))
    } else {
        Err(refuse(io::ErrorKind::InvalidInput, NOT_REGULAR))
    }
}

/// The file, if it is a regular one that has no other name.
pub(crate) fn sole(file: File) -> io::Result<File> {
    let (file, metadata) = regular(file)?;
    if metadata.nlink() <= 1 {
        Ok(file)
    } else {
        Err(refuse(io::ErrorKind::InvalidInput, SHARED))
    }
}
