//! Resource limits under which a recording cannot work, or which would kill it.
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

/// What this program needs of a resource, so that it can at least end well.
struct Need {
    resource: Resource,
    minimum: u64,
    /// The limit in words, by its number.
    words: fn(u64) -> String,
}

const NEEDS: [Need; 2] = [
    Need {
        resource: Resource::Stack,
        minimum: 1 << 20,
        words: |bytes| format!("the stack is limited to {} KiB (ulimit -s)", bytes >> 10),
    },
    Need {
        resource: Resource::Nofile,
        minimum: 32,
        words: |count| format!("the number of open files is limited to {count} (ulimit -n)"),
    },
];

/// The limit with which this program could not even remove what it has made, as a sentence with what is needed.
pub fn unbearable_limit() -> Option<String> {
    NEEDS.iter().find_map(|need| {
        let limit = getrlimit(need.resource).current?;
        let needed = match need.resource {
            Resource::Stack => format!("{} KiB", need.minimum >> 10),
            _ => need.minimum.to_string(),
        };
        let sentence = || format!("{}, and powerfail needs {needed}", (need.words)(limit));
        (limit < need.minimum).then(sentence)
    })
}

extern "C" fn nothing(_signal: libc::c_int) {}

/// From now on, a write beyond the limit of file sizes fails with an error instead of killing this process. A handler that
/// does nothing is installed, because programs that are executed would inherit an ignored signal.
pub fn survive_file_size_limit() {
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGXFSZ, nothing as *const () as libc::sighandler_t) };
}
