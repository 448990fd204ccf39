//! A directory with private copies of all pools, in which one recovery runs at a time.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use powerfail_model::{CrashState, PoolIndex};

use crate::changed_pages::{ChangedPages, PoolImage};
use crate::cursor::{ImageCursor, Patch};
use crate::error::{Context, Result};
use crate::layout::{Companion, Layout, LayoutFile};
use crate::private_file::{Changes, PrivateFile};

const DIRECTORY_MODE: u32 = 0o700;

/// Private copies of all pools in one directory, brought to one crash image after the other.
#[derive(Debug)]
pub struct ImageSlot {
    directory: PathBuf,
    layout: Layout,
    /// In the order of the layout's files; `None` before the first time.
    files: Vec<Option<PrivateFile>>,
    leaves_extras: bool,
}

/// What it took to prepare a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prepared {
    /// How many pages were written.
    pub pages_written: u64,
    /// How many pages that recovery had made were given back.
    pub pages_punched: u64,
    /// How many pool files were made anew: all of them the first time, later those that recovery
    /// removed or replaced.
    pub files_created: u64,
    /// How many files and directories of recovery were removed.
    pub extras_removed: u64,
}

impl ImageSlot {
    pub(crate) fn new(directory: PathBuf, layout: Layout) -> Self {
        let files = layout.pool_files().iter().map(|_| None).collect();
        Self {
            directory,
            layout,
            files,
            leaves_extras: false,
        }
    }

    /// From now on what is neither a pool nor a companion stays: the directory is also used otherwise,
    /// and sees to what a recovery leaves there.
    pub fn leave_extras(&mut self) {
        self.leaves_extras = true;
    }

    /// Its directory. Exists from the first [`prepare`](Self::prepare) on.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The private file of a pool; `None` if the pool is not a file.
    pub fn path_of(&self, pool: PoolIndex) -> Option<PathBuf> {
        Some(self.directory.join(self.layout.relative_of(pool)?))
    }

    /// The path of each pool in the recorded run, and of its private file.
    pub fn files(&self) -> impl ExactSizeIterator<Item = (&Path, PathBuf)> {
        let files = self.layout.files();
        files.map(|(original, relative)| (original, self.directory.join(relative)))
    }

    /// The pool that each of the files holds after a crash at the cursor, in the order of
    /// [`files`](Self::files).
    pub fn pools(&self, cursor: &ImageCursor<'_>) -> Vec<Option<PoolIndex>> {
        let files = self.layout.pool_files().iter();
        files.map(|file| shown_pool(file, cursor)).collect()
    }

    /// Each directory with pools in the recorded run, and the private one that stands for it.
    pub fn directories(&self) -> impl ExactSizeIterator<Item = (&Path, PathBuf)> {
        let directories = self.layout.directories();
        directories.map(|(original, relative)| (original, self.directory.join(relative)))
    }

    /// Makes the directory exactly what a crash at the cursor leaves: every pool file equals its
    /// image in length and bytes, companions are as they were, and nothing else is there.
    ///
    /// No process may still use the slot's files. A line that `state` does not name holds its newest
    /// content. After an error the slot is in any state, and the next call repairs it.
    pub fn prepare(&mut self, cursor: &ImageCursor<'_>, state: &CrashState) -> Result<Prepared> {
        self.prepare_with(cursor, state, &[])
    }

    /// The same with bytes on top of it: what a recovery had written when the power failed again.
    pub fn prepare_with(
        &mut self,
        cursor: &ImageCursor<'_>,
        state: &CrashState,
        overlay: &[Patch],
    ) -> Result<Prepared> {
        let changed = cursor.changed_pages(state, overlay)?;
        let mut prepared = Prepared::default();
        make_directory(&self.directory)?;
        for (_, relative) in self.layout.directories() {
            if !relative.as_os_str().is_empty() {
                make_directory(&self.directory.join(relative))?;
            }
        }
        if !self.leaves_extras {
            prepared.extras_removed = self.remove_extras()?;
        }
        for (file, slot) in self.layout.pool_files().iter().zip(&mut self.files) {
            let path = self.directory.join(&file.relative);
            let private = match slot.take().filter(|private| private.is_at(&path)) {
                Some(private) => slot.insert(private),
                None => {
                    remove(&path)?;
                    prepared.files_created += 1;
                    slot.insert(PrivateFile::create(&path, file.mode).context("create", &path)?)
                }
            };
            let work = bring_to(private, file, cursor, &changed).context("write", &path)?;
            prepared.pages_written += work.pages_written;
            prepared.pages_punched += work.pages_punched;
        }
        for companion in self.layout.companions() {
            restore(&self.directory.join(&companion.relative), companion)?;
        }
        Ok(prepared)
    }

    /// Removes everything that is neither a directory nor a file of the layout.
    fn remove_extras(&self) -> Result<u64> {
        let mut removed = 0;
        let mut clean = |directory: &Path, relative: &Path| -> Result<()> {
            for entry in fs::read_dir(directory).context("list", directory)? {
                let name = entry.context("list", directory)?.file_name();
                if !self.knows(relative, &name) {
                    remove(&directory.join(name))?;
                    removed += 1;
                }
            }
            Ok(())
        };
        clean(&self.directory, Path::new(""))?;
        for (_, relative) in self.layout.directories() {
            if !relative.as_os_str().is_empty() {
                clean(&self.directory.join(relative), relative)?;
            }
        }
        Ok(removed)
    }

    fn knows(&self, directory: &Path, name: &OsStr) -> bool {
        let is = |path: &Path| path.parent() == Some(directory) && path.file_name() == Some(name);
        let layout = &self.layout;
        layout.files().any(|(_, relative)| is(relative))
            || layout.companions().iter().any(|file| is(&file.relative))
            || layout.directories().any(|(_, relative)| is(relative))
    }
}

/// Of several pools that had the same path one after the other, the last that was changed is there.
fn shown_pool(file: &LayoutFile, cursor: &ImageCursor<'_>) -> Option<PoolIndex> {
    let pools = cursor.pools();
    let alive = file
        .pools
        .iter()
        .rev()
        .find(|&&pool| pools.is_changed(pool));
    alive.or(file.pools.first()).copied()
}

pub(crate) fn bring_to(
    private: &mut PrivateFile,
    file: &LayoutFile,
    cursor: &ImageCursor<'_>,
    changed: &ChangedPages,
) -> io::Result<Changes> {
    let Some((pool, newest)) =
        shown_pool(file, cursor).and_then(|pool| Some((pool, cursor.pools().pool(pool)?)))
    else {
        return Ok(Changes::default());
    };
    private.bring_to(&PoolImage {
        newest,
        changed: changed.of(pool),
    })
}

/// Makes sure that a private directory is there and can be used.
fn make_directory(path: &Path) -> Result<()> {
    match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => {
            if metadata.mode() & 0o7777 != DIRECTORY_MODE {
                let permissions = Permissions::from_mode(DIRECTORY_MODE);
                fs::set_permissions(path, permissions).context("repair", path)?;
            }
            return Ok(());
        }
        Ok(_) => fs::remove_file(path).context("remove", path)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).context("look at", path),
    }
    let mut builder = DirBuilder::new();
    builder
        .mode(DIRECTORY_MODE)
        .create(path)
        .context("create", path)
}

/// Removes a file or a directory with all that is in it, if it is there.
pub(crate) fn remove(path: &Path) -> Result<()> {
    let metadata = match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.context("look at", path)?,
    };
    if !metadata.is_dir() {
        return fs::remove_file(path).context("remove", path);
    }
    remove_tree(path)
}

/// Removes a directory even if its permissions were taken away.
pub(crate) fn remove_tree(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_up(path);
            fs::remove_dir_all(path).context("remove", path)
        }
        other => other.context("remove", path),
    }
}

/// Gives the owner all rights to a directory and to those in it. Follows no links.
fn open_up(path: &Path) {
    let _ = fs::set_permissions(path, Permissions::from_mode(DIRECTORY_MODE));
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}

/// Makes a companion what it was.
pub(crate) fn restore(path: &Path, companion: &Companion) -> Result<()> {
    if is_intact(path, companion) {
        return Ok(());
    }
    remove(path)?;
    let mut options = File::options();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .context("create", path)?;
    file.write_all(&companion.content).context("write", path)?;
    file.set_permissions(Permissions::from_mode(companion.mode))
        .context("write", path)
}

fn is_intact(path: &Path, companion: &Companion) -> bool {
    let Ok(metadata) = path.symlink_metadata() else {
        return false;
    };
    if !metadata.is_file()
        || metadata.mode() & 0o7777 != companion.mode
        || metadata.len() != companion.content.len() as u64
        || metadata.nlink() != 1
    {
        return false;
    }
    let mut content = Vec::with_capacity(companion.content.len());
    File::open(path).is_ok_and(|mut file| {
        file.read_to_end(&mut content).is_ok() && content == companion.content
    })
}
