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

use super::found_functions::FoundFunctions;

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

static FOUND: FoundFunctions = FoundFunctions::new();

/// In a copy of the recovery that it has made itself.
pub(super) fn reset_after_fork() {
    FOUND.reset_after_fork();
}

pub(super) fn find_functions() {
    FOUND.find(&FUNCTIONS);
}

/// Up to where bytes of a page that an instruction reads matter to it. The content of the page is at an address.
pub(super) fn end_of_use(code: u64, content: u64, from: u64, to: u64) -> u64 {
    if !FOUND.contain(code) {
        return to;
    }
    // SAFETY: the content of a page is mapped.
    let bytes = unsafe { crate::patching::code::view(content + from, to - from) };
    let end = bytes.iter().position(|byte| *byte == 0);
    end.map_or(to, |end| from + end as u64 + 1)
}
