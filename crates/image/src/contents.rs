//! The whole content of pools outside of any trace: what a fuzzing campaign starts a program on, and what
//! the program leaves.
//!
//! A program is given a directory with its pool in it. So contents are those of a directory: files by
//! their paths below it, each a length and the pages that are not all zero. No file at all is the empty
//! image, on which a program creates its pool.
//!
//! Pages are shared between contents that have them in common, so that thousands of images of one campaign
//! take the memory of their differences.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use powerfail_files::Directory;
use powerfail_trace::PAGE_BYTES;

/// Bytes of a page.
pub type PageBytes = [u8; PAGE_BYTES];

/// The blake3 hash of a page.
pub type PageHash = [u8; 32];

/// The hash of a page.
pub fn page_hash(page: &PageBytes) -> PageHash {
    *blake3::hash(page).as_bytes()
}

/// Identifies contents: their blake3 hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ImageId(pub [u8; 32]);

impl fmt::Display for ImageId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for ImageId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl FromStr for ImageId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no identifier of an image: 64 hexadecimal digits");
        if text.len() != 64 || !text.is_ascii() {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

/// What a file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileContents {
    /// Its length in bytes.
    pub len_bytes: u64,
    /// Its pages that are not all zero, by number. The last one is zero behind the end of the file.
    pub pages: BTreeMap<u64, Arc<PageBytes>>,
}

/// What a directory holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectoryContents {
    /// Its files, by their paths below it.
    pub files: BTreeMap<String, FileContents>,
}

const PAGE: u64 = PAGE_BYTES as u64;

impl FileContents {
    /// Reads a file. Holes cost nothing.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(file: &File) -> io::Result<Self> {
        let len_bytes = file.metadata()?.len();
        let mut contents = Self {
            len_bytes,
            pages: BTreeMap::new(),
        };
        let mut at = 0;
        while let Some(data) = seek(file, at, rustix::fs::SeekFrom::Data)? {
            let end = seek(file, data, rustix::fs::SeekFrom::Hole)?.unwrap_or(len_bytes);
            for number in data / PAGE..end.div_ceil(PAGE) {
                contents.read_page(file, number)?;
            }
            at = end;
        }
        Ok(contents)
    }

    /// Reads one page again.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read_page(&mut self, file: &File, number: u64) -> io::Result<()> {
        let mut bytes = [0; PAGE_BYTES];
        let len = self.len_bytes.saturating_sub(number * PAGE).min(PAGE) as usize;
        file.read_exact_at(&mut bytes[..len], number * PAGE)?;
        self.set_page(number, &bytes);
        Ok(())
    }

    /// Gives a page its bytes.
    pub fn set_page(&mut self, number: u64, bytes: &PageBytes) {
        if bytes.iter().all(|byte| *byte == 0) {
            self.pages.remove(&number);
        } else if self.pages.get(&number).is_none_or(|page| **page != *bytes) {
            self.pages.insert(number, Arc::new(*bytes));
        }
    }

    /// Writes everything into an empty file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, file: &File) -> io::Result<()> {
        file.set_len(self.len_bytes)?;
        for (number, page) in &self.pages {
            let at = number * PAGE;
            let len = self.len_bytes.saturating_sub(at).min(PAGE) as usize;
            file.write_all_at(&page[..len], at)?;
        }
        Ok(())
    }
}

impl DirectoryContents {
    /// Reads all regular files below a directory.
    ///
    /// # Errors
    /// Something cannot be read.
    pub fn read(directory: &Path) -> io::Result<Self> {
        let mut contents = Self::default();
        contents.read_below(directory, "")?;
        Ok(contents)
    }

    fn read_below(&mut self, directory: &Path, prefix: &str) -> io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.read_below(&entry.path(), &format!("{name}/"))?;
            } else if kind.is_file() {
                let file = File::open(entry.path())?;
                self.files.insert(name, FileContents::read(&file)?);
            }
        }
        Ok(())
    }

    /// Makes the files in an empty directory.
    ///
    /// # Errors
    /// Something cannot be written, or a name leads out of the directory.
    pub fn write(&self, directory: &Directory) -> io::Result<()> {
        for (name, contents) in &self.files {
            let name = Path::new(name);
            if let Some(parent) = name.parent() {
                directory.create_directory(parent)?;
            }
            contents.write(&directory.create_file(name)?)?;
        }
        Ok(())
    }

    /// What identifies them: a hash of names, lengths, and of the hashes of pages.
    pub fn id(&self) -> ImageId {
        self.id_from(|page| page_hash(page))
    }

    /// The same from remembered hashes of pages. It is asked for them in the order of files and
    /// of pages.
    pub fn id_from(&self, mut hash_of: impl FnMut(&Arc<PageBytes>) -> PageHash) -> ImageId {
        let mut hasher = blake3::Hasher::new();
        let mut pages = Vec::new();
        for (name, file) in &self.files {
            hasher.update(&(name.len() as u64).to_le_bytes());
            hasher.update(name.as_bytes());
            hasher.update(&file.len_bytes.to_le_bytes());
            hasher.update(&(file.pages.len() as u64).to_le_bytes());
            // Much at once is hashed faster than the same in pieces.
            pages.clear();
            for (number, page) in &file.pages {
                pages.extend_from_slice(&number.to_le_bytes());
                pages.extend_from_slice(&hash_of(page));
            }
            hasher.update(&pages);
        }
        ImageId(*hasher.finalize().as_bytes())
    }

    /// Shares the pages that are equal to those of other contents.
    pub fn share_with(&mut self, other: &Self) {
        for (name, file) in &mut self.files {
            let Some(theirs) = other.files.get(name) else {
                continue;
            };
            for (number, page) in &mut file.pages {
                if let Some(same) = theirs.pages.get(number)
                    && same == page
                {
                    *page = Arc::clone(same);
                }
            }
        }
    }
}

/// Where the next data or hole begins, if there is any.
fn seek(
    file: &File,
    from: u64,
    to: impl FnOnce(u64) -> rustix::fs::SeekFrom,
) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, to(from)) {
        Ok(at) => Ok(Some(at)),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_what_was_written_to_it() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let mut contents = DirectoryContents::default();
        let mut pool = FileContents {
            len_bytes: 8 << 20,
            ..FileContents::default()
        };
        pool.set_page(0, &[1; PAGE_BYTES]);
        pool.set_page(2047, &[2; PAGE_BYTES]);
        pool.set_page(7, &[0; PAGE_BYTES]);
        contents.files.insert("pool".into(), pool);
        let mut odd = FileContents {
            len_bytes: 5,
            ..FileContents::default()
        };
        let mut bytes = [0; PAGE_BYTES];
        bytes[..5].copy_from_slice(b"abcde");
        odd.set_page(0, &bytes);
        contents.files.insert("beside/odd".into(), odd);
        contents.write(&Directory::open(directory.path())?)?;
        let mut read = DirectoryContents::read(directory.path())?;
        assert_eq!(read, contents);
        assert_eq!(read.id(), contents.id());
        read.share_with(&contents);
        assert!(Arc::ptr_eq(
            &read.files["pool"].pages[&0],
            &contents.files["pool"].pages[&0]
        ));
        read.files.get_mut("pool").expect("a file").len_bytes += 1;
        assert_ne!(read.id(), contents.id());
        assert_eq!(contents.id().to_string().parse(), Ok(contents.id()));
        assert!("12".parse::<ImageId>().is_err());
        Ok(())
    }
}
