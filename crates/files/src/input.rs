//! Files of a directory that powerfail does not trust, by their path.
//!
//! The caller has made the path from a directory that the user named and from fixed names. A name that was read from a file
//! is resolved by [`crate::Directory`].

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use rustix::fs::{CWD, Mode, openat};

use crate::directory::READ;
use crate::refusal;

/// A longer file is not read as a whole: it is damage, for which no memory is taken.
const LIMIT_BYTES: u64 = 1 << 30;

/// Opens a regular file to read it. A link is not followed, and a FIFO not waited for.
pub fn open(path: &Path) -> io::Result<File> {
    let file = openat(CWD, path, READ, Mode::empty())
        .map_err(|error| refusal::explained(error, CWD, path))?;
    Ok(refusal::regular(File::from(file))?.0)
}

/// Reads a regular file.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_whole(&open(path)?, LIMIT_BYTES)
}

/// Reads a file that is not longer than it may be.
pub(crate) fn read_whole(file: &File, limit_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(limit_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit_bytes {
        let sentence = format!("it is longer than {limit_bytes} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, sentence));
    }
    Ok(bytes)
}
