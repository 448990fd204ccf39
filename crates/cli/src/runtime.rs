//! The library that is loaded into targets, as the C library of this machine needs it.
//!
//! # Safety
//!
//! The C library gives its version as a string that is never changed.
#![allow(unsafe_code, reason = "asks the C library for its version")]

use std::borrow::Cow;
use std::ffi::CStr;
use std::sync::LazyLock;

/// The library, as it is for glibc from 2.34 on.
static LIBRARY: &[u8] = include_bytes!(env!("POWERFAIL_RUNTIME"));

/// The tag with which it names the libraries that it needs before glibc 2.34 (`powerfail_runtime_build::older_glibc`).
const IGNORED_TAG: u64 = 0x6050_4601;
const NEEDED_TAG: u64 = 1;
/// The first version of glibc in whose libc everything is.
const WHOLE: (u32, u32) = (2, 34);

/// The runtime that is preloaded into the target.
pub(crate) fn runtime() -> &'static [u8] {
    static FITTING: LazyLock<Cow<'static, [u8]>> = LazyLock::new(|| fitting(version()));
    &FITTING
}

/// The version of the C library that this program runs with.
fn version() -> (u32, u32) {
    // SAFETY: it takes nothing, and returns a string.
    let text = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    let text = text.to_string_lossy();
    let mut numbers = text.split('.').map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn fitting(version: (u32, u32)) -> Cow<'static, [u8]> {
    if version >= WHOLE {
        return LIBRARY.into();
    }
    let mut file = LIBRARY.to_vec();
    for entry in file.chunks_exact_mut(8) {
        if *entry == IGNORED_TAG.to_le_bytes() {
            entry.copy_from_slice(&NEEDED_TAG.to_le_bytes());
        }
    }
    file.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_more_libraries_are_needed_before_glibc_2_34() {
        assert_eq!(&*fitting((2, 34)), LIBRARY);
        assert_eq!(&*fitting((2, 36)), LIBRARY);
        let older = fitting((2, 31));
        let changed = older
            .chunks(8)
            .zip(LIBRARY.chunks(8))
            .filter(|(new, old)| new != old);
        let changed: Vec<_> = changed.map(|(new, _)| new.to_vec()).collect();
        assert_eq!(changed, vec![NEEDED_TAG.to_le_bytes().to_vec(); 2]);
    }
}
