//! Modules that were loaded before, for resolving frames of many traces of one program in one process: a
//! fuzzing campaign records the same program thousands of times, and reading its debug information takes longer
//! than linting a small trace.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use powerfail_trace::Module;

use crate::module::LoadedModule;

/// How many modules are kept.
const KEPT_MAX: usize = 64;

/// A loaded module that several symbolizers use, one at a time.
pub(crate) type SharedModule = Arc<Mutex<LoadedModule>>;

struct Kept {
    module: Module,
    debug_directories: Vec<PathBuf>,
    loaded: SharedModule,
}

static KEPT: Mutex<Vec<Kept>> = Mutex::new(Vec::new());
static KEEPS: AtomicBool = AtomicBool::new(false);

/// From now on modules that were loaded once stay loaded, for all symbolizers of this process: for a process whose
/// target and its debug files stay what they are.
pub fn keep_modules() {
    KEEPS.store(true, Ordering::Relaxed);
}

/// No code panics half-way through a change of what these protect.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A module, loaded now or before. Only one whose file can be told by its build-id is kept: another may be built
/// anew under the same name.
pub(crate) fn load(module: &Module, debug_directories: &[PathBuf]) -> SharedModule {
    let fresh = || Arc::new(Mutex::new(LoadedModule::load(module, debug_directories)));
    if module.build_id.is_empty() || !KEEPS.load(Ordering::Relaxed) {
        return fresh();
    }
    let is_same =
        |kept: &Kept| kept.module == *module && kept.debug_directories == debug_directories;
    if let Some(kept) = lock(&KEPT).iter().find(|kept| is_same(kept)) {
        return Arc::clone(&kept.loaded);
    }
    let loaded = fresh();
    let mut all = lock(&KEPT);
    if all.len() >= KEPT_MAX {
        all.remove(0);
    }
    all.push(Kept {
        module: module.clone(),
        debug_directories: debug_directories.to_vec(),
        loaded: Arc::clone(&loaded),
    });
    loaded
}
