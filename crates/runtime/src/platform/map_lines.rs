//! The lines of `/proc/self/maps`. Depends on nothing, and is tested by `tests/units.rs`.

/// Memory that can be written and belongs to no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Private {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) is_executable: bool,
    /// Whether it is the heap of the C library.
    pub(crate) is_heap: bool,
}

/// The addresses of a line, and its other fields.
fn addresses(line: &[u8]) -> (u64, u64, impl Iterator<Item = &[u8]>) {
    let mut fields = line.split(|byte| *byte == b' ');
    let mut ends = fields.next().unwrap_or(&[]).split(|byte| *byte == b'-');
    let mut end = || number(ends.next().unwrap_or(&[]), 16);
    (end(), end(), fields)
}

/// What a line says, if it is about such memory.
pub(crate) fn private_of(line: &[u8]) -> Option<Private> {
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
pub(crate) fn is_file_at(line: &[u8], address: u64) -> bool {
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
