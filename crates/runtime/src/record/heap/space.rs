//! Gives out the memory of the heap: runs of objects of one length, and objects of several runs.
//!
//! Which objects are free is known in this process only, and only of runs that it has taken itself. So
//! nothing that was given out before a crash, or by another process, is given out again.
//!
//! # Safety
//!
//! The state is reached only under the lock of this file. Tables lie in the heap, which is mapped for good before
//! the first call; words in them are atomic, or written through the alias.
#![allow(unsafe_code, reason = "keeps the state of the heap")]

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use powerfail_protocol::mark;
use powerfail_protocol::memory::{
    HEAP_ADDRESS, RUN_LEN, RUNS_AT, TABLE_LEN, TABLES_AT, entry, object_len,
};

use crate::platform::sys;
use crate::record::{append, pools};
use crate::{host, recovery};

use super::allocation::RUN_COUNT;

/// Objects begin at multiples of this.
const LINE: u64 = 64;
/// The longest object of which several lie in a run.
const SMALL_MAX: u64 = RUN_LEN / 2;
/// Up to so many lines there is a class for each number of them.
const EXACT: u64 = 8;
const CLASSES: usize = 32;

/// Memory that was given out.
pub(super) struct Object {
    pub(super) address: u64,
    /// Whether it was never given out before.
    pub(super) is_fresh: bool,
}

/// Objects of one length.
struct Class {
    free: Vec<u64>,
    /// What is left of the newest run.
    next: u64,
    end: u64,
}

struct State {
    classes: [Class; CLASSES],
    /// Free objects of several runs, by their length.
    large: Vec<(u64, Vec<u64>)>,
    /// Runs that this process has taken, a bit each.
    own: Vec<u64>,
    /// In a recovery: runs before this one are taken.
    taken: u64,
}

impl State {
    const NEW: Self = Self {
        classes: [const {
            Class {
                free: Vec::new(),
                next: 0,
                end: 0,
            }
        }; CLASSES],
        large: Vec::new(),
        own: Vec::new(),
        taken: 0,
    };
}

/// The thread that has the lock may use the state. Signals are not blocked: see the header of the heap.
struct Space {
    /// 0 free, 1 held, 2 held and waited for.
    word: AtomicU32,
    state: UnsafeCell<State>,
}

// SAFETY: the state is only reached through the lock.
unsafe impl Sync for Space {}

static SPACE: Space = Space {
    word: AtomicU32::new(0),
    state: UnsafeCell::new(State::NEW),
};

fn with<R>(work: impl FnOnce(&mut State) -> R) -> R {
    let lock = &SPACE.word;
    if lock
        .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        while lock.swap(2, Ordering::Acquire) != 0 {
            sys::futex_wait(lock, 2);
        }
    }
    // SAFETY: the lock is ours.
    let result = work(unsafe { &mut *SPACE.state.get() });
    if lock.swap(0, Ordering::Release) == 2 {
        sys::futex_wake(lock);
    }
    result
}

/// In the child after fork: nothing of what was taken is its own, and the lock is free.
pub(super) fn forget() {
    // SAFETY: there is no other thread. What was there may be in the middle of a change, and is left.
    unsafe { SPACE.state.get().write(State::NEW) };
    SPACE.word.store(0, Ordering::Release);
}

/// The class of an object, and how long its objects are.
fn class_of(len: u64) -> (usize, u64) {
    let lines = len.div_ceil(LINE).max(1);
    if lines <= EXACT {
        return (lines as usize - 1, lines * LINE);
    }
    // Four classes from each power of two to the next.
    let power = (lines - 1).ilog2();
    let shift = power - 2;
    let quarter = (lines - 1) >> shift;
    let class = EXACT + u64::from(power - 3) * 4 + (quarter - 4);
    (class as usize, ((quarter + 1) << shift) * LINE)
}

/// How long an object becomes for which so much is asked.
pub(super) fn rounded(len: u64) -> u64 {
    if len <= SMALL_MAX {
        class_of(len).1
    } else {
        len.next_multiple_of(RUN_LEN)
    }
}

/// Gives out memory.
pub(super) fn allocate(len: u64, alignment: u64) -> Option<Object> {
    let runs = RUN_COUNT.load(Ordering::Acquire);
    if len > runs * RUN_LEN || alignment > runs * RUN_LEN {
        return None;
    }
    let len = if alignment > LINE {
        len.max(alignment).next_power_of_two()
    } else {
        len
    };
    if len > SMALL_MAX {
        return with(|state| state.allocate_runs(len.next_multiple_of(RUN_LEN), alignment));
    }
    let (class, len) = class_of(len);
    with(|state| {
        let objects = &mut state.classes[class];
        if let Some(address) = objects.free.pop() {
            return Some(Object {
                address,
                is_fresh: false,
            });
        }
        if objects.end - objects.next < len {
            let run = state.take(1, 0, len)?;
            let objects = &mut state.classes[class];
            objects.next = run;
            objects.end = run + RUN_LEN;
        }
        let objects = &mut state.classes[class];
        let address = objects.next;
        objects.next += len;
        Some(Object {
            address,
            is_fresh: true,
        })
    })
}

/// Takes memory back: the object at an address, of this length.
pub(super) fn deallocate(address: u64, len: u64) {
    with(|state| {
        if !state.owns(address) {
            return;
        }
        if len <= SMALL_MAX {
            state.classes[class_of(len).0].free.push(address);
        } else {
            state.large(len).push(address);
        }
    });
}

/// The run in which an address lies, over those of the workload and those of recoveries.
fn run_of(address: u64) -> Option<u64> {
    let run = address.checked_sub(HEAP_ADDRESS + RUNS_AT)? / RUN_LEN;
    (run < 2 * RUN_COUNT.load(Ordering::Relaxed)).then_some(run)
}

fn address_of(run: u64) -> u64 {
    HEAP_ADDRESS + RUNS_AT + run * RUN_LEN
}

/// Where the entry of a run is.
fn place_of(run: u64) -> u64 {
    let count = RUN_COUNT.load(Ordering::Relaxed);
    let at = if run < count {
        8 * run
    } else {
        TABLE_LEN + 8 * (run - count)
    };
    HEAP_ADDRESS + TABLES_AT + at
}

fn entry_of(run: u64) -> &'static AtomicU64 {
    // SAFETY: the tables are mapped as long as the heap is, which is for good.
    unsafe { &*(place_of(run) as *const AtomicU64) }
}

/// How long the object is that begins at an address.
pub(super) fn len_of(address: u64) -> Option<u64> {
    object_len(entry_of(run_of(address)?).load(Ordering::Relaxed))
}

impl State {
    fn large(&mut self, len: u64) -> &mut Vec<u64> {
        let place = self.large.iter().position(|(known, _)| *known == len);
        let place = place.unwrap_or_else(|| {
            self.large.push((len, Vec::new()));
            self.large.len() - 1
        });
        &mut self.large[place].1
    }

    fn allocate_runs(&mut self, len: u64, alignment: u64) -> Option<Object> {
        let free = self.large(len);
        let fits = free
            .iter()
            .rposition(|address| address.is_multiple_of(alignment.max(1)));
        if let Some(place) = fits {
            return Some(Object {
                address: free.swap_remove(place),
                is_fresh: false,
            });
        }
        let address = self.take(len / RUN_LEN, alignment, len)?;
        Some(Object {
            address,
            is_fresh: true,
        })
    }

    fn owns(&self, address: u64) -> bool {
        run_of(address).is_some_and(|run| {
            let word = self.own.get(run as usize / 64);
            word.is_some_and(|word| word & 1 << (run % 64) != 0)
        })
    }

    /// Takes runs for objects of a length; their address.
    fn take(&mut self, count: u64, alignment: u64, object_len: u64) -> Option<u64> {
        let run = if host::attached() {
            take_recorded(count, alignment, object_len)
        } else {
            self.take_in_recovery(count, alignment, object_len)
        }?;
        let word = run as usize / 64;
        if self.own.len() <= word {
            let all = 2 * RUN_COUNT.load(Ordering::Relaxed);
            self.own.resize((all as usize).div_ceil(64), 0);
        }
        self.own[word] |= 1 << (run % 64);
        Some(address_of(run))
    }

    /// Takes runs among those of recoveries.
    fn take_in_recovery(&mut self, count: u64, alignment: u64, len: u64) -> Option<u64> {
        let runs = RUN_COUNT.load(Ordering::Relaxed);
        let mut run = runs + self.taken;
        loop {
            let first = aligned(run, alignment);
            let behind = first + count;
            if behind > 2 * runs {
                return None;
            }
            let place = entry_of(run);
            let found = place.load(Ordering::Acquire);
            if let Some(len) = object_len(found) {
                run += len.div_ceil(RUN_LEN);
                continue;
            }
            // What lies before it for the sake of its alignment is taken, too.
            let whole = if first == run {
                len
            } else {
                (behind - run) * RUN_LEN
            };
            if place
                .compare_exchange(found, entry(whole), Ordering::AcqRel, Ordering::Acquire)
                .is_err()
            {
                continue;
            }
            recovery::synced(place_of(run), 8);
            if first != run {
                entry_of(first).store(entry(len), Ordering::Release);
                recovery::synced(place_of(first), 8);
            }
            self.taken = behind - runs;
            return Some(first);
        }
    }
}

/// The first run at or behind another one whose address is aligned.
fn aligned(run: u64, alignment: u64) -> u64 {
    let address = address_of(run).next_multiple_of(alignment.max(RUN_LEN));
    (address - HEAP_ADDRESS - RUNS_AT) / RUN_LEN
}

/// Takes runs among those of the workload, and says so in the table, durably.
fn take_recorded(count: u64, alignment: u64, len: u64) -> Option<u64> {
    let room = count + alignment.div_ceil(RUN_LEN).saturating_sub(1);
    let next = &host::control().next_run;
    let taken = next.fetch_add(room, Ordering::AcqRel);
    if taken + room > RUN_COUNT.load(Ordering::Relaxed) {
        next.fetch_sub(room, Ordering::AcqRel);
        return None;
    }
    let run = aligned(taken, alignment);
    let place = place_of(run);
    let word = entry(len);
    super::allocation::writes();
    append::store_system(place, &word.to_le_bytes());
    pools::synced(place, 8);
    append::append_mark([mark::HEAP_END.into(), 0]);
    Some(run)
}
