//! Lines of JSON that are only appended to.
//!
//! A line is an object. Its first member is a checksum of the rest of the line, so that the file is read by
//! any tool that reads lines of JSON, and a line that is damaged is not taken for one that is not. A line
//! counts when it is complete with its end of line. A kill tears at most the last one, and that was not
//! reported yet.
//!
//! Nothing is forced to the disk: what a process has written stays when the process is killed. A failure of
//! the machine's own power may take the last seconds.

use std::fs::{File, OpenOptions};
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use xxhash_rust::xxh3::xxh3_64;

use crate::{CorpusError, Result};

const SUM_START: &str = "{\"sum\":\"";
const SUM_DIGITS: usize = 16;

/// A journal that this process adds to. Whoever has one holds the lock of the directory.
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
    /// For other people's tools, that should see nothing but their numbers.
    No,
}

impl<T: Serialize + DeserializeOwned> Journal<T> {
    /// Opens a journal, and makes it if there is none. `entry` gets everything that is in it. A torn end is
    /// cut off; how many bytes that were is the second result.
    ///
    /// # Errors
    /// The file cannot be read, or it is damaged before its end.
    pub fn open(path: &Path, entry: impl FnMut(T)) -> Result<(Self, u64)> {
        Self::open_as(path, Checked::Yes, entry)
    }

    /// The same for lines without checksums.
    ///
    /// # Errors
    /// As [`Journal::open`].
    pub fn open_plain(path: &Path, entry: impl FnMut(T)) -> Result<(Self, u64)> {
        Self::open_as(path, Checked::No, entry)
    }

    fn open_as(path: &Path, checked: Checked, mut entry: impl FnMut(T)) -> Result<(Self, u64)> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(CorpusError::file("open", path))?;
        let bytes = read_from(&file, 0).map_err(CorpusError::file("read", path))?;
        let mut end = 0;
        let mut wrong = None;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            // Only the last line may be wrong: then it is one that a kill has torn.
            if let Some(what) = wrong.take() {
                return Err(CorpusError::damaged(path, end, what));
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
            (file.set_len(end)).map_err(CorpusError::file("cut", path))?;
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

    /// Adds an entry. It is kept, whatever happens to this process, when this returns `Ok`. After an error
    /// the journal is as it was.
    ///
    /// # Errors
    /// The entry is no JSON object, or the file cannot be written.
    pub fn append(&mut self, entry: &T) -> Result<()> {
        let line = format_line(entry, self.checked).map_err(CorpusError::file(
            "write an entry that is no object to",
            &self.path,
        ))?;
        if let Err(error) = self.file.write_all_at(line.as_bytes(), self.end) {
            // If this fails too, the next line is written over what is there of this one.
            drop(self.file.set_len(self.end));
            return Err(CorpusError::file("write", &self.path)(error));
        }
        self.end += line.len() as u64;
        Ok(())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of its lines.
    pub fn len_bytes(&self) -> u64 {
        self.end
    }
}

/// Reads a journal that another process may be adding to.
pub struct JournalReader<T> {
    path: PathBuf,
    position: u64,
    checked: Checked,
    entries: PhantomData<fn() -> T>,
}

/// What [`JournalReader::read`] finds in one line.
#[derive(Debug)]
pub struct Line<T> {
    /// The entry, or what is wrong with the line.
    pub entry: Result<T>,
    /// The position behind it.
    pub end: u64,
}

impl<T: DeserializeOwned> JournalReader<T> {
    /// A reader that begins at a position that an earlier one has reached, or at 0.
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

    /// The lines that are there since the last time. One that is being written, or that is wrong and the
    /// last one, is read again the next time. No file is the same as an empty one.
    ///
    /// # Errors
    /// The file cannot be read. That a line is damaged is said of that line.
    pub fn read(&mut self) -> Result<Vec<Line<T>>> {
        let bytes = match File::open(&self.path) {
            Ok(file) => read_from(&file, self.position),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        let bytes = bytes.map_err(CorpusError::file("read", &self.path))?;
        let mut lines = Vec::new();
        let mut at = self.position;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let entry = parse_line(line, self.checked)
                .map_err(|what| CorpusError::damaged(&self.path, at, what));
            at += line.len() as u64;
            lines.push(Line { entry, end: at });
        }
        lines.pop_if(|line| line.entry.is_err());
        self.position = lines.last().map_or(self.position, |line| line.end);
        Ok(lines)
    }

    /// How far it has read.
    pub fn position(&self) -> u64 {
        self.position
    }
}

fn read_from(file: &File, position: u64) -> io::Result<Vec<u8>> {
    let len = file.metadata()?.len().saturating_sub(position);
    let mut bytes = vec![0; len as usize];
    let mut read = 0;
    // The file may get shorter meanwhile: its owner cuts off what it could not write in full.
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
    let line = (line.strip_suffix(b"\n")).ok_or("a line does not end")?;
    let line = std::str::from_utf8(line).map_err(|_| "a line is no text")?;
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
    serde_json::from_str(json).map_err(|error| format!("a line is not understood: {error}"))
}
