//! The mappings of the process, read from `/proc/self/maps`: slow, for rare use.
//!
//! # Safety
//!
//! The kernel reads a constant path and writes to a buffer on the stack, never more than its length.
#![allow(unsafe_code, reason = "opens and reads /proc/self/maps")]

use crate::platform::sys;

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

/// Memory that can be written and belongs to no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Private {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) is_executable: bool,
    /// Whether it is the heap of the C library.
    pub(crate) is_heap: bool,
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

/// The addresses of a line, and its other fields.
fn addresses(line: &[u8]) -> (u64, u64, impl Iterator<Item = &[u8]>) {
    let mut fields = line.split(|byte| *byte == b' ');
    let mut ends = fields.next().unwrap_or(&[]).split(|byte| *byte == b'-');
    let mut end = || number(ends.next().unwrap_or(&[]), 16);
    (end(), end(), fields)
}

/// What a line says, if it is about such memory.
fn private_of(line: &[u8]) -> Option<Private> {
    const INODE: usize = 4;
    let (from, to, mut fields) = addresses(line);
    let rights = fields.next()?;
    let inode = fields.nth(INODE - 2)?;
    let is_private = (rights == b"rw-p" || rights == b"rwxp") && inode == b"0";
    (is_private && !line.ends_with(b"[stack]")).then_some(Private {
        from,
        to,
        is_executable: rights == b"rwxp",
        is_heap: line.ends_with(b"[heap]"),
    })
}

/// Whether a line is about a mapping of a file with an address in it: `from-to rights offset device inode`.
fn is_file_at(line: &[u8], address: u64) -> bool {
    const INODE: usize = 4;
    let (from, to, mut fields) = addresses(line);
    let inode = fields.nth(INODE - 1).unwrap_or(&[]);
    (from..to).contains(&address) && number(inode, 10) != 0
}

fn number(digits: &[u8], base: u32) -> u64 {
    digits.iter().fold(0, |number: u64, digit| {
        let digit = char::from(*digit).to_digit(base).unwrap_or(0);
        number
            .wrapping_mul(base.into())
            .wrapping_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::{is_file_at, private_of};

    #[test]
    fn lines_of_files_and_others() {
        let file =
            b"7f96bb600000-7f96bc600000 rw-p 00000000 00:1c 4242                       /dev/shm/a";
        assert!(is_file_at(file, 0x7f96_bb60_0000));
        assert!(is_file_at(file, 0x7f96_bc5f_ffff));
        assert!(!is_file_at(file, 0x7f96_bc60_0000));
        let heap =
            b"555555559000-55555557a000 rw-p 00000000 00:00 0                          [heap]";
        assert!(!is_file_at(heap, 0x5555_5555_9010));
        let private = private_of(heap).map(|it| (it.from, it.to, it.is_executable, it.is_heap));
        assert_eq!(
            private,
            Some((0x5555_5555_9000, 0x5555_5557_a000, false, true))
        );
        assert_eq!(private_of(file), None);
        assert!(!is_file_at(b"", 0));
    }
}
