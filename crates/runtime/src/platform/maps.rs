//! The mappings of the process, read from `/proc/self/maps`: slow, for rare use.
//!
//! # Safety
//!
//! The kernel reads a constant path and writes to a buffer on the stack, never more than its length.
#![allow(unsafe_code, reason = "opens and reads /proc/self/maps")]

use super::map_lines::{is_file_at, private_of};
use crate::platform::sys;

pub(crate) use super::map_lines::Private;

const AT_FDCWD: usize = -100isize as usize;
const O_CLOEXEC: usize = 0o2_000_000;
/// Longer than what comes before the path in a line.
const LINE_LEN: usize = 128;

/// Whether an address lies in a mapping of a file.
pub(crate) fn is_of_file(address: u64) -> bool {
    let mut found = false;
    for_each_line(|line| found |= is_file_at(line, address));
    found
}

/// Shows all such memory, but for the stack of the main thread.
pub(crate) fn for_each_private(mut show: impl FnMut(Private)) {
    for_each_line(|line| private_of(line).into_iter().for_each(&mut show));
}

/// Shows the beginning of each line.
fn for_each_line(mut show: impl FnMut(&[u8])) {
    let path = c"/proc/self/maps".as_ptr() as usize;
    // SAFETY: the kernel reads the path, a constant with a zero byte at its end, and writes nothing.
    let fd = unsafe { sys::call(sys::number::OPENAT, [AT_FDCWD, path, O_CLOEXEC, 0, 0, 0]) };
    if fd < 0 {
        return;
    }
    let (mut line, mut len, mut offset) = ([0; LINE_LEN], 0, 0);
    loop {
        let mut part = [0; 4096];
        let arguments = [
            fd as usize,
            part.as_mut_ptr() as usize,
            part.len(),
            offset,
            0,
            0,
        ];
        // SAFETY: the kernel writes at most what the buffer has.
        let read = unsafe { sys::call(sys::number::PREAD64, arguments) };
        let Some(read) = usize::try_from(read).ok().filter(|read| *read > 0) else {
            break;
        };
        offset += read;
        for byte in &part[..read] {
            if *byte == b'\n' {
                show(&line[..len]);
                len = 0;
            } else if let Some(place) = line.get_mut(len) {
                *place = *byte;
                len += 1;
            }
        }
    }
    sys::close(fd as i32);
}
