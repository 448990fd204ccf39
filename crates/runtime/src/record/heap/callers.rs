//! Who allocates: the target, or a library of the system for itself.
//!
//! What the C library, the dynamic linker, the library of C++ and other libraries of the system allocate with
//! `malloc` is their own business, and volatile. Code that lies in no module is the target's.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::patching::modules;
use crate::platform::lock::Lock;

/// More modules are not told apart; further ones are the target's.
const MODULES_MAX: usize = 1024;
const PAGE: u64 = 4096;

struct Module {
    start: AtomicU64,
    end: AtomicU64,
    is_of_the_system: AtomicU32,
}

static MODULES: [Module; MODULES_MAX] = [const {
    Module {
        start: AtomicU64::new(0),
        end: AtomicU64::new(0),
        is_of_the_system: AtomicU32::new(0),
    }
}; MODULES_MAX];
/// How many there are. Changed only under the lock.
static COUNT: AtomicU32 = AtomicU32::new(0);
pub(crate) static CHANGE: Lock<()> = Lock::new(());

/// Libraries of the system, wherever they are.
const NAMES: [&[u8]; 9] = [
    b"libc.so",
    b"ld-linux",
    b"libpthread",
    b"libm.so",
    b"libdl.so",
    b"librt.so",
    b"libstdc++",
    b"libgcc_s",
    b"libc++",
];
/// Where the others are.
const DIRECTORIES: [&[u8]; 5] = [b"/lib/", b"/lib64/", b"/lib32/", b"/usr/lib", b"linux-vdso"];

/// Looks which modules there are, when the process starts or code was loaded or unloaded.
pub(super) fn look() {
    let mut found: Vec<(u64, u64, bool)> = Vec::new();
    modules::for_each(|module| {
        let (start, end) = module.range();
        let mut path = [0; 4096];
        let path = module.path(&mut path);
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let is_of_the_system = modules::is_this(module)
            || NAMES.iter().any(|known| name.starts_with(known))
            || DIRECTORIES.iter().any(|known| path.starts_with(known));
        found.push((start, end, is_of_the_system));
    });
    CHANGE.with(|()| {
        COUNT.store(0, Ordering::Release);
        for (start, end, is_of_the_system) in found {
            add(start, end, is_of_the_system);
        }
    });
}

fn add(start: u64, end: u64, is_of_the_system: bool) {
    let count = COUNT.load(Ordering::Relaxed);
    let Some(place) = MODULES.get(count as usize) else {
        return;
    };
    // Who reads it meanwhile finds nothing in it.
    place.end.store(0, Ordering::Release);
    place.start.store(start, Ordering::Release);
    place
        .is_of_the_system
        .store(u32::from(is_of_the_system), Ordering::Release);
    place.end.store(end, Ordering::Release);
    COUNT.store(count + 1, Ordering::Release);
}

fn find(address: u64) -> Option<bool> {
    let count = COUNT.load(Ordering::Acquire) as usize;
    let modules = &MODULES[..count.min(MODULES_MAX)];
    let module = modules.iter().find(|module| {
        let end = module.end.load(Ordering::Acquire);
        (module.start.load(Ordering::Acquire)..end).contains(&address)
    })?;
    Some(module.is_of_the_system.load(Ordering::Acquire) != 0)
}

/// Whether code at an address belongs to a library of the system.
pub(super) fn is_of_the_system(address: u64) -> bool {
    if let Some(known) = find(address) {
        return known;
    }
    // The C library loads some by itself.
    look();
    find(address).unwrap_or_else(|| {
        let page = address / PAGE * PAGE;
        CHANGE.with(|()| add(page, page + PAGE, false));
        false
    })
}
