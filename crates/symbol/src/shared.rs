//! The modules of this process: each file is read once, whatever asks for it.
//!
//! A check resolves the call stacks of many executions, and a campaign those of many traces. They lie in the same few
//! files, and to inflate and parse the debug information of one takes longer than most recoveries. Where a module was
//! loaded does not matter to its tables, so one reading serves all processes that mapped it.
//!
//! A file that has changed since is read again: each reading knows the files that it looked for, and how it found them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use powerfail_trace::Module;

use crate::module::LoadedModule;

/// How many modules are kept.
const KEPT_MAX: usize = 64;

/// A loaded module that several symbolizers use, one at a time.
pub(crate) type SharedModule = Arc<Mutex<LoadedModule>>;

struct Kept {
    path: PathBuf,
    build_id: Vec<u8>,
    debug_directories: Vec<PathBuf>,
    files: Vec<(PathBuf, Option<Stamp>)>,
    loaded: SharedModule,
}

/// What tells whether a file is still the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    len_bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// The least recently used first.
static KEPT: Mutex<Vec<Kept>> = Mutex::new(Vec::new());
static LOADS: AtomicU64 = AtomicU64::new(0);

/// How often this process has read the tables of a module.
pub fn module_loads() -> u64 {
    LOADS.load(Ordering::Relaxed)
}

/// No code panics half-way through a change of what these protect.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A module, loaded now or before.
pub(crate) fn load(module: &Module, debug_directories: &[PathBuf]) -> SharedModule {
    // Held while a module is read, so that two threads do not read the same one.
    let mut all = lock(&KEPT);
    let is_same = |kept: &Kept| {
        kept.path == module.path
            && kept.build_id == module.build_id
            && kept.debug_directories == debug_directories
    };
    if let Some(number) = all.iter().position(is_same) {
        let kept = all.remove(number);
        if kept.is_current() {
            let loaded = Arc::clone(&kept.loaded);
            all.push(kept);
            return loaded;
        }
    }
    LOADS.fetch_add(1, Ordering::Relaxed);
    let fresh = LoadedModule::load(module, debug_directories);
    let files = fresh.files().iter();
    let files = files.map(|path| (path.clone(), stamp(path))).collect();
    let loaded = Arc::new(Mutex::new(fresh));
    if all.len() >= KEPT_MAX {
        all.remove(0);
    }
    all.push(Kept {
        path: module.path.clone(),
        build_id: module.build_id.clone(),
        debug_directories: debug_directories.to_vec(),
        files,
        loaded: Arc::clone(&loaded),
    });
    loaded
}

impl Kept {
    /// Whether the files are what they were when they were read.
    fn is_current(&self) -> bool {
        self.files.iter().all(|(path, then)| stamp(path) == *then)
    }
}

fn stamp(path: &PathBuf) -> Option<Stamp> {
    let data = fs::metadata(path).ok()?;
    Some(Stamp {
        device: data.dev(),
        inode: data.ino(),
        len_bytes: data.len(),
        modified: (data.mtime(), data.mtime_nsec()),
        changed: (data.ctime(), data.ctime_nsec()),
    })
}
