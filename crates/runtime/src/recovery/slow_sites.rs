//! The instructions that met a protected page, noted in the shared file for [`super::hot_sites`] to patch.
//!
//! # Safety
//!
//! Callers have the turn, or are in the snapshot. The file is mapped for good and has room for as many sites as its
//! constants say.
#![allow(unsafe_code, reason = "writes addresses to the shared file")]

use core::sync::atomic::Ordering;

use powerfail_protocol::explore::{ADDRESS, SITES_AT, SITES_MAX};

use super::state::State;
use super::{hot_sites, shared_file};

/// Notes an instruction, unless this process knows that it was noted.
pub(super) fn note(state: &mut State, site: u64) {
    if !state.sites.insert(site) || hot_sites::knows(site) {
        return;
    }
    let count = &shared_file::control().site_count;
    let number = count.load(Ordering::Relaxed);
    if number < SITES_MAX {
        let place = ((ADDRESS + SITES_AT) as *mut u64).wrapping_add(number as usize);
        // SAFETY: inside of the file, which is mapped for good.
        unsafe { place.write_volatile(site) };
        count.store(number + 1, Ordering::Release);
    }
}

/// In the snapshot, before an execution is forked: patches what was noted so far.
pub(super) fn patch_noted() {
    if !super::is_lazy() {
        return;
    }
    let count = shared_file::control().site_count.load(Ordering::Acquire);
    let place = (ADDRESS + SITES_AT) as *const u64;
    // SAFETY: inside of the file, which is mapped for good; no execution runs and writes there now.
    let noted = unsafe { core::slice::from_raw_parts(place, count.min(SITES_MAX) as usize) };
    let mut new: Vec<u64> = noted
        .iter()
        .copied()
        .filter(|it| !hot_sites::knows(*it))
        .collect();
    new.sort_unstable();
    new.dedup();
    hot_sites::patch(&new);
}
