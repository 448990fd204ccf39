//! The owners of locks that lie in pools, as the log has them.
//!
//! The C library notes in a mutex which thread has it. Recovery is a function of what it reads but for such numbers: they
//! differ from process to process. Which process executed a recovery first depends on the number of workers, and whether
//! two crashes leave the same would depend on it, too. So the log has the same number for all of them, one that no thread has.
//! After a power failure all owners are gone, and one number says as little as another.
//!
//! # Safety
//!
//! Callers pass the address of bytes that are mapped.
#![allow(unsafe_code, reason = "reads what is logged")]

use crate::platform::sys;

use super::found_functions::FoundFunctions;

const FUNCTIONS: [&str; 7] = [
    "pthread_mutex_lock\0",
    "pthread_mutex_trylock\0",
    "pthread_mutex_timedlock\0",
    "pthread_mutex_clocklock\0",
    "pthread_rwlock_wrlock\0",
    "pthread_rwlock_trywrlock\0",
    "pthread_rwlock_timedwrlock\0",
];

/// The kernel numbers threads below this.
const NO_THREAD: u32 = 1 << 22;
static OWNER: [u8; 4] = NO_THREAD.to_le_bytes();

static FOUND: FoundFunctions = FoundFunctions::new();

/// In a copy of the recovery that it has made itself.
pub(super) fn reset_after_fork() {
    FOUND.reset_after_fork();
}

pub(super) fn find_functions() {
    FOUND.find(&FUNCTIONS);
}

/// Where the bytes of a store are as the log is to have them.
pub(super) fn logged(site: u64, bytes: u64, len: u64) -> u64 {
    if len != OWNER.len() as u64 {
        return bytes;
    }
    // SAFETY: by the contract the bytes are mapped, and there are four of them.
    let stored = unsafe { (bytes as *const u32).read_unaligned() };
    if stored == sys::gettid() && FOUND.contain(site) {
        OWNER.as_ptr() as u64
    } else {
        bytes
    }
}
