//! Where the slots of a run live, and what becomes of them.
//!
//! A run directory is removed when it is dropped. A process that is killed leaves it behind; its name
//! tells the process and when that started, and the process holds a lock on it, so that the next run
//! can tell a leftover from a directory in use, even of a process in another container.

use std::collections::hash_map::RandomState;
use std::fs::{self, DirBuilder, File};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::error::{Context, Result};
use crate::layout::Layout;
use crate::slot::{ImageSlot, remove_tree};
use crate::tree::TreeSlot;

const PREFIX: &str = "powerfail-";
/// Directories of repeaters without a chosen directory: the process and a number follow.
const REPEAT_PREFIX: &str = "powerfail-repeat-";

/// The directory of a run; removed with its slots when it is dropped.
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    /// Open, because the lock lives as long as it.
    _lock: File,
}

/// Where run directories are by default: in memory, or where temporary files are.
pub fn default_parent() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let usable = rustix::fs::access(memory, rustix::fs::Access::WRITE_OK).is_ok();
    if usable && memory.is_dir() {
        memory.to_path_buf()
    } else {
        std::env::temp_dir()
    }
}

impl RunDirectory {
    /// Makes a new one in `parent`, readable by its owner only.
    pub fn create_in(parent: &Path) -> Result<Self> {
        let id = std::process::id();
        let start = start_time(id).unwrap_or(0);
        // Others cannot know it before.
        let mut number = RandomState::new().build_hasher().finish() as u32;
        loop {
            let path = parent.join(format!("{PREFIX}{id}-{start}-{number}"));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    let lock = File::open(&path).context("open", &path)?;
                    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
                        .context("lock", &path)?;
                    return Ok(Self { path, _lock: lock });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    number = number.wrapping_add(1);
                }
                Err(error) => return Err(error).context("create", &path),
            }
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A slot with a number of its own.
    pub fn slot(&self, number: usize, layout: &Layout) -> ImageSlot {
        ImageSlot::new(self.path.join(format!("slot-{number}")), layout.clone())
    }

    /// A slot for trees, with a number of its own. The roots are the paths of the trees in the recorded run.
    pub fn tree_slot(&self, number: usize, roots: Vec<PathBuf>) -> TreeSlot {
        TreeSlot::new(&self.path.join(format!("tree-{number}")), roots)
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        // An error cannot be reported here; the next run sweeps.
        let _ = remove_tree(&self.path);
    }
}

/// Makes a run directory for what would take too much room in memory: where temporary files are. A process that is killed leaves
/// it behind, and the next one removes it.
pub fn scratch_directory() -> Result<RunDirectory> {
    let parent = std::env::temp_dir();
    // A failure to do so does not matter here.
    let _ = sweep_leftovers(&parent);
    RunDirectory::create_in(&parent)
}

/// Removes what killed processes have left in all usual places. A failure to do so does not matter.
pub fn sweep_usual_places() {
    let mut places = vec![default_parent(), std::env::temp_dir()];
    places.dedup();
    for place in places {
        let _ = sweep_leftovers(&place);
    }
}

/// Removes the run directories in `parent` whose processes are dead. Gives those that it removed;
/// others, and those of other users, are left alone.
pub fn sweep_leftovers(parent: &Path) -> Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    let user = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(parent).context("list", parent)? {
        let entry = entry.context("list", parent)?;
        let name = entry.file_name();
        let Some(owner) = name.to_str().and_then(owner_of) else {
            continue;
        };
        // Another process may remove it at the same time: then there is nothing to do.
        let Ok(metadata) = entry.path().symlink_metadata() else {
            continue;
        };
        if !metadata.is_dir() || metadata.uid() != user || owner.is_alive() {
            continue;
        }
        let path = entry.path();
        let Ok(lock) = File::open(&path) else {
            continue;
        };
        if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
            && remove_tree(&path).is_ok()
        {
            removed.push(path);
        }
    }
    removed.sort_unstable();
    Ok(removed)
}

/// The process that made a directory.
#[derive(Debug, PartialEq, Eq)]
struct Owner {
    id: u32,
    /// When it started, where the name of the directory tells.
    start: Option<u64>,
}

impl Owner {
    fn is_alive(&self) -> bool {
        let start = start_time(self.id);
        start.is_some() && (self.start.is_none() || self.start == start)
    }
}

fn owner_of(name: &str) -> Option<Owner> {
    let repeat = name.strip_prefix(REPEAT_PREFIX);
    let mut parts = repeat.or(name.strip_prefix(PREFIX))?.split('-');
    let id = parts.next()?.parse().ok()?;
    let start = match repeat {
        Some(_) => None,
        None => Some(parts.next()?.parse().ok()?),
    };
    let _number: u32 = parts.next()?.parse().ok()?;
    parts.next().is_none().then_some(Owner { id, start })
}

/// When a process started, in ticks since boot; `None` if it is not alive.
fn start_time(id: u32) -> Option<u64> {
    let text = fs::read(format!("/proc/{id}/stat")).ok()?;
    // The name of the program, in parentheses, may hold anything; the state is the third field.
    let end = text.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(&text[end + 1..]).ok()?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_its_process() {
        let owner = |id, start| Some(Owner { id, start });
        assert_eq!(owner_of("powerfail-12-345-0"), owner(12, Some(345)));
        assert_eq!(owner_of("powerfail-repeat-12-0"), owner(12, None));
        for other in [
            "powerfail-12-345",
            "powerfail-x-1-2",
            "pool",
            "powerfail-1-2-3-4",
            "powerfail-repeat-1",
            "powerfail-repeat-1-2-3",
        ] {
            assert_eq!(owner_of(other), None, "{other}");
        }
    }

    #[test]
    fn this_process_has_started_and_stays_so() {
        let start = start_time(std::process::id());
        assert!(start.is_some_and(|ticks| ticks > 0));
        assert_eq!(start, start_time(std::process::id()));
    }
}
