//! Mounts crash images over pools, in the mount namespace of this zygote.
//!
//! The header of the crate says when a directory is mounted and when a file is. Each mount is compared with its
//! source before each run, because a file or directory of images may have been replaced by a new one.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::mount::{UnmountFlags, mount_bind_recursive, unmount};

use crate::plan::PoolMapping;
use crate::zygote::file_access::{self, FileAccess};
use crate::zygote::siblings::{self, Kind, open_directory, under};
use crate::zygote::step::StepError;

/// Files beside pools are copied, so that recovery can rename, change and remove them: each if it is not longer than
/// this, and all together.
const COPY_BYTES: u64 = 1 << 20;
const COPIES_BYTES: u64 = 16 << 20;
const COPIES: usize = 512;
/// A directory with more entries than this beside the pool is not mounted over: each costs a mount, some
/// twenty microseconds of setting up a slot.
const MAX_SIBLINGS: usize = 4096;

#[derive(Clone, Debug)]
enum PoolMount {
    /// The private directory over that of the pools with these names.
    Directory {
        at: PathBuf,
        source: PathBuf,
        pools: Vec<OsString>,
    },
    /// The image over the pool.
    File { at: PathBuf, source: PathBuf },
    /// The image of a tree over its directory. Nothing else of the directory is shown.
    Tree { at: PathBuf, source: PathBuf },
}

/// All mounts of a slot.
#[derive(Debug, Default)]
pub(crate) struct PoolMounts {
    all: Vec<PoolMount>,
    /// Directories that were missing, and were created in a file system in memory.
    made: Vec<PathBuf>,
    placeholders: Vec<PathBuf>,
    copies: Vec<CopiedFile>,
    /// Private directories in which missing ones can be created.
    scratch: Vec<PathBuf>,
    /// Whether mounts are read-only unless they are made writable.
    is_restricted: bool,
}

/// A copy of a file that lies beside a pool.
#[derive(Debug)]
struct CopiedFile {
    /// Where it is: in a private directory.
    path: PathBuf,
    content: Vec<u8>,
    mode: u32,
    /// What the kernel said of it when it was written.
    stamp: Option<Stamp>,
}

/// Differs after a file was changed or replaced: inode, length, times of the last changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp(u64, u64, [i64; 4]);

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let it = fs::symlink_metadata(path).ok()?;
        let times = [it.mtime(), it.mtime_nsec(), it.ctime(), it.ctime_nsec()];
        Some(Self(it.ino(), it.len(), times))
    }
}

impl CopiedFile {
    fn of(original: &Path, path: PathBuf) -> io::Result<Self> {
        let mut copy = Self {
            path,
            content: fs::read(original)?,
            mode: fs::metadata(original)?.permissions().mode(),
            stamp: None,
        };
        copy.restore()?;
        Ok(copy)
    }

    /// Makes it what it was.
    fn restore(&mut self) -> io::Result<()> {
        let stamp = Stamp::of(&self.path);
        if stamp.is_some() && stamp == self.stamp {
            return Ok(());
        }
        match fs::symlink_metadata(&self.path) {
            Ok(it) if it.is_dir() => fs::remove_dir_all(&self.path)?,
            Ok(_) => fs::remove_file(&self.path)?,
            Err(_) => {}
        }
        fs::write(&self.path, &self.content)?;
        fs::set_permissions(&self.path, fs::Permissions::from_mode(self.mode))?;
        self.stamp = Stamp::of(&self.path);
        Ok(())
    }
}

impl PoolMounts {
    pub(crate) fn new(mappings: &[PoolMapping]) -> Self {
        let mut by_directory: BTreeMap<&Path, Vec<&PoolMapping>> = BTreeMap::new();
        let mut mounts = Vec::new();
        for it in mappings {
            if it.is_tree() {
                mounts.push(PoolMount::Tree {
                    at: it.original.clone(),
                    source: it.private.clone(),
                });
                continue;
            }
            let directory = it.original.parent().unwrap_or(Path::new("/"));
            by_directory.entry(directory).or_default().push(it);
        }
        for (at, pools) in &by_directory {
            match private_directory(at, pools, mappings) {
                Some(source) => mounts.push(PoolMount::Directory {
                    at: (*at).into(),
                    source,
                    pools: pools
                        .iter()
                        .filter_map(|it| it.original.file_name().map(Into::into))
                        .collect(),
                }),
                None => mounts.extend(pools.iter().map(|it| PoolMount::File {
                    at: it.original.clone(),
                    source: it.private.clone(),
                })),
            }
        }
        // What lies deeper is mounted later, on what is mounted already.
        mounts.sort_by_key(|mount| mount.at().components().count());
        Self {
            all: mounts,
            ..Self::default()
        }
    }

    /// Images are mounted into a file system that is restricted.
    pub(crate) fn within(&mut self, access: &FileAccess) {
        self.is_restricted = true;
        self.scratch = access.scratch().map(Into::into).collect();
    }

    fn make_writable(&self, at: &Path) -> io::Result<()> {
        if self.is_restricted {
            file_access::make_writable(at)?;
        }
        Ok(())
    }

    /// Mounts everything. Returns the files that were created in private directories as mount points.
    pub(crate) fn mount(&mut self) -> Result<Vec<PathBuf>, StepError> {
        for mount in self.all.clone() {
            self.mount_one(&mount).map_err(|error| {
                StepError::new(format!("mount on {}", mount.at().display()), error)
            })?;
        }
        Ok(self.placeholders.clone())
    }

    /// Mounts everything again if a source was replaced. Whether that was so.
    pub(crate) fn refresh(&mut self) -> Result<bool, StepError> {
        let same =
            |mount: &PoolMount| match (fs::metadata(mount.source()), fs::metadata(mount.at())) {
                (Ok(source), Ok(at)) => (source.dev(), source.ino()) == (at.dev(), at.ino()),
                _ => false,
            };
        if self.all.iter().all(same) {
            for copy in &mut self.copies {
                copy.restore().map_err(|error| {
                    StepError::new(format!("restore {}", copy.path.display()), error)
                })?;
            }
            return Ok(false);
        }
        for mount in self.all.iter().rev() {
            // It may be gone already.
            let _ = unmount(mount.at(), UnmountFlags::DETACH);
        }
        for made in self.made.drain(..).rev() {
            let _ = unmount(&made, UnmountFlags::DETACH);
        }
        self.placeholders.clear();
        self.copies.clear();
        self.mount().map(|_| true)
    }

    fn mount_one(&mut self, mount: &PoolMount) -> io::Result<()> {
        match mount {
            PoolMount::Directory { at, source, pools } => {
                if !at.is_dir() {
                    self.make_directory(at)?;
                }
                let mut siblings = siblings::of(at, pools, MAX_SIBLINGS)?;
                let original = open_directory(at)?;
                let copied = self.copy_files(&original, source, &mut siblings, pools);
                self.placeholders.extend(copied);
                let names = siblings::make_placeholders(&original, source, &siblings)?;
                mount_bind_recursive(source, at)?;
                self.make_writable(at)?;
                siblings::mount_into(&original, at, &siblings)?;
                self.placeholders
                    .extend(names.iter().map(|name| source.join(name)));
            }
            PoolMount::File { at, source } => {
                let directory = at.parent().unwrap_or(Path::new("/"));
                if !directory.is_dir() {
                    self.make_directory(directory)?;
                }
                if !at.exists() {
                    // Nothing is created in a directory of the user, only in one of ours.
                    if !self.is_ours(at) {
                        return Err(io::ErrorKind::NotFound.into());
                    }
                    File::create(at)?;
                }
                mount_bind_recursive(source, at)?;
                self.make_writable(at)?;
            }
            PoolMount::Tree { at, source } => {
                if !at.is_dir() {
                    self.make_directory(at)?;
                }
                mount_bind_recursive(source, at)?;
                self.make_writable(at)?;
            }
        }
        Ok(())
    }

    /// Copies files into the directory of the images and takes them from the siblings, which are mounted. If they are
    /// too many, only those that are named after a pool. Returns the copies.
    fn copy_files(
        &mut self,
        original: &File,
        source: &Path,
        siblings: &mut Vec<(OsString, Kind)>,
        pools: &[OsString],
    ) -> Vec<PathBuf> {
        let len_of = |name: &OsStr| {
            let metadata = fs::metadata(under(original, name)).ok()?;
            // Programs are executed, not changed.
            let is_data = metadata.is_file() && metadata.permissions().mode() & 0o111 == 0;
            (is_data && metadata.len() <= COPY_BYTES).then_some(metadata.len())
        };
        let files = siblings.iter().filter(|(_, kind)| *kind == Kind::File);
        let mut files: Vec<(OsString, u64)> = files
            .filter_map(|(name, _)| Some((name.clone(), len_of(name)?)))
            .collect();
        let bytes: u64 = files.iter().map(|(_, len)| len).sum();
        if files.len() > COPIES || bytes > COPIES_BYTES {
            files.retain(|(name, _)| {
                let name = name.as_encoded_bytes();
                pools
                    .iter()
                    .any(|pool| name.starts_with(pool.as_encoded_bytes()))
            });
            files.truncate(COPIES.min((COPIES_BYTES / COPY_BYTES) as usize));
        }
        let mut copied = Vec::new();
        for (name, _) in files {
            let path = source.join(&name);
            // What cannot be read is mounted as it is.
            if let Ok(copy) = CopiedFile::of(&under(original, &name), path.clone()) {
                siblings.retain(|(sibling, _)| *sibling != name);
                self.copies.push(copy);
                copied.push(path);
            }
        }
        copied
    }

    /// Whether a missing entry can be created without changing a directory of the user: the directory that it would be
    /// created in is one of ours.
    fn is_ours(&self, path: &Path) -> bool {
        let existing = path.ancestors().skip(1).find(|it| it.is_dir());
        let ours = self.made.iter().chain(&self.scratch);
        let is_in = |ours: &PathBuf| {
            path.starts_with(ours) && existing.is_some_and(|it| is_same_mount(it, ours))
        };
        { ours }.any(is_in)
    }

    /// Creates a missing directory for this namespace only: its nearest ancestor is replaced by a file system in
    /// memory, into which everything else is mounted again.
    fn make_directory(&mut self, path: &Path) -> io::Result<()> {
        if self.is_ours(path) {
            return fs::create_dir_all(path);
        }
        let ancestor = path
            .ancestors()
            .find(|it| it.is_dir())
            .filter(|it| it.parent().is_some())
            .ok_or(io::ErrorKind::NotFound)?;
        let siblings = siblings::of(ancestor, &[], MAX_SIBLINGS)?;
        if siblings.len() > MAX_SIBLINGS {
            return Err(io::Error::other(
                "the directory above it has too many entries",
            ));
        }
        let original = open_directory(ancestor)?;
        self.made.push(ancestor.into());
        siblings::replace_by_memory(&original, ancestor, &siblings)?;
        fs::create_dir_all(path)
    }
}

impl PoolMount {
    fn at(&self) -> &Path {
        match self {
            Self::Directory { at, .. } | Self::File { at, .. } | Self::Tree { at, .. } => at,
        }
    }

    fn source(&self) -> &Path {
        match self {
            Self::Directory { source, .. }
            | Self::File { source, .. }
            | Self::Tree { source, .. } => source,
        }
    }
}

/// The directory that can be mounted over that of these pools: it holds all of them, under their own
/// names, and nothing else.
fn private_directory(
    at: &Path,
    pools: &[&PoolMapping],
    mappings: &[PoolMapping],
) -> Option<PathBuf> {
    let source = pools.first()?.private.parent()?;
    let fits = |it: &&PoolMapping| {
        it.private.parent() == Some(source) && it.private.file_name() == it.original.file_name()
    };
    let alone = mappings
        .iter()
        .all(|it| it.private.parent() != Some(source) || it.original.parent() == Some(at));
    let only_pools = fs::read_dir(source).is_ok_and(|entries| {
        entries.flatten().all(|entry| {
            let name = entry.file_name();
            pools.iter().any(|it| it.private.file_name() == Some(&name))
        })
    });
    let names: Vec<_> = pools
        .iter()
        .filter_map(|it| it.original.file_name().map(Into::into))
        .collect();
    let crowded =
        siblings::of(at, &names, MAX_SIBLINGS).is_ok_and(|siblings| siblings.len() > MAX_SIBLINGS);
    (pools.iter().all(fits) && alone && only_pools && !crowded && at.parent().is_some())
        .then(|| source.into())
}

fn is_same_mount(one: &Path, other: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|it| it.dev()).ok();
    device(one).is_some() && device(one) == device(other)
}
