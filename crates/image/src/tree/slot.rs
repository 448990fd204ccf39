//! Directories on disk that are brought to one tree after the other.
//!
//! What a slot holds is known from the last time. Before it is used again, every entry is looked at: what recovery has
//! added is removed, what it has removed or replaced is made again, and files that it had open for writing are compared
//! with the image byte for byte. The others are written only where two images differ. Files that have no name in an
//! image are put aside under a name that recovery does not see, because the next image may need them: a tree that
//! differs by a rename costs a rename.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::content::FileContent;
use super::image::{NodeKey, TreeEntry, TreeFile, TreeImage};
use super::watch::{NodeSet, Watched, WriteWatch};
use crate::error::{Context, Result};
use crate::page::PAGE;
use crate::private_file::PrivateFile;
use crate::slot::remove;

const PRIVATE_MODE: u32 = 0o700;
const MODE_BITS: u32 = 0o7777;
/// How many files without a name are kept for later images.
const PARKED_MAX: usize = 256;

/// A directory with private copies of trees, brought to one image after the other.
#[derive(Debug)]
pub struct TreeSlot {
    /// Holds the roots, by their numbers.
    trees: PathBuf,
    /// Holds files without a name.
    parked: PathBuf,
    /// The roots in the recorded run.
    originals: Vec<PathBuf>,
    /// What is on disk, as far as recovery has not changed it.
    entries: BTreeMap<PathBuf, TreeEntry>,
    files: BTreeMap<NodeKey, KnownFile>,
    watch: WriteWatch,
    /// What recovery has done to files, as far as it was asked for already.
    watched: Option<Watched>,
}

/// What a recovery did to the tree that it was given.
#[derive(Clone, Debug, Default)]
pub struct TreeUse {
    /// The files that it has opened: it cannot have seen the bytes of others.
    pub opened: NodeSet,
    /// Whether it may have changed something: bytes, or names.
    pub is_changed: bool,
}

/// A file on disk.
#[derive(Debug)]
struct KnownFile {
    device: u64,
    inode: u64,
    mode: u32,
    /// `None` if recovery may have changed it.
    content: Option<FileContent>,
    is_parked: bool,
}

/// What it took to prepare a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreePrepared {
    /// How many files were compared byte for byte.
    pub files_compared: u64,
    /// How many pages were written.
    pub pages_written: u64,
    /// How many files were made anew.
    pub files_created: u64,
    /// How many entries were removed that recovery had made or replaced.
    pub extras_removed: u64,
}

impl TreeSlot {
    pub(crate) fn new(directory: &Path, originals: Vec<PathBuf>) -> Self {
        Self {
            trees: directory.join("trees"),
            parked: directory.join("parked"),
            originals,
            entries: BTreeMap::new(),
            files: BTreeMap::new(),
            watch: WriteWatch::new(),
            watched: None,
        }
    }

    /// The path of each root in the recorded run, and of the private directory that stands for it. The directories exist
    /// from the first [`prepare`](Self::prepare) on, and stay the same.
    pub fn roots(&self) -> impl ExactSizeIterator<Item = (&Path, PathBuf)> {
        let originals = self.originals.iter().enumerate();
        originals.map(|(number, original)| {
            (original.as_path(), self.trees.join(TreeImage::root(number)))
        })
    }

    /// Makes the directories exactly what an image says: names, kinds, permissions, hard links and bytes. No process may
    /// still use them. After an error the slot is in any state, and the next call repairs it.
    pub fn prepare(&mut self, image: &TreeImage) -> Result<TreePrepared> {
        let mut prepared = TreePrepared::default();
        for directory in [self.trees.parent(), Some(&self.trees), Some(&self.parked)] {
            make_directory(directory.unwrap_or(Path::new("/")))?;
        }
        self.inspect(&mut prepared)?;
        self.remove_unwanted(image)?;
        self.add_missing(image, &mut prepared)?;
        self.bring_files(image, &mut prepared)?;
        self.set_modes(image)?;
        // What was done here is not what recovery did.
        let _ = self.watch.take();
        Ok(prepared)
    }

    /// The file on disk with a device and an inode, unless recovery has made it.
    pub fn node_of(&self, device: u64, inode: u64) -> Option<NodeKey> {
        let mut files = self.files.iter();
        let found = files.find(|(_, file)| (file.device, file.inode) == (device, inode));
        found.map(|(node, _)| *node)
    }

    /// What recovery did to the tree since it was prepared. No process may still use it.
    pub fn used(&mut self) -> TreeUse {
        let watched = self.watch.take();
        let used = TreeUse {
            opened: watched.opened.clone(),
            // A directory that cannot be listed any more is a change, too.
            is_changed: !watched.changed.is_empty() || self.has_other_names().unwrap_or(true),
        };
        self.watched = Some(watched);
        used
    }

    /// Whether names were added, removed or given to other files.
    fn has_other_names(&self) -> Result<bool> {
        let mut count = 0;
        let mut waiting = vec![PathBuf::new()];
        while let Some(directory) = waiting.pop() {
            let at = self.trees.join(&directory);
            for entry in fs::read_dir(&at).context("list", &at)? {
                let entry = entry.context("list", &at)?;
                let relative = directory.join(entry.file_name());
                let inode = std::os::unix::fs::DirEntryExt::ino(&entry);
                match self.entries.get(&relative) {
                    Some(TreeEntry::Directory { .. }) if entry.path().is_dir() => {
                        waiting.push(relative);
                    }
                    Some(TreeEntry::File(node))
                        if self.files.get(node).is_some_and(|it| it.inode == inode) => {}
                    Some(TreeEntry::Link { .. }) => {}
                    _ => return Ok(true),
                }
                count += 1;
            }
        }
        Ok(count != self.entries.len())
    }

    /// Finds out what is on disk, and removes what is not known.
    fn inspect(&mut self, prepared: &mut TreePrepared) -> Result<()> {
        let later = self.watch.take().changed;
        let asked = self.watched.take().map(|it| it.changed).unwrap_or_default();
        let changed = |node| later.contains(node) || asked.contains(node);
        for (node, file) in &mut self.files {
            if changed(*node) {
                file.content = None;
            }
        }
        let mut names: BTreeMap<NodeKey, u64> = BTreeMap::new();
        for entry in self.entries.values() {
            if let TreeEntry::File(node) = entry {
                *names.entry(*node).or_default() += 1;
            }
        }
        let mut seen = BTreeSet::new();
        let mut waiting = vec![PathBuf::new()];
        while let Some(directory) = waiting.pop() {
            let at = self.trees.join(&directory);
            for entry in fs::read_dir(&at).context("list", &at)? {
                let name = entry.context("list", &at)?.file_name();
                let (relative, path) = (directory.join(&name), at.join(&name));
                let metadata = path.symlink_metadata().context("look at", &path)?;
                let is_known = match self.entries.get(&relative) {
                    Some(TreeEntry::Directory { .. }) if metadata.is_dir() => {
                        if metadata.mode() & PRIVATE_MODE != PRIVATE_MODE {
                            set_mode(&path, PRIVATE_MODE)?;
                        }
                        waiting.push(relative.clone());
                        true
                    }
                    Some(TreeEntry::File(node)) => match self.files.get_mut(node) {
                        Some(file)
                            if metadata.is_file()
                                && (metadata.dev(), metadata.ino())
                                    == (file.device, file.inode)
                                && names.get(node) == Some(&metadata.nlink()) =>
                        {
                            file.mode = metadata.mode() & MODE_BITS;
                            true
                        }
                        _ => false,
                    },
                    Some(TreeEntry::Link { target }) => {
                        metadata.is_symlink() && fs::read_link(&path).is_ok_and(|it| it == *target)
                    }
                    _ => false,
                };
                if is_known {
                    seen.insert(relative);
                } else {
                    remove(&path)?;
                    prepared.extras_removed += 1;
                }
            }
        }
        self.entries.retain(|path, _| seen.contains(path));
        let present: BTreeSet<NodeKey> = self.entries.values().filter_map(node_of).collect();
        let gone: Vec<NodeKey> = { self.files.iter() }
            .filter(|(node, file)| !file.is_parked && !present.contains(*node))
            .map(|(node, _)| *node)
            .collect();
        for node in gone {
            self.forget(node);
        }
        Ok(())
    }

    fn forget(&mut self, node: NodeKey) {
        self.files.remove(&node);
        self.watch.forget(node);
    }

    /// Removes what is not in the image, children before their directories.
    fn remove_unwanted(&mut self, image: &TreeImage) -> Result<()> {
        let mut names: BTreeMap<NodeKey, usize> = BTreeMap::new();
        for node in self.entries.values().filter_map(node_of) {
            *names.entry(node).or_default() += 1;
        }
        let mut parked = self.files.values().filter(|it| it.is_parked).count();
        let paths: Vec<PathBuf> = self.entries.keys().rev().cloned().collect();
        for path in paths {
            let (Some(entry), wanted) = (self.entries.get(&path), image.entries.get(&path)) else {
                continue;
            };
            let stays = match (entry, wanted) {
                (TreeEntry::Directory { .. }, Some(TreeEntry::Directory { .. })) => true,
                (entry, wanted) => Some(entry) == wanted,
            };
            if stays {
                continue;
            }
            let at = self.trees.join(&path);
            match entry {
                TreeEntry::Directory { .. } => fs::remove_dir(&at).context("remove", &at)?,
                TreeEntry::Link { .. } => fs::remove_file(&at).context("remove", &at)?,
                TreeEntry::File(node) => {
                    let node = *node;
                    let left = names.entry(node).or_default();
                    *left -= 1;
                    if *left > 0 || parked >= PARKED_MAX {
                        fs::remove_file(&at).context("remove", &at)?;
                        if *left == 0 {
                            self.forget(node);
                        }
                    } else {
                        let aside = parked_path(&self.parked, node);
                        fs::rename(&at, &aside).context("put aside", &at)?;
                        if let Some(file) = self.files.get_mut(&node) {
                            file.is_parked = true;
                        }
                        parked += 1;
                    }
                }
            }
            self.entries.remove(&path);
        }
        Ok(())
    }

    /// Makes what is missing, directories before what is in them.
    fn add_missing(&mut self, image: &TreeImage, prepared: &mut TreePrepared) -> Result<()> {
        let mut known: BTreeMap<NodeKey, PathBuf> = BTreeMap::new();
        for (path, entry) in &self.entries {
            if let Some(node) = node_of(entry) {
                known.entry(node).or_insert_with(|| path.clone());
            }
        }
        for (path, entry) in &image.entries {
            if self.entries.contains_key(path) {
                continue;
            }
            let at = self.trees.join(path);
            match entry {
                TreeEntry::Directory { .. } => make_directory(&at)?,
                TreeEntry::Link { target } => {
                    std::os::unix::fs::symlink(target, &at).context("create", &at)?;
                }
                TreeEntry::File(node) => match (known.get(node), self.files.get_mut(node)) {
                    (Some(other), Some(_)) => {
                        fs::hard_link(self.trees.join(other), &at).context("create", &at)?;
                    }
                    (None, Some(file)) if file.is_parked => {
                        let aside = parked_path(&self.parked, *node);
                        fs::rename(&aside, &at).context("bring back", &at)?;
                        file.is_parked = false;
                    }
                    _ => {
                        let made = OpenOptions::new()
                            .write(true)
                            .create_new(true)
                            .mode(0o600)
                            .open(&at)
                            .context("create", &at)?;
                        let metadata = made.metadata().context("look at", &at)?;
                        let file = KnownFile {
                            device: metadata.dev(),
                            inode: metadata.ino(),
                            mode: metadata.mode() & MODE_BITS,
                            content: Some(FileContent::default()),
                            is_parked: false,
                        };
                        self.files.insert(*node, file);
                        self.watch.add(*node, &at);
                        prepared.files_created += 1;
                    }
                },
            }
            if let Some(node) = node_of(entry) {
                known.entry(node).or_insert_with(|| path.clone());
            }
            self.entries.insert(path.clone(), entry.clone());
        }
        Ok(())
    }

    /// Gives every file its bytes and permissions.
    fn bring_files(&mut self, image: &TreeImage, prepared: &mut TreePrepared) -> Result<()> {
        let mut done = BTreeSet::new();
        for (path, entry) in &image.entries {
            let Some(node) = node_of(entry).filter(|node| done.insert(*node)) else {
                continue;
            };
            let (Some(wanted), Some(known)) = (image.files.get(&node), self.files.get_mut(&node))
            else {
                continue;
            };
            known.bring_to(wanted, &self.trees.join(path), prepared)?;
        }
        Ok(())
    }

    /// Gives directories their permissions, inner ones first.
    fn set_modes(&self, image: &TreeImage) -> Result<()> {
        for (path, entry) in image.entries.iter().rev() {
            if let TreeEntry::Directory { mode } = entry {
                let at = self.trees.join(path);
                let current = at.symlink_metadata().context("look at", &at)?.mode();
                if current & MODE_BITS != *mode {
                    set_mode(&at, *mode)?;
                }
            }
        }
        Ok(())
    }
}

impl KnownFile {
    fn bring_to(
        &mut self,
        wanted: &TreeFile,
        at: &Path,
        prepared: &mut TreePrepared,
    ) -> Result<()> {
        let content = &wanted.content;
        if let Some(known) = &self.content {
            let pages = content.differing_pages(known);
            if !pages.is_empty() || known.len_bytes() != content.len_bytes() {
                // Until the last page is written, it has neither the old nor the new bytes.
                let file = self.open(at)?;
                self.content = None;
                write_pages(&file, content, &pages).context("write", at)?;
                prepared.pages_written += pages.len() as u64;
            }
        } else {
            let file = self.open(at)?;
            let mut private = PrivateFile::of(file, self.mode).context("look at", at)?;
            let changes = private.bring_to(&content).context("write", at)?;
            prepared.files_compared += 1;
            prepared.pages_written += changes.pages_written;
        }
        self.content = Some(content.clone());
        if self.mode != wanted.mode {
            set_mode(at, wanted.mode)?;
            self.mode = wanted.mode;
        }
        Ok(())
    }

    /// Opens the file, even if recovery or the image took the permission to.
    fn open(&mut self, at: &Path) -> Result<File> {
        if self.mode & 0o600 != 0o600 {
            self.mode |= 0o600;
            set_mode(at, self.mode)?;
        }
        let mut options = OpenOptions::new();
        let options = options
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOFOLLOW);
        options.open(at).context("open", at)
    }
}

/// Writes pages of a content to a file that has all other pages already.
fn write_pages(file: &File, content: &FileContent, pages: &[u64]) -> io::Result<()> {
    let len_bytes = content.len_bytes();
    file.set_len(len_bytes)?;
    let mut buffer = vec![0; PAGE as usize];
    for page in pages {
        let start = page * PAGE;
        let len = len_bytes.saturating_sub(start).min(PAGE) as usize;
        content.read(start, &mut buffer[..len]);
        file.write_all_at(&buffer[..len], start)?;
    }
    Ok(())
}

const fn node_of(entry: &TreeEntry) -> Option<NodeKey> {
    match entry {
        TreeEntry::File(node) => Some(*node),
        TreeEntry::Directory { .. } | TreeEntry::Link { .. } => None,
    }
}

fn parked_path(parked: &Path, node: NodeKey) -> PathBuf {
    parked.join(node.0.to_string())
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode)).context("change the mode of", path)
}

/// Makes a directory that only its owner can use, unless it is there.
fn make_directory(path: &Path) -> Result<()> {
    match DirBuilder::new().mode(PRIVATE_MODE).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.context("create", path),
    }
}

/// Writes an image into an existing directory that is empty: each root is a directory named by its number, or the
/// directory itself if there is only one.
pub fn write_tree(image: &TreeImage, root_count: usize, to: &Path) -> Result<()> {
    let mut written: BTreeMap<NodeKey, PathBuf> = BTreeMap::new();
    let place = |path: &Path| match root_count {
        1 => to.join(path.strip_prefix(TreeImage::root(0)).unwrap_or(path)),
        _ => to.join(path),
    };
    for (path, entry) in &image.entries {
        let at = place(path);
        match entry {
            TreeEntry::Directory { .. } => make_directory(&at)?,
            TreeEntry::Link { target } => {
                std::os::unix::fs::symlink(target, &at).context("create", &at)?;
            }
            TreeEntry::File(node) => {
                if let Some(other) = written.get(node) {
                    fs::hard_link(other, &at).context("create", &at)?;
                    continue;
                }
                let Some(wanted) = image.files.get(node) else {
                    continue;
                };
                let file = File::create_new(&at).context("create", &at)?;
                let empty = FileContent::default();
                let pages = wanted.content.differing_pages(&empty);
                write_pages(&file, &wanted.content, &pages).context("write", &at)?;
                set_mode(&at, wanted.mode)?;
                written.insert(*node, at);
            }
        }
    }
    for (path, entry) in image.entries.iter().rev() {
        if let TreeEntry::Directory { mode } = entry {
            set_mode(&place(path), *mode)?;
        }
    }
    Ok(())
}
