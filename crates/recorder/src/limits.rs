//! Resource limits of this process that a recording cannot do with, or that would kill it.
//!
//! # Safety
//!
//! The handler does nothing.

#![allow(unsafe_code)]

use powerfail_protocol::shared::WINDOW_LEN;
use rustix::process::{Resource, getrlimit};

use crate::error::RecordError;

/// Addresses that the runtime reserves in a target: the window and its alias, and room for records and code.
const ADDRESS_SPACE_NEEDED: u64 = 2 * WINDOW_LEN + (1 << 36);

/// The limit of the address space, in bytes, if there is one. Targets and recoveries inherit it.
pub fn address_space_limit() -> Option<u64> {
    getrlimit(Resource::As).current
}

/// The limit of the size of files, in bytes, if there is one.
pub fn file_size_limit() -> Option<u64> {
    getrlimit(Resource::Fsize).current
}

/// Fails if the address space is too small for a target.
pub(crate) fn inspect() -> Result<(), RecordError> {
    match address_space_limit() {
        Some(limit) if limit < ADDRESS_SPACE_NEEDED => Err(RecordError::AddressSpace {
            limit_bytes: limit,
            needed_bytes: ADDRESS_SPACE_NEEDED,
        }),
        _ => Ok(()),
    }
}

extern "C" fn nothing(_signal: libc::c_int) {}

/// From now on, a write beyond the limit of file sizes fails with an error instead of killing this process. A handler that
/// does nothing is installed, because programs that are executed would inherit an ignored signal.
pub fn survive_file_size_limit() {
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGXFSZ, nothing as *const () as libc::sighandler_t) };
}
