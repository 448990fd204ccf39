//! Copies of crash images, to run recovery on the same image several times.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use powerfail_files::content;

/// Copies of some files. Holes stay holes.
#[derive(Debug)]
pub(crate) struct Backup {
    /// The file, its copy, and its permissions.
    files: Vec<(PathBuf, File, u32)>,
}

impl Backup {
    /// Copies files into memory.
    pub(crate) fn of<'p>(paths: impl Iterator<Item = &'p PathBuf>) -> io::Result<Self> {
        let mut files = Vec::new();
        for path in paths {
            let from = File::open(path)?;
            let flags = rustix::fs::MemfdFlags::CLOEXEC;
            let copy: File = rustix::fs::memfd_create("powerfail-backup", flags)?.into();
            content::copy(&from, &copy)?;
            let mode = from.metadata()?.permissions().mode();
            files.push((path.clone(), copy, mode));
        }
        Ok(Self { files })
    }

    /// Restores the files, even if they were replaced or removed.
    pub(crate) fn restore(&self) -> io::Result<()> {
        for (path, copy, mode) in &self.files {
            match path.symlink_metadata() {
                Ok(metadata) if metadata.is_file() => {}
                Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path)?,
                Ok(_) => fs::remove_file(path)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            if let Ok(metadata) = path.symlink_metadata()
                && metadata.permissions().mode() & 0o600 != 0o600
            {
                fs::set_permissions(path, Permissions::from_mode(0o600))?;
            }
            let mut options = File::options();
            let file = options.write(true).create(true).truncate(true).open(path)?;
            content::copy(copy, &file)?;
            fs::set_permissions(path, Permissions::from_mode(*mode))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_what_they_were() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let sparse = File::create(path("sparse")).unwrap();
        sparse.set_len(8 << 20).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&sparse, b"far", 5 << 20).unwrap();
        let expected = fs::read(path("sparse")).unwrap();
        fs::write(path("removed"), "content").unwrap();
        fs::write(path("replaced"), "of a file").unwrap();
        let paths = ["sparse", "removed", "replaced"].map(path);
        let backup = Backup::of(paths.iter()).unwrap();
        fs::write(&paths[0], "short").unwrap();
        fs::remove_file(&paths[1]).unwrap();
        fs::remove_file(&paths[2]).unwrap();
        fs::create_dir(&paths[2]).unwrap();
        for _ in 0..2 {
            backup.restore().unwrap();
            assert_eq!(fs::read(&paths[0]).unwrap(), expected);
            assert_eq!(fs::read(&paths[1]).unwrap(), b"content");
            assert_eq!(fs::read(&paths[2]).unwrap(), b"of a file");
        }
    }
}
