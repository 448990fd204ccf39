//! Files that powerfail writes where a user wants them.
//!
//! The parents of a path are the user's choice and may be links. The file itself is not: a link that lies where an output
//! belongs is not followed, and a file that has another name is not changed.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, openat, renameat_with};
use rustix::io::Errno;

use crate::content;
use crate::refusal;

const WRITE: OFlags = OFlags::RDWR
    .union(OFlags::CREATE)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Opens a file to read and write, or makes it. Its content stays.
pub fn open(path: &Path) -> io::Result<File> {
    let file = openat(CWD, path, WRITE, Mode::from_raw_mode(0o666))
        .map_err(|error| refusal::explained(error, CWD, path))?;
    refusal::sole(File::from(file))
}

/// Makes an empty file, or empties an existing one.
pub fn create(path: &Path) -> io::Result<File> {
    let file = open(path)?;
    file.set_len(0)?;
    Ok(file)
}

/// Writes a file as a whole: a kill or an error leaves the old one or the new one. A link in its place is replaced.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let unfinished = unfinished(path);
    let written = replace_by(&unfinished, path, bytes);
    if written.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    written
}

/// The name of a file until it is complete. It is hidden, so that it is not taken for a file of the user.
fn unfinished(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    path.with_file_name(name)
}

fn replace_by(unfinished: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    // What a killed process has left.
    match fs::remove_file(unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = File::create_new(unfinished)?;
    file.write_all(bytes)?;
    fs::rename(unfinished, path)
}

/// Lets two directories change places. Where the file system can, there is no moment at which one of the names is missing.
pub fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    match renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            let between = unfinished(one);
            fs::rename(one, &between)?;
            fs::rename(other, one)?;
            fs::rename(between, other)
        }
        done => Ok(done?),
    }
}

/// Copies a file, which is not a link in its new place.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    content::copy(&File::open(from)?, &create(to)?)
}

/// Refuses a path that is a link.
pub fn refuse_link(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => Err(refusal::link()),
        _ => Ok(()),
    }
}
