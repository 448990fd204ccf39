//! Store locks ([`powerfail_protocol::store_lock`]), as the runtime uses them: for stores that it makes itself, for threads
//! that wait for one, and for a thread that a signal or a fault has stopped while it held one.
//!
//! A process shares its pools from the moment at which a second thread or process may store to them: it makes a thread, it
//! forks, or it runs beside another recorded process. Until then its stores take no locks.
//!
//! # Safety
//!
//! The table of locks is mapped with the control page, for good, and its words are only used as atomics. Blocks are those of
//! the calling thread.
#![allow(unsafe_code, reason = "reaches words and blocks in shared memory")]

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use powerfail_protocol::shared::{CHUNKS_ADDRESS, CONTROL_ADDRESS, STORE_LOCKS_AT, chunk_of};
use powerfail_protocol::{ScratchSlot, ThreadBlock, store_lock};

use crate::host;
use crate::platform::sys;
use crate::record::threads;

/// Where the table is in every process.
pub(crate) const TABLE_ADDRESS: u64 = CONTROL_ADDRESS + STORE_LOCKS_AT;

/// Whether pools of this process are shared.
static SHARED: AtomicBool = AtomicBool::new(false);

/// Whether stores of this process take locks.
pub(crate) fn are_used() -> bool {
    SHARED.load(Ordering::Relaxed)
}

/// From now on, stores of this process take locks. Called by its only thread, before another one can store.
pub(crate) fn share_pools() {
    if SHARED.swap(true, Ordering::AcqRel) {
        return;
    }
    host::control().store_locks_used.store(1, Ordering::Release);
    if let Some(block) = threads::block() {
        // SAFETY: the block is this thread's.
        unsafe { (&raw mut (*block).is_shared).write_volatile(1) };
    }
}

/// A process begins: if others are recorded, they share their pools with it, and it shares its pools with them. It has yet to
/// start and to map a pool, so stores that others have begun without a lock are made by then.
pub(crate) fn begin_process() {
    let process = sys::getpid();
    let others = host::used_slots().iter().filter(|slot| {
        slot.thread.load(Ordering::Acquire) != 0
            && slot.process_id.load(Ordering::Relaxed) != process
    });
    for other in others {
        share_pools();
        let block = core::ptr::from_ref(&other.block).cast_mut();
        // SAFETY: the slot is mapped; its thread only reads this word.
        unsafe { (&raw mut (*block).is_shared).write_volatile(1) };
    }
}

/// The lock at an address that a slot names.
fn lock_at(address: u64) -> Option<&'static AtomicU64> {
    let table = TABLE_ADDRESS..TABLE_ADDRESS + store_lock::TABLE_LEN as u64;
    // SAFETY: a word of the table.
    table
        .contains(&address)
        .then(|| unsafe { &*(address as *const AtomicU64) })
}

/// The address of the lock of a byte.
const fn address_of(address: u64) -> u64 {
    TABLE_ADDRESS + store_lock::offset_of(address)
}

/// A lock that a slot of the block names.
///
/// # Safety
/// The block is the calling thread's.
unsafe fn named(block: *mut ThreadBlock, slot: ScratchSlot) -> Option<&'static AtomicU64> {
    // SAFETY: the block is the calling thread's.
    lock_at(unsafe { (*block).scratch[slot.index()] })
}

/// The record for which the calling thread holds a lock, if it does.
pub(crate) fn held_record(block: *mut ThreadBlock) -> Option<u64> {
    // SAFETY: the block is this thread's.
    let record = unsafe { named(block, ScratchSlot::Lock) }?.load(Ordering::Acquire);
    if record < CHUNKS_ADDRESS {
        return None;
    }
    let (chunk, _) = chunk_of(record);
    let owner = host::control().chunks.get(chunk as usize)?;
    // SAFETY: the block is this thread's.
    let own = unsafe { (*block).thread_index } + 1;
    (owner.thread.load(Ordering::Acquire) == own).then_some(record)
}

/// Gives back what the calling thread holds for a record.
pub(crate) fn release(block: *mut ThreadBlock, record: u64) {
    for slot in [ScratchSlot::SecondLock, ScratchSlot::Lock] {
        // SAFETY: the block is this thread's.
        if let Some(lock) = unsafe { named(block, slot) } {
            // A lock that is named and not held belongs to another record.
            let _ = lock.compare_exchange(record, 0, Ordering::Release, Ordering::Relaxed);
        }
        // SAFETY: the block is this thread's.
        unsafe { (*block).scratch[slot.index()] = 0 };
    }
}

/// Takes the locks of a range, which is no longer than a granule, for a record of the calling thread, with signals blocked.
pub(crate) fn acquire(block: *mut ThreadBlock, record: u64, address: u64, len: u64) {
    let (first, second) = (address_of(address), address_of(address + len.max(1) - 1));
    let take = |slot: ScratchSlot, lock: u64| {
        // SAFETY: the block is this thread's. The lock is named before it is taken.
        unsafe { (&raw mut (*block).scratch[slot.index()]).write_volatile(lock) };
        lock_at(lock).is_some_and(|lock| {
            lock.compare_exchange(0, record, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        })
    };
    let mut attempts = 0;
    loop {
        if take(ScratchSlot::Lock, first) {
            if second == first || take(ScratchSlot::SecondLock, second) {
                return;
            }
            release(block, record);
        }
        pause(attempts);
        attempts += 1;
    }
}

/// The locks of a range of any length, which the kernel writes to for the calling thread. Signals are blocked meanwhile, and the
/// thread makes no store of its own. Each process makes one such call at a time.
pub(crate) struct Range {
    /// The first lock, and how many follow it, round the end of the table.
    first: u64,
    count: u64,
    /// What the locks hold: the address of the thread's block. Zero if the thread is not recorded.
    owner: u64,
}

impl Range {
    pub(crate) fn acquire(address: u64, len: u64) -> Self {
        let last = address.saturating_add(len.max(1) - 1);
        let granules = last / store_lock::GRANULE_LEN - address / store_lock::GRANULE_LEN + 1;
        let range = Self {
            first: store_lock::offset_of(address) / store_lock::STRIDE as u64,
            count: granules.min(store_lock::COUNT as u64),
            owner: threads::block().map_or(0, |block| block as u64),
        };
        if range.owner == 0 {
            return range;
        }
        // In the order of the table, so that two threads that take many never wait for each other.
        for lock in range.locks() {
            let mut attempts = 0;
            while lock
                .compare_exchange(0, range.owner, Ordering::AcqRel, Ordering::Relaxed)
                .is_err()
            {
                pause(attempts);
                attempts += 1;
            }
        }
        range
    }

    fn locks(&self) -> impl Iterator<Item = &'static AtomicU64> + use<> {
        let (first, end) = (self.first, self.first + self.count);
        let count = store_lock::COUNT as u64;
        let wrapped = 0..end.saturating_sub(count);
        let numbers = wrapped.chain(first..end.min(count));
        numbers.filter_map(|number| lock_at(TABLE_ADDRESS + number * store_lock::STRIDE as u64))
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        if self.owner != 0 {
            for lock in self.locks() {
                let _ = lock.compare_exchange(self.owner, 0, Ordering::Release, Ordering::Relaxed);
            }
        }
    }
}

/// Waits a while for the lock that emitted code did not get. It tries again.
pub(crate) fn wait(block: *mut ThreadBlock) {
    /// Then the store that holds it is tried for again anyway: emitted code sees it soonest.
    const ATTEMPTS: u32 = 64;
    // SAFETY: the block is this thread's.
    let Some(lock) = (unsafe { named(block, ScratchSlot::Lock) }) else {
        return;
    };
    for attempt in 0..ATTEMPTS {
        if lock.load(Ordering::Relaxed) == 0 {
            return;
        }
        pause(attempt);
    }
}

/// A store takes some nanoseconds, unless its thread has lost the processor, which then another thread needs.
fn pause(attempt: u32) {
    const SPINS: u32 = 16;
    if attempt < SPINS {
        core::hint::spin_loop();
    } else {
        sys::yield_processor();
    }
}

/// Between two executions of a repeated target: threads that were killed hold nothing.
pub(crate) fn reset() {
    if host::control().store_locks_used.swap(0, Ordering::AcqRel) == 0 {
        return;
    }
    for lock in 0..store_lock::COUNT as u64 {
        if let Some(lock) = lock_at(TABLE_ADDRESS + lock * store_lock::STRIDE as u64) {
            lock.store(0, Ordering::Relaxed);
        }
    }
}
