//! Instructions that store to pools, as executions find them: the process that forks the next execution patches them
//! first, so that each faults once in a fuzzing run and not in each execution.
//!
//! # Safety
//!
//! The area is mapped for good and has room for as many sites as its constants say.
#![allow(unsafe_code, reason = "writes addresses to the shared area")]

use core::sync::atomic::{AtomicU32, Ordering};

use powerfail_protocol::fuzz::{AREA_ADDRESS, NOTES_AT, NOTES_MAX};

use crate::record::sites::SITES;

use super::{area, is_active, level};

/// How many notes this process has read.
static READ: AtomicU32 = AtomicU32::new(0);

fn place(number: u32) -> *mut u64 {
    ((AREA_ADDRESS + NOTES_AT) as *mut u64).wrapping_add(number as usize)
}

/// Notes an instruction that was patched in this process alone.
pub(crate) fn note(site: u64) {
    if !is_active() || level::serves() {
        return;
    }
    let count = &area().note_count;
    let number = count.load(Ordering::Relaxed);
    if (number as usize) < NOTES_MAX {
        // SAFETY: inside of the area, which is mapped for good.
        unsafe { place(number).write_volatile(site) };
        count.store(number + 1, Ordering::Release);
    }
}

/// Whether there are notes that this process has not read.
pub(super) fn are_new() -> bool {
    area().note_count.load(Ordering::Acquire) != READ.load(Ordering::Relaxed)
}

/// Patches what was noted since the last time.
pub(super) fn patch() {
    let count = area()
        .note_count
        .load(Ordering::Acquire)
        .min(NOTES_MAX as u32);
    let read = READ.swap(count, Ordering::Relaxed);
    for number in read..count {
        // SAFETY: inside of the area, which is mapped for good; no execution runs and writes there now.
        let site = unsafe { place(number).read_volatile() };
        SITES.with(|sites| {
            // Code that only an execution has loaded is not here.
            if let Some(sites) = sites.as_mut().filter(|sites| sites.is_in_module(site))
                && sites.emulation_of(site).is_none()
            {
                let _ = sites.trampoline_of(site);
            }
        });
    }
}
