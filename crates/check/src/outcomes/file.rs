//! The file of outcomes: only this module knows its bytes.
//!
//! A magic number, then frames: the length of a payload, its checksum, the payload. The first frame says what the
//! outcomes are of, each other one is an outcome, and the last one says that the run has come to its end. Frames are
//! appended, each with one call of the system, so that a kill loses at most the last one.
//!
//! Reading trusts nothing: what is behind the first frame that is not whole was never written.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use powerfail_config::Partition;
use powerfail_files::{Directory, output};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::key::Key;

/// The name of the file in an output directory.
pub(crate) const NAME: &str = "outcomes";

/// The last digit is the version of the format.
const MAGIC: [u8; 8] = *b"PFOUTC\n1";
/// A length and a checksum.
const FRAME_HEADER_BYTES: usize = 4 + 8;
/// No payload is longer, as it is stored or after decompression: the longest has the logs of some thousand executions.
const PAYLOAD_BYTES_MAX: usize = 1 << 30;
/// Shorter outcomes are not compressed.
const COMPRESSED_BYTES_MIN: usize = 512;
/// Fast: there are many short ones.
const COMPRESSION_LEVEL: i32 = 1;

const KIND_ABOUT: u8 = 0;
const KIND_OUTCOME: u8 = 1;
const KIND_END: u8 = 2;
/// Kind, key, limits, codec, and the length without compression.
const OUTCOME_HEADER_BYTES: usize = 1 + 16 + 16 + 1 + 4;
const CODEC_PLAIN: u8 = 0;
const CODEC_ZSTD: u8 = 1;

/// Why a file of outcomes cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutcomesError {
    /// It cannot be read or written.
    #[error("{}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// It is something else.
    #[error("{}: not a file of outcomes that this version of powerfail can read", path.display())]
    Foreign {
        /// Its path.
        path: PathBuf,
    },
    /// An outcome in it makes no sense.
    #[error("{}: an outcome at byte {at} is damaged", path.display())]
    Damaged {
        /// Its path.
        path: PathBuf,
        /// Where.
        at: u64,
    },
    /// It is that of another run.
    #[error(
        "{} has the outcomes of another run: {what}; give another --out, or leave out --resume to begin anew",
        path.display()
    )]
    OtherRun {
        /// Its path.
        path: PathBuf,
        /// What is different.
        what: &'static str,
    },
}

/// What outcomes are of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The version of powerfail.
    pub version: String,
    /// The arguments of powerfail.
    pub arguments: Vec<OsString>,
    /// The directory in which it was called.
    pub directory: PathBuf,
    /// The digest of the trace.
    pub trace: u128,
    /// What was to be done, without what changes no outcome.
    pub options: String,
    /// How recovery is run.
    pub recovery: String,
    /// Which share of the failure points it is, and of how many.
    pub share: Option<(u64, u64)>,
    /// Files that the workload wrote with system calls and that belong to a pool.
    pub companions: Vec<PathBuf>,
}

impl About {
    /// The share.
    pub fn partition(&self) -> Option<Partition> {
        self.share
            .and_then(|(number, of)| Partition::new(number, of))
    }

    /// What is different, as a clause. The arguments may differ in what changes no outcome.
    pub(crate) fn difference(&self, other: &Self) -> Option<&'static str> {
        if self.version != other.version {
            Some("the version of powerfail is another one")
        } else if self.trace != other.trace {
            Some("the trace is another one")
        } else if self.recovery != other.recovery {
            Some("recovery is run in another way")
        } else if self.options != other.options {
            Some("the options are others")
        } else {
            None
        }
    }
}

/// A file of outcomes that was read.
pub(crate) struct Stored {
    pub(crate) about: About,
    pub(super) file: OutcomesFile,
    pub(super) entries: Vec<(Key, Entry)>,
    /// The run has come to its end.
    pub(crate) is_finished: bool,
    /// How long the part is that was written as a whole, without the frame that says that the run has ended.
    pub(super) good_bytes: u64,
}

/// Where an outcome is, and the limits of executions for which it holds.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Of the encoded outcome.
    at: u64,
    stored_bytes: u32,
    raw_bytes: u32,
    is_compressed: bool,
    pub(super) limits: RangeInclusive<u64>,
}

/// A file of outcomes that is open.
#[derive(Debug)]
pub(super) struct OutcomesFile {
    path: PathBuf,
    file: Arc<File>,
}

impl Stored {
    /// Reads the file of an output directory. `None` if it has none.
    pub(crate) fn read(out: &Path) -> Result<Option<Self>, OutcomesError> {
        let path = out.join(NAME);
        let failed = |source| OutcomesError::File {
            path: path.clone(),
            source,
        };
        let opened = Directory::open(out).and_then(|directory| directory.read(NAME.as_ref()));
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let len = file.metadata().map_err(&failed)?.len();
        let mut frames = Frames {
            from: BufReader::with_capacity(1 << 20, file),
            at: 0,
            len,
        };
        let foreign = || OutcomesError::Foreign { path: path.clone() };
        let mut magic = [0; MAGIC.len()];
        frames
            .from
            .read_exact(&mut magic)
            .ok()
            .filter(|()| magic == MAGIC)
            .ok_or_else(foreign)?;
        frames.at = MAGIC.len() as u64;
        let (_, first) = frames.next().map_err(&failed)?.ok_or_else(foreign)?;
        let about = match first.split_first() {
            Some((&KIND_ABOUT, rest)) => postcard::from_bytes(rest).map_err(|_| foreign())?,
            _ => return Err(foreign()),
        };
        let mut entries = Vec::new();
        let mut is_finished = false;
        let mut good_bytes = frames.at;
        while let Some((at, payload)) = frames.next().map_err(&failed)? {
            match payload.first() {
                Some(&KIND_END) => {
                    is_finished = true;
                    break;
                }
                Some(&KIND_OUTCOME) => {
                    let Some(entry) = entry_of(&payload, at) else {
                        break;
                    };
                    entries.push(entry);
                }
                _ => break,
            }
            good_bytes = frames.at;
        }
        let file = Arc::new(frames.from.into_inner());
        Ok(Some(Self {
            about,
            file: OutcomesFile { path, file },
            entries,
            is_finished,
            good_bytes,
        }))
    }
}

/// The frames of a file.
struct Frames {
    from: BufReader<File>,
    /// Where the next one begins.
    at: u64,
    len: u64,
}

impl Frames {
    /// The next payload, and where it begins. `None` at the end, or at a frame that is not whole.
    fn next(&mut self) -> io::Result<Option<(u64, Vec<u8>)>> {
        let begins = self.at + FRAME_HEADER_BYTES as u64;
        if begins > self.len {
            return Ok(None);
        }
        let mut header = [0; FRAME_HEADER_BYTES];
        self.from.read_exact(&mut header)?;
        let (len, checksum) = header.split_at(4);
        let len = u32::from_le_bytes(len.try_into().unwrap_or_default());
        let checksum = u64::from_le_bytes(checksum.try_into().unwrap_or_default());
        if len as usize > PAYLOAD_BYTES_MAX || begins + u64::from(len) > self.len {
            return Ok(None);
        }
        let mut payload = vec![0; len as usize];
        self.from.read_exact(&mut payload)?;
        if !checksum_matches(checksum, xxh3_64_with_seed(&payload, self.at)) {
            return Ok(None);
        }
        self.at = begins + u64::from(len);
        Ok(Some((begins, payload)))
    }
}

/// Whether a checksum is right. A build for fuzzing takes every checksum for right, as `powerfail-trace` does.
#[allow(
    unexpected_cfgs,
    reason = "cargo-fuzz sets `fuzzing`; cargo does not know it"
)]
const fn checksum_matches(expected: u64, actual: u64) -> bool {
    cfg!(fuzzing) || expected == actual
}

fn entry_of(payload: &[u8], at: u64) -> Option<(Key, Entry)> {
    let (header, stored) = payload.split_at_checked(OUTCOME_HEADER_BYTES)?;
    let number = |from: usize| {
        let bytes = header.get(from..from + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let key = u128::from(number(1)?) | u128::from(number(9)?) << 64;
    let raw = header.get(34..38)?;
    let raw_bytes = u32::from_le_bytes(raw.try_into().ok()?);
    let is_compressed = match header[33] {
        CODEC_PLAIN => false,
        CODEC_ZSTD => true,
        _ => return None,
    };
    if raw_bytes as usize > PAYLOAD_BYTES_MAX {
        return None;
    }
    let entry = Entry {
        at: at + OUTCOME_HEADER_BYTES as u64,
        stored_bytes: u32::try_from(stored.len()).ok()?,
        raw_bytes,
        is_compressed,
        limits: number(17)?..=number(25)?,
    };
    Some((Key(key), entry))
}

impl Stored {
    /// How many outcomes can be read as what `decode` makes of one.
    pub(crate) fn count_decoded<T: DeserializeOwned>(
        &self,
        decode: impl Fn(T),
    ) -> Result<usize, OutcomesError> {
        let mut count = 0;
        for (_, entry) in &self.entries {
            match self.file.read(entry) {
                Ok(outcome) => {
                    decode(outcome);
                    count += 1;
                }
                Err(OutcomesError::Damaged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }
}

impl OutcomesFile {
    /// An outcome.
    pub(super) fn read<T: DeserializeOwned>(&self, entry: &Entry) -> Result<T, OutcomesError> {
        let damaged = || OutcomesError::Damaged {
            path: self.path.clone(),
            at: entry.at,
        };
        let mut stored = vec![0; entry.stored_bytes as usize];
        let read = self.file.read_exact_at(&mut stored, entry.at);
        read.map_err(|source| OutcomesError::File {
            path: self.path.clone(),
            source,
        })?;
        if entry.is_compressed {
            stored =
                zstd::bulk::decompress(&stored, entry.raw_bytes as usize).map_err(|_| damaged())?;
        }
        postcard::from_bytes(&stored).map_err(|_| damaged())
    }

    /// Appends after the last complete entry.
    pub(super) fn resume(&self, good_bytes: u64) -> Result<Writer, OutcomesError> {
        let failed = |source| OutcomesError::File {
            path: self.path.clone(),
            source,
        };
        let file = output::open(&self.path).map_err(failed)?;
        file.set_len(good_bytes).map_err(failed)?;
        Ok(Writer {
            path: self.path.clone(),
            file,
            end: good_bytes,
        })
    }
}

/// Appends outcomes to a file.
#[derive(Debug)]
pub(super) struct Writer {
    path: PathBuf,
    file: File,
    end: u64,
}

impl Writer {
    /// Makes a new file.
    pub(super) fn create(path: &Path, about: &About) -> Result<Self, OutcomesError> {
        let failed = |source| OutcomesError::File {
            path: path.to_path_buf(),
            source,
        };
        let file = output::create(path).map_err(failed)?;
        file.write_all_at(&MAGIC, 0).map_err(failed)?;
        let mut writer = Self {
            path: path.to_path_buf(),
            file,
            end: MAGIC.len() as u64,
        };
        let payload = postcard::to_extend(about, vec![KIND_ABOUT]);
        let payload = payload.map_err(|error| failed(io::Error::other(error)))?;
        writer.write(&payload)?;
        Ok(writer)
    }

    /// Appends a frame.
    pub(super) fn write(&mut self, payload: &[u8]) -> Result<(), OutcomesError> {
        let mut frame = Vec::with_capacity(FRAME_HEADER_BYTES + payload.len());
        let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        frame.extend_from_slice(&len.to_le_bytes());
        frame.extend_from_slice(&xxh3_64_with_seed(payload, self.end).to_le_bytes());
        frame.extend_from_slice(payload);
        let written = self.file.write_all_at(&frame, self.end);
        written.map_err(|source| OutcomesError::File {
            path: self.path.clone(),
            source,
        })?;
        self.end += frame.len() as u64;
        Ok(())
    }

    /// The run has come to its end.
    pub(super) fn finish(&mut self) -> Result<(), OutcomesError> {
        self.write(&[KIND_END])
    }
}

/// The payload of an outcome. One that is too long is not kept: its recovery runs again.
pub(super) fn encode<T: Serialize>(
    key: Key,
    limits: RangeInclusive<u64>,
    outcome: &T,
) -> Option<Vec<u8>> {
    let raw = postcard::to_extend(outcome, Vec::new()).ok()?;
    if raw.len() > PAYLOAD_BYTES_MAX - OUTCOME_HEADER_BYTES {
        return None;
    }
    let raw_bytes = u32::try_from(raw.len()).ok()?;
    let mut payload = vec![KIND_OUTCOME];
    payload.extend_from_slice(&key.0.to_le_bytes());
    payload.extend_from_slice(&limits.start().to_le_bytes());
    payload.extend_from_slice(&limits.end().to_le_bytes());
    let compressed = match raw.len() {
        COMPRESSED_BYTES_MIN.. => zstd::bulk::compress(&raw, COMPRESSION_LEVEL).ok(),
        _ => None,
    };
    let (codec, stored) = match &compressed {
        Some(compressed) => (CODEC_ZSTD, compressed),
        None => (CODEC_PLAIN, &raw),
    };
    payload.push(codec);
    payload.extend_from_slice(&raw_bytes.to_le_bytes());
    payload.extend_from_slice(stored);
    Some(payload)
}
