//! Shared memory, semaphores and queues of System V in the namespace of a slot. A power failure leaves none of them, so what one run
//! has made is gone before the next one.
//!
//! # Safety
//!
//! The calls fill locals that are at least as long as what they fill, or take numbers only.

#![allow(unsafe_code)]

use std::mem::MaybeUninit;

/// From `linux/shm.h`, `linux/sem.h` and `linux/msg.h`: what a kind uses in total, and an object by its place in the table.
const SHM_STAT: libc::c_int = 13;
const SHM_INFO: libc::c_int = 14;
const SEM_STAT: libc::c_int = 18;
const SEM_INFO: libc::c_int = 19;
const MSG_STAT: libc::c_int = 11;
const MSG_INFO: libc::c_int = 12;

const PAGE_BYTES: u64 = 4096;

/// Room for any structure that these calls fill; the longest has about 120 bytes.
#[repr(C, align(16))]
struct Filled([u64; 64]);

/// `struct shm_info`, which libc does not have for this.
#[repr(C)]
struct ShmInfo {
    used_ids: libc::c_int,
    total_pages: libc::c_ulong,
    resident_pages: libc::c_ulong,
    swapped_pages: libc::c_ulong,
    rest: [u64; 16],
}

/// How much memory the shared memory has.
pub(crate) fn used_bytes() -> u64 {
    let mut info = MaybeUninit::<ShmInfo>::zeroed();
    // SAFETY: the call fills a local that begins with what it fills and is longer; zeroed is a valid value of it.
    let info = unsafe {
        if libc::shmctl(0, SHM_INFO, info.as_mut_ptr().cast()) < 0 {
            return 0;
        }
        info.assume_init()
    };
    (info.resident_pages + info.swapped_pages) * PAGE_BYTES
}

/// Whether there is any object.
pub(crate) fn is_used() -> bool {
    KINDS.iter().any(|kind| !objects_of(*kind).is_empty())
}

/// Removes all objects.
pub(crate) fn clear() {
    for kind in KINDS {
        for object in objects_of(kind) {
            // SAFETY: numbers only. An error means that it is gone.
            unsafe {
                match kind {
                    Kind::SharedMemory => {
                        libc::shmctl(object, libc::IPC_RMID, std::ptr::null_mut());
                    }
                    Kind::Semaphores => {
                        libc::semctl(object, 0, libc::IPC_RMID);
                    }
                    Kind::Queue => {
                        libc::msgctl(object, libc::IPC_RMID, std::ptr::null_mut());
                    }
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    SharedMemory,
    Semaphores,
    Queue,
}

const KINDS: [Kind; 3] = [Kind::SharedMemory, Kind::Semaphores, Kind::Queue];

/// The ids of all objects of a kind. The kernel says the highest place in its table that is used, and each place has an id or none.
fn objects_of(kind: Kind) -> Vec<libc::c_int> {
    let mut filled = Filled([0; 64]);
    let room = &raw mut filled.0;
    let call = |place: libc::c_int, shared: libc::c_int, sem: libc::c_int, queue: libc::c_int| {
        // SAFETY: the calls fill a local that is longer than what they fill.
        unsafe {
            match kind {
                Kind::SharedMemory => libc::shmctl(place, shared, room.cast()),
                Kind::Semaphores => libc::semctl(place, 0, sem, room),
                Kind::Queue => libc::msgctl(place, queue, room.cast()),
            }
        }
    };
    let highest = call(0, SHM_INFO, SEM_INFO, MSG_INFO);
    (0..=highest)
        .map(|place| call(place, SHM_STAT, SEM_STAT, MSG_STAT))
        .filter(|id| *id >= 0)
        .collect()
}
