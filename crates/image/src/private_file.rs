//! A private copy of a pool, brought to a crash image by writing the pages that differ.
//!
//! What recovery did to the file is unknown, so all that the file has is compared with the image: the
//! ranges that the file system says hold data. Everything else is a hole and reads as zeros, so only
//! pages of the image that are not zero have to be put there. Both costs know nothing of the length
//! of the pool.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

use crate::mapping::Mapping;
use crate::page::{PAGE, Page};

/// How many pages are written at a time.
const RUN_PAGES: usize = 256;
/// How many pages are compared before their mapping is released: 64 MiB. Files that are smaller stay mapped from one
/// comparison to the next, which saves the faults.
const MAPPED_PAGES: u64 = 1 << 14;

/// What was done to a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) pages_written: u64,
    pub(crate) pages_punched: u64,
}

/// What a file is to hold.
pub(crate) trait PageSource<'a> {
    /// How long it is.
    fn len_bytes(&self) -> u64;

    /// A page; `None` is a page of zeros.
    fn page(&self, number: u64) -> Option<&'a Page>;

    /// Visits the pages with numbers in `from..to` that may not be zero, ascending.
    fn for_each_page<E>(
        &self,
        from: u64,
        to: u64,
        visit: impl FnMut(u64, &'a Page) -> Result<(), E>,
    ) -> Result<(), E>;
}

/// A file with the content of a pool, and what it holds now.
#[derive(Debug)]
pub(crate) struct PrivateFile {
    file: File,
    device: u64,
    inode: u64,
    mode: u32,
    mapping: Mapping,
}

impl PrivateFile {
    /// Makes an empty file where none is.
    pub(crate) fn create(path: &Path, mode: u32) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        Self::of(file, mode)
    }

    /// A file that exists and is open for reading and writing.
    pub(crate) fn of(file: File, mode: u32) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            mode,
            mapping: Mapping::new(&file, 0)?,
            file,
        })
    }

    /// Whether the file is still at its path, and nowhere else.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        path.symlink_metadata().is_ok_and(|metadata| {
            metadata.is_file()
                && (metadata.dev(), metadata.ino()) == (self.device, self.inode)
                && metadata.nlink() == 1
        })
    }

    /// Makes the file equal to the image, byte for byte, whatever it holds.
    pub(crate) fn bring_to<'a>(&mut self, image: &impl PageSource<'a>) -> io::Result<Changes> {
        let metadata = self.file.metadata()?;
        if metadata.mode() & 0o7777 != self.mode {
            self.file
                .set_permissions(Permissions::from_mode(self.mode))?;
        }
        let len_bytes = image.len_bytes();
        if metadata.len() != len_bytes {
            self.file.set_len(len_bytes)?;
        }
        let page_count = len_bytes.div_ceil(PAGE);
        if self.mapping.page_count() != page_count {
            self.mapping = Mapping::new(&self.file, len_bytes)?;
        }
        let mut pass = Pass {
            file: &self.file,
            mapping: &self.mapping,
            len_bytes,
            run: Vec::with_capacity(RUN_PAGES),
            run_start: 0,
            hole: 0..0,
            changes: Changes::default(),
        };
        let mut position = 0;
        let (mut released, mut compared) = (0, 0);
        while position < page_count {
            let (from, to) = next_data(&self.file, position, page_count)?;
            image.for_each_page(position, from, |number, page| {
                if page.is_zero() {
                    Ok(())
                } else {
                    pass.write(number, page)
                }
            })?;
            for number in from..to {
                match image.page(number) {
                    Some(page) => pass.compare(number, page)?,
                    None => pass.punch(number)?,
                }
                compared += 1;
                if compared == MAPPED_PAGES {
                    self.mapping.release(released..number + 1);
                    (released, compared) = (number + 1, 0);
                }
            }
            position = to;
        }
        pass.finish()
    }
}

/// The next pages that may hold data, or none at the end. Extents of file systems with small blocks
/// are widened to whole pages.
fn next_data(file: &File, position: u64, page_count: u64) -> io::Result<(u64, u64)> {
    let from = match rustix::fs::seek(file, SeekFrom::Data(position * PAGE)) {
        Ok(from) => (from / PAGE).min(page_count),
        Err(Errno::NXIO) => return Ok((page_count, page_count)),
        // A file system that does not know holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok((position, page_count)),
        Err(error) => return Err(error.into()),
    };
    let to = match rustix::fs::seek(file, SeekFrom::Hole(from * PAGE)) {
        Ok(to) => to.div_ceil(PAGE),
        Err(Errno::NXIO) => page_count,
        Err(error) => return Err(error.into()),
    };
    // A hole that begins within the first page must not stop the walk.
    Ok((from, to.max(from + 1).min(page_count)))
}

/// One pass over a file: gathers neighbouring pages, so that they take one system call.
struct Pass<'a> {
    file: &'a File,
    mapping: &'a Mapping,
    len_bytes: u64,
    run: Vec<&'a Page>,
    run_start: u64,
    hole: std::ops::Range<u64>,
    changes: Changes,
}

impl<'a> Pass<'a> {
    /// A page of the file that may hold anything.
    fn compare(&mut self, number: u64, page: &'a Page) -> io::Result<()> {
        if self.mapping.differs(number, page) {
            self.clear_behind_end(number)?;
            self.write(number, page)?;
        }
        Ok(())
    }

    /// Bytes behind the end of the file, in its last page, can be changed through a mapping, and
    /// are seen through the next one. Cutting the page off makes them zero.
    fn clear_behind_end(&mut self, number: u64) -> io::Result<()> {
        if (number + 1) * PAGE > self.len_bytes {
            self.file.set_len(number * PAGE)?;
            self.file.set_len(self.len_bytes)?;
        }
        Ok(())
    }

    /// A page of the file that holds other bytes.
    fn write(&mut self, number: u64, page: &'a Page) -> io::Result<()> {
        if number != self.run_start + self.run.len() as u64 || self.run.len() == RUN_PAGES {
            self.flush_run()?;
        }
        if self.run.is_empty() {
            self.run_start = number;
        }
        self.run.push(page);
        Ok(())
    }

    /// A page that takes room in the file and is zero in the image.
    fn punch(&mut self, number: u64) -> io::Result<()> {
        if number != self.hole.end {
            self.flush_hole()?;
            self.hole = number..number;
        }
        self.hole.end = number + 1;
        Ok(())
    }

    fn flush_run(&mut self) -> io::Result<()> {
        let start = self.run_start * PAGE;
        let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(self.run.len());
        let mut left = self.len_bytes - start.min(self.len_bytes);
        for page in &self.run {
            let len = left.min(PAGE) as usize;
            slices.push(IoSlice::new(&page.0[..len]));
            left -= len as u64;
        }
        self.changes.pages_written += self.run.len() as u64;
        let mut rest = slices.as_mut_slice();
        let mut position = start;
        while !rest.is_empty() {
            match rustix::io::pwritev(self.file, rest, position) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    position += count as u64;
                    IoSlice::advance_slices(&mut rest, count);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.run.clear();
        Ok(())
    }

    fn flush_hole(&mut self) -> io::Result<()> {
        let hole = std::mem::take(&mut self.hole);
        if hole.is_empty() {
            return Ok(());
        }
        let count = hole.end - hole.start;
        self.changes.pages_punched += count;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(self.file, flags, hole.start * PAGE, count * PAGE) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                for number in hole {
                    self.compare(number, const { &Page::ZERO })?;
                }
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn finish(mut self) -> io::Result<Changes> {
        self.flush_hole()?;
        self.flush_run()?;
        Ok(self.changes)
    }
}
