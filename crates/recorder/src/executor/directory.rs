//! The directory of the pool: its contents before an execution, and how they are restored afterwards.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use powerfail_image::{DirectoryContents, FileContents, PageBytes};

use super::fold::Dirty;
use super::mappings::PoolNumber;

const PAGE: u64 = 4096;
static ZEROS: PageBytes = [0; PAGE as usize];

/// A file that the target maps.
#[derive(Debug)]
struct Pool {
    name: String,
    file: Option<File>,
    inode: u64,
}

/// The directory. It contains [`Directory::base`], except for what the last execution wrote.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// The contents at the start of an execution.
    base: DirectoryContents,
    pools: Vec<Pool>,
    by_name: BTreeMap<String, PoolNumber>,
    /// Names directly in the directory at the start of an execution.
    names: Vec<Vec<u8>>,
}

impl Directory {
    /// An existing, empty directory.
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            base: DirectoryContents::default(),
            pools: Vec::new(),
            by_name: BTreeMap::new(),
            names: Vec::new(),
        }
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The contents at the start of an execution.
    pub(super) const fn base(&self) -> &DirectoryContents {
        &self.base
    }

    /// The number of the pool with a path; `None` if the path is outside of the directory.
    pub(super) fn pool(&mut self, path: &Path) -> Option<PoolNumber> {
        let name = path.strip_prefix(&self.path).ok()?.to_str()?;
        if let Some(number) = self.by_name.get(name) {
            return Some(*number);
        }
        let number = PoolNumber(self.pools.len());
        self.by_name.insert(name.into(), number);
        self.pools.push(Pool {
            name: name.into(),
            file: None,
            inode: 0,
        });
        self.pools[number.0].open(&self.path);
        Some(number)
    }

    /// Whether files were created or removed, or a pool was replaced or resized.
    pub(super) fn is_disordered(&self) -> io::Result<bool> {
        for pool in &self.pools {
            let Some(file) = &pool.file else { continue };
            let expected = self.base.files.get(&pool.name);
            let metadata = file.metadata()?;
            if expected.is_none_or(|expected| expected.len_bytes != metadata.len())
                || metadata.nlink() == 0
            {
                return Ok(true);
            }
        }
        Ok(self.names != names_in(&self.path)?)
    }

    /// Restores the contents after an execution that wrote these pages. Compares everything if it changed something else, too.
    /// Returns whether the files are still the same ones: if not, processes that have them open use others.
    pub(super) fn put_back(&mut self, dirty: &mut Dirty, compare: bool) -> io::Result<bool> {
        let mut same = true;
        if compare {
            same = self.compare()?;
        } else {
            for (number, page) in &dirty.pages {
                let pool = &self.pools[number.0];
                let Some(file) = self.base.files.get(&pool.name) else {
                    continue;
                };
                if let Some(open) = &pool.file {
                    write_page(open, file, *page)?;
                }
            }
        }
        dirty.clear();
        Ok(same)
    }

    /// Compares everything with the base, and restores what differs.
    fn compare(&mut self) -> io::Result<bool> {
        let mut same = true;
        remove_strays(&self.path, "", &self.base)?;
        let base = std::mem::take(&mut self.base);
        for (name, expected) in &base.files {
            let path = self.path.join(name);
            let file = match File::options().read(true).write(true).open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    if let Some(parent) = path.parent() {
                        fs::create_dir_all(parent)?;
                    }
                    File::options()
                        .read(true)
                        .write(true)
                        .create(true)
                        .truncate(false)
                        .open(&path)?
                }
                Err(error) => return Err(error),
            };
            let inode = file.metadata()?.ino();
            let known = self.by_name.get(name).map(|number| &self.pools[number.0]);
            same &= known.is_none_or(|pool| pool.file.is_none() || pool.inode == inode);
            let actual = FileContents::read(&file)?;
            write_difference(&file, &actual, expected)?;
        }
        self.base = base;
        self.refresh()?;
        Ok(same)
    }

    /// Replaces the contents, which are now [`Directory::base`].
    pub(super) fn become_contents(&mut self, image: &DirectoryContents) -> io::Result<()> {
        for name in self.base.files.keys() {
            if !image.files.contains_key(name) {
                fs::remove_file(self.path.join(name))?;
            }
        }
        let nothing = FileContents::default();
        for (name, file) in &image.files {
            let before = self.base.files.get(name);
            if before.is_some_and(|before| is_same(before, file)) {
                continue;
            }
            let path = self.path.join(name);
            if before.is_none()
                && let Some(parent) = path.parent()
            {
                fs::create_dir_all(parent)?;
            }
            let open = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(before.is_none())
                .open(&path)?;
            write_difference(&open, before.unwrap_or(&nothing), file)?;
        }
        self.base = image.clone();
        self.refresh()
    }

    /// Makes the current contents the base.
    pub(super) fn keep(&mut self, dirty: &mut Dirty, compare: bool) -> io::Result<()> {
        self.base = self.contents(dirty, compare)?;
        dirty.clear();
        self.refresh()
    }

    /// The current contents.
    pub(super) fn contents(&self, dirty: &Dirty, compare: bool) -> io::Result<DirectoryContents> {
        if compare {
            let mut contents = DirectoryContents::read(&self.path)?;
            contents.share_with(&self.base);
            return Ok(contents);
        }
        let mut contents = self.base.clone();
        for (number, page) in &dirty.pages {
            let pool = &self.pools[number.0];
            if let (Some(file), Some(open)) = (contents.files.get_mut(&pool.name), &pool.file)
                && page * PAGE < file.len_bytes
            {
                file.read_page(open, *page)?;
            }
        }
        Ok(contents)
    }

    /// Reads the names and files again.
    fn refresh(&mut self) -> io::Result<()> {
        for pool in &mut self.pools {
            pool.open(&self.path);
        }
        self.names = names_in(&self.path)?;
        Ok(())
    }
}

impl Pool {
    fn open(&mut self, directory: &Path) {
        self.file = File::options()
            .read(true)
            .write(true)
            .open(directory.join(&self.name))
            .ok();
        let metadata = self.file.as_ref().and_then(|file| file.metadata().ok());
        self.inode = metadata.map_or(0, |metadata| metadata.ino());
    }
}

/// Whether two files share all their pages. Does not compare bytes.
fn is_same(one: &FileContents, other: &FileContents) -> bool {
    one.len_bytes == other.len_bytes
        && one.pages.len() == other.pages.len()
        && one
            .pages
            .iter()
            .zip(&other.pages)
            .all(|(one, other)| one.0 == other.0 && Arc::ptr_eq(one.1, other.1))
}

/// Restores a page of a file.
fn write_page(file: &File, contents: &FileContents, page: u64) -> io::Result<()> {
    let bytes = contents.pages.get(&page).map_or(&ZEROS, |bytes| bytes);
    let len = contents.len_bytes.saturating_sub(page * PAGE).min(PAGE);
    file.write_all_at(&bytes[..len as usize], page * PAGE)
}

/// Writes the pages that differ from those in the file.
fn write_difference(file: &File, actual: &FileContents, expected: &FileContents) -> io::Result<()> {
    file.set_len(expected.len_bytes)?;
    for (page, bytes) in &expected.pages {
        let is_there = |there: &Arc<PageBytes>| Arc::ptr_eq(there, bytes) || there == bytes;
        if !actual.pages.get(page).is_some_and(is_there) {
            write_page(file, expected, *page)?;
        }
    }
    for page in actual.pages.keys() {
        if !expected.pages.contains_key(page) && page * PAGE < expected.len_bytes {
            write_page(file, expected, *page)?;
        }
    }
    Ok(())
}

/// The names in a directory, in the order of the file system.
fn names_in(path: &Path) -> io::Result<Vec<Vec<u8>>> {
    let name = |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().as_bytes().to_vec());
    let mut names = fs::read_dir(path)?
        .map(name)
        .collect::<io::Result<Vec<_>>>()?;
    names.sort_unstable();
    Ok(names)
}

/// Removes files that do not belong to the contents.
fn remove_strays(directory: &Path, prefix: &str, base: &DirectoryContents) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let below = format!("{name}/");
            if base.files.keys().any(|file| file.starts_with(&below)) {
                remove_strays(&entry.path(), &below, base)?;
            } else {
                fs::remove_dir_all(entry.path())?;
            }
        } else if !kind.is_file() || !base.files.contains_key(&name) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
