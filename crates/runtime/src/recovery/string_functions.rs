//! Functions of the C library that read strings: in pieces of a vector, so they read more than there is of the
//! string. What lies behind its end makes no difference to them, and is not noted as read. If reads are noted and
//! nothing branches, it is not decided either: a later instruction that really uses it is then the first to read it.
//!
//! This is as good as one piece tells: bytes before a string in an aligned piece, and pieces behind its end that
//! are read ahead, are noted.
//!
//! # Safety
//!
//! Callers have the turn, and pass a range inside of a page whose content is mapped.
#![allow(unsafe_code, reason = "reads the content of pages")]

use crate::libc::interpose;
use crate::platform::lock::Lock;

use super::load_stacks;

const FUNCTIONS: [&str; 18] = [
    "strlen\0",
    "strnlen\0",
    "strcmp\0",
    "strncmp\0",
    "strcasecmp\0",
    "strncasecmp\0",
    "strchr\0",
    "strchrnul\0",
    "strrchr\0",
    "strcpy\0",
    "strncpy\0",
    "stpcpy\0",
    "stpncpy\0",
    "strcat\0",
    "strncat\0",
    "strspn\0",
    "strcspn\0",
    "strstr\0",
];

/// Where they are: from, to, in order.
static FOUND: Lock<Vec<(u64, u64)>> = Lock::new(Vec::new());

/// In a copy of the recovery that it has made itself.
pub(super) fn reset_after_fork() {
    FOUND.reset_after_fork();
}

/// Looks for them, as the dynamic linker has chosen them for this processor.
pub(super) fn find_functions() {
    let mut found: Vec<(u64, u64)> = FUNCTIONS
        .iter()
        .filter_map(|name| load_stacks::function_at(interpose::maybe_find(name)?))
        .collect();
    found.sort_unstable();
    found.dedup();
    FOUND.with(|all| *all = found);
}

fn reads_strings(code: u64) -> bool {
    FOUND.with(|all| {
        let behind = all.partition_point(|(from, _)| *from <= code);
        behind > 0 && code < all[behind - 1].1
    })
}

/// Up to where bytes of a page that an instruction reads matter to it. The content of the page is at an address.
pub(super) fn end_of_use(code: u64, content: u64, from: u64, to: u64) -> u64 {
    if !reads_strings(code) {
        return to;
    }
    // SAFETY: the content of a page is mapped.
    let bytes = unsafe { crate::patching::code::view(content + from, to - from) };
    let end = bytes.iter().position(|byte| *byte == 0);
    end.map_or(to, |end| from + end as u64 + 1)
}
