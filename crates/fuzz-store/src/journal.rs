//! Lines of JSON that are only appended to.
//!
//! A line is an object. Its first member is a checksum of the rest of the line, so any tool for lines of JSON can read the
//! file, and damaged lines are detected. A line counts when it is complete, with its end of line. A kill leaves at most the
//! last line incomplete, which was not reported yet.
//!
//! Nothing is synchronised to the disk: a kill of the process loses nothing, a failure of the machine may lose the last
//! seconds.

use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use powerfail_files::{input, output};
use serde::Serialize;
use serde::de::DeserializeOwned;
use xxhash_rust::xxh3::xxh3_64;

use crate::{Result, StoreError};

const SUM_START: &str = "{\"sum\":\"";
const SUM_DIGITS: usize = 16;

/// A journal that this process appends to. The caller holds the lock of the directory.
pub struct Journal<T> {
    path: PathBuf,
    file: File,
    end: u64,
    checked: Checked,
    entries: PhantomData<fn(T) -> T>,
}

/// Whether lines have checksums.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Checked {
    Yes,
    /// For files that other tools read.
    No,
}

impl<T: Serialize + DeserializeOwned> Journal<T> {
    /// Opens a journal, or creates it. `entry` receives all its entries. An incomplete end is cut off; its length in bytes is
    /// the second result.
    ///
    /// # Errors
    /// The file cannot be read, or it is damaged before its end.
    pub fn open(path: &Path, entry: impl FnMut(T)) -> Result<(Self, u64)> {
        Self::open_as(path, Checked::Yes, entry)
    }

    /// Like [`Journal::open`], for lines without checksums.
    ///
    /// # Errors
    /// As [`Journal::open`].
    pub fn open_plain(path: &Path, entry: impl FnMut(T)) -> Result<(Self, u64)> {
        Self::open_as(path, Checked::No, entry)
    }

    fn open_as(path: &Path, checked: Checked, mut entry: impl FnMut(T)) -> Result<(Self, u64)> {
        let file = output::open(path).map_err(StoreError::file("open", path))?;
        let bytes = read_from(&file, 0).map_err(StoreError::file("read", path))?;
        let mut end = 0;
        let mut wrong = None;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            // Only the last line may be invalid: a kill has interrupted its writing.
            if let Some(what) = wrong.take() {
                return Err(StoreError::damaged(path, end, what));
            }
            match parse_line(line, checked) {
                Ok(value) => {
                    entry(value);
                    end += line.len() as u64;
                }
                Err(what) => wrong = Some(what),
            }
        }
        let lost_bytes = bytes.len() as u64 - end;
        if lost_bytes > 0 {
            (file.set_len(end)).map_err(StoreError::file("cut", path))?;
        }
        let journal = Self {
            path: path.to_owned(),
            file,
            end,
            checked,
            entries: PhantomData,
        };
        Ok((journal, lost_bytes))
    }

    /// Appends an entry. When this returns `Ok`, a kill of the process does not lose it. After an error, the journal is
    /// unchanged.
    ///
    /// # Errors
    /// The entry is not a JSON object, or the file cannot be written.
    pub fn append(&mut self, entry: &T) -> Result<()> {
        let line = format_line(entry, self.checked).map_err(StoreError::file(
            "write an entry that is not an object to",
            &self.path,
        ))?;
        if let Err(error) = self.file.write_all_at(line.as_bytes(), self.end) {
            // If this fails, too, the next line overwrites the beginning of this one.
            drop(self.file.set_len(self.end));
            return Err(StoreError::file("write", &self.path)(error));
        }
        self.end += line.len() as u64;
        Ok(())
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The length of its lines, in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.end
    }
}

/// Reads a journal that another process may be appending to.
pub struct JournalReader<T> {
    path: PathBuf,
    position: u64,
    checked: Checked,
    entries: PhantomData<fn() -> T>,
}

/// A line that [`JournalReader::read`] has read.
#[derive(Debug)]
pub struct JournalLine<T> {
    /// The entry, or what is wrong with the line.
    pub entry: Result<T>,
    /// The position behind it.
    pub end: u64,
}

impl<T: DeserializeOwned> JournalReader<T> {
    /// A reader that starts at the position of an earlier one, or at 0.
    pub fn new(path: &Path, position: u64) -> Self {
        Self::new_as(path, position, Checked::Yes)
    }

    /// The same for lines without checksums.
    pub fn new_plain(path: &Path, position: u64) -> Self {
        Self::new_as(path, position, Checked::No)
    }

    fn new_as(path: &Path, position: u64, checked: Checked) -> Self {
        Self {
            path: path.to_owned(),
            position,
            checked,
            entries: PhantomData,
        }
    }

    /// The lines since the last call. A last line that is incomplete or invalid is read again by the next call. A missing
    /// file counts as an empty one.
    ///
    /// # Errors
    /// The file cannot be read. A damaged line is reported in its [`JournalLine`].
    pub fn read(&mut self) -> Result<Vec<JournalLine<T>>> {
        let bytes = match input::open(&self.path) {
            Ok(file) => read_from(&file, self.position),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        let bytes = bytes.map_err(StoreError::file("read", &self.path))?;
        let mut lines = Vec::new();
        let mut at = self.position;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let entry = parse_line(line, self.checked)
                .map_err(|what| StoreError::damaged(&self.path, at, what));
            at += line.len() as u64;
            lines.push(JournalLine { entry, end: at });
        }
        lines.pop_if(|line| line.entry.is_err());
        self.position = lines.last().map_or(self.position, |line| line.end);
        Ok(lines)
    }

    /// The position that it has reached.
    pub fn position(&self) -> u64 {
        self.position
    }
}

fn read_from(file: &File, position: u64) -> io::Result<Vec<u8>> {
    let len = file.metadata()?.len().saturating_sub(position);
    let mut bytes = vec![0; len as usize];
    let mut read = 0;
    // The file may shrink at the same time: its owner cuts off what it could not write in full.
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], position + read as u64) {
            Ok(0) => break,
            Ok(len) => read += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(read);
    Ok(bytes)
}

fn format_line(entry: &impl Serialize, checked: Checked) -> io::Result<String> {
    let json = serde_json::to_string(entry)?;
    let Some(members) = json.strip_prefix('{') else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    Ok(match checked {
        Checked::No => format!("{json}\n"),
        Checked::Yes => {
            let comma = if members == "}" { "" } else { "," };
            let rest = format!("\"{comma}{members}");
            let sum = xxh3_64(rest.as_bytes());
            format!("{SUM_START}{sum:016x}{rest}\n")
        }
    })
}

fn parse_line<T: DeserializeOwned>(line: &[u8], checked: Checked) -> Result<T, String> {
    let line = (line.strip_suffix(b"\n")).ok_or("a line has no end")?;
    let line = std::str::from_utf8(line).map_err(|_| "a line is not UTF-8")?;
    let json = match checked {
        Checked::No => None,
        Checked::Yes => {
            let wrong = "a line has no checksum";
            let rest = line.strip_prefix(SUM_START).ok_or(wrong)?;
            let (sum, rest) = rest.split_at_checked(SUM_DIGITS).ok_or(wrong)?;
            if sum != format!("{:016x}", xxh3_64(rest.as_bytes())) {
                return Err("the checksum of a line is wrong".into());
            }
            let members = rest.strip_prefix('"').ok_or(wrong)?;
            Some(format!(
                "{{{}",
                members.strip_prefix(',').unwrap_or(members)
            ))
        }
    };
    let json = json.as_deref().unwrap_or(line);
    serde_json::from_str(json).map_err(|error| format!("a line cannot be parsed: {error}"))
}
