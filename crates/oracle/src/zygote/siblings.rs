//! The entries of a directory that is mounted over: they are mounted again into what covers it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, mount, mount_bind_recursive};

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Directory,
    Link,
    File,
}

/// The entries of a directory other than these. If there are more than `max`, not all of them.
pub(crate) fn of(
    directory: &Path,
    others: &[OsString],
    max: usize,
) -> io::Result<Vec<(OsString, Kind)>> {
    let mut siblings = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if others.contains(&name) {
            continue;
        }
        let kind = entry.file_type()?;
        let kind = if kind.is_dir() {
            Kind::Directory
        } else if kind.is_symlink() {
            Kind::Link
        } else {
            Kind::File
        };
        siblings.push((name, kind));
        if siblings.len() > max {
            break;
        }
    }
    Ok(siblings)
}

/// Opens a directory, to reach it when it is covered.
pub(crate) fn open_directory(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
        .open(path)
}

/// A path to an open directory that may be mounted over by now.
pub(crate) fn path_of(directory: &File) -> PathBuf {
    Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string())
}

/// A path to an entry of a directory that may be mounted over by now.
pub(crate) fn under(directory: &File, name: &OsStr) -> PathBuf {
    path_of(directory).join(name)
}

/// Covers a directory with a file system in memory that holds these of its entries.
pub(crate) fn replace_by_memory(
    original: &File,
    at: &Path,
    siblings: &[(OsString, Kind)],
) -> io::Result<()> {
    let mode = original.metadata()?.permissions().mode() & 0o7777;
    mount(c"powerfail", at, c"tmpfs", MountFlags::empty(), None)?;
    fs::set_permissions(at, fs::Permissions::from_mode(mode))?;
    make_placeholders(original, at, siblings)?;
    mount_into(original, at, siblings)
}

/// Creates mount points for siblings; symbolic links are created again.
pub(crate) fn make_placeholders(
    original: &File,
    place: &Path,
    siblings: &[(OsString, Kind)],
) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for (name, kind) in siblings {
        let at = place.join(name);
        let made = match kind {
            Kind::Directory => fs::create_dir(&at),
            Kind::Link => fs::read_link(under(original, name))
                .and_then(|target| std::os::unix::fs::symlink(target, &at)),
            Kind::File => File::create_new(&at).map(drop),
        };
        match made {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        names.push(name.clone());
    }
    Ok(names)
}

/// Mounts siblings at their mount points.
pub(crate) fn mount_into(
    original: &File,
    at: &Path,
    siblings: &[(OsString, Kind)],
) -> io::Result<()> {
    for (name, kind) in siblings {
        if *kind == Kind::Link {
            continue;
        }
        match mount_bind_recursive(under(original, name), at.join(name)) {
            // It was removed in the meantime, or may not be accessed.
            Ok(()) | Err(rustix::io::Errno::NOENT | rustix::io::Errno::ACCESS) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
