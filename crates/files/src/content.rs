//! Copies the content of a file without filling its holes. A file of others may have a length that no disk has room for.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// Copies everything but holes into an empty file.
///
/// # Errors
/// A file cannot be read or written, or becomes shorter meanwhile.
pub fn copy(from: &File, to: &File) -> io::Result<()> {
    let len = from.metadata()?.len();
    to.set_len(len)?;
    let mut at = 0;
    while at < len {
        let start = match seek(from, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let end = seek(from, SeekFrom::Hole(start))?;
        copy_range(from, to, start, end)?;
        at = end;
    }
    Ok(())
}

fn copy_range(from: &File, to: &File, start: u64, end: u64) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 20];
    let mut at = start;
    while at < end {
        let len = buffer.len().min((end - at) as usize);
        from.read_exact_at(&mut buffer[..len], at)?;
        to.write_all_at(&buffer[..len], at)?;
        at += len as u64;
    }
    Ok(())
}
