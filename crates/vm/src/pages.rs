//! Copies between images of persistent memory: only what differs is written, and holes cost nothing.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// What is compared at a time.
const CHUNK: usize = 64 << 10;
const PAGE: usize = 4096;

/// Makes the first `len` bytes of `to` equal to those of `from`. What lies behind the end of a file is zero.
pub(crate) fn copy(from: &File, to: &File, len: u64) -> io::Result<()> {
    let (mut wanted, mut found) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut at = 0;
    while at < len {
        // Where neither has data, both are zero.
        let next = next_data(from, at)?.min(next_data(to, at)?);
        if next >= len {
            break;
        }
        at = next / CHUNK as u64 * CHUNK as u64;
        let size = usize::try_from(len - at).map_or(CHUNK, |left| left.min(CHUNK));
        read(from, &mut wanted[..size], at)?;
        read(to, &mut found[..size], at)?;
        for start in (0..size).step_by(PAGE) {
            let page = start..(start + PAGE).min(size);
            if wanted[page.clone()] != found[page.clone()] {
                to.write_all_at(&wanted[page], at + start as u64)?;
            }
        }
        at += CHUNK as u64;
    }
    Ok(())
}

/// Calls `each` with the pieces of a file that may not be zero, in ascending order.
pub(crate) fn pieces<E: From<io::Error>>(
    file: &File,
    len: u64,
    mut each: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    while at < len {
        let next = next_data(file, at)?;
        if next >= len {
            break;
        }
        at = next / CHUNK as u64 * CHUNK as u64;
        let size = usize::try_from(len - at).map_or(CHUNK, |left| left.min(CHUNK));
        read(file, &mut buffer[..size], at)?;
        each(at, &buffer[..size])?;
        at += CHUNK as u64;
    }
    Ok(())
}

/// The first place at or behind `at` that is no hole.
fn next_data(file: &File, at: u64) -> io::Result<u64> {
    match seek(file, SeekFrom::Data(at)) {
        Ok(next) => Ok(next),
        Err(Errno::NXIO) => Ok(u64::MAX),
        // A file system that knows no holes.
        Err(Errno::INVAL) => Ok(at),
        Err(error) => Err(error.into()),
    }
}

/// Reads; what lies behind the end is zero.
fn read(file: &File, buffer: &mut [u8], at: u64) -> io::Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], at + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    buffer[done..].fill(0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(len: u64, parts: &[(u64, &[u8])]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(len).unwrap();
        for (at, bytes) in parts {
            file.write_all_at(bytes, *at).unwrap();
        }
        file
    }

    fn content(file: &File, len: u64) -> Vec<u8> {
        let mut all = vec![0; len as usize];
        read(file, &mut all, 0).unwrap();
        all
    }

    #[test]
    fn the_copy_is_exact_and_nothing_behind_it_changes() {
        let len = 5 * CHUNK as u64;
        let from = file(
            len,
            &[(10, b"first"), (3 * CHUNK as u64 + 4090, b"across pages")],
        );
        let to = file(
            len + 100,
            &[
                (10, b"other"),
                (2 * CHUNK as u64, b"must go"),
                (len + 5, b"kept"),
            ],
        );
        copy(&from, &to, len).unwrap();
        assert_eq!(content(&from, len), content(&to, len));
        assert_eq!(&content(&to, len + 100)[len as usize + 5..][..4], b"kept");
    }

    #[test]
    fn pieces_are_what_is_there() {
        let len = 4 * CHUNK as u64;
        let from = file(len, &[(CHUNK as u64 * 2 + 7, b"here")]);
        let mut image = vec![0; len as usize];
        pieces::<io::Error>(&from, len, |at, bytes| {
            image[at as usize..][..bytes.len()].copy_from_slice(bytes);
            Ok(())
        })
        .unwrap();
        assert_eq!(image, content(&from, len));
    }
}
