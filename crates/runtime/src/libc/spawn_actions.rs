//! Descriptors that `posix_spawn` passes on under another number, also those that are closed by exec.
//!
//! # Safety
//!
//! The functions have the contracts of the C functions, and pass on what they got. Lists of actions are only told apart by
//! their addresses.
#![allow(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{c_int, c_void};
use std::collections::BTreeMap;

use crate::host;
use crate::platform::lock::Lock;

use super::interpose::original;

/// The descriptors that lists of actions duplicate, by the address of the list.
pub(crate) static DUPLICATED: Lock<BTreeMap<usize, Vec<c_int>>> = Lock::new(BTreeMap::new());

/// The descriptors of this process that a list of actions duplicates.
pub(super) fn duplicated(actions: *const c_void) -> Vec<c_int> {
    let known = DUPLICATED.with(|known| known.get(&(actions as usize)).cloned());
    known.unwrap_or_default()
}

fn forget(actions: *const c_void) {
    DUPLICATED.with(|known| known.remove(&(actions as usize)));
}

#[unsafe(no_mangle)]
extern "C" fn posix_spawn_file_actions_init(actions: *mut c_void) -> c_int {
    type Init = extern "C" fn(*mut c_void) -> c_int;
    forget(actions);
    original!("posix_spawn_file_actions_init" as Init)(actions)
}

#[unsafe(no_mangle)]
extern "C" fn posix_spawn_file_actions_destroy(actions: *mut c_void) -> c_int {
    type Destroy = extern "C" fn(*mut c_void) -> c_int;
    forget(actions);
    original!("posix_spawn_file_actions_destroy" as Destroy)(actions)
}

#[unsafe(no_mangle)]
extern "C" fn posix_spawn_file_actions_adddup2(
    actions: *mut c_void,
    fd: c_int,
    number: c_int,
) -> c_int {
    type Add = extern "C" fn(*mut c_void, c_int, c_int) -> c_int;
    let done = original!("posix_spawn_file_actions_adddup2" as Add)(actions, fd, number);
    if done == 0 && host::attached() {
        DUPLICATED.with(|known| known.entry(actions as usize).or_default().push(fd));
    }
    done
}
