//! A file of compressed blobs that is only appended to.
//!
//! A blob is found by its position, which its owner writes to a journal when the blob is complete. So the pack needs no
//! index, and what lies behind the last position in the journal was never reported. The checksum of a blob depends on its
//! position, so a wrong position is detected as damage.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use powerfail_files::{input, output};
use powerfail_trace::varint::{put, take};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{Result, StoreError};

const MAGIC: [u8; 8] = *b"pfpack\x01\n";
/// Checksum and length.
const HEAD_BYTES: usize = 12;
/// Compression makes shorter blobs longer.
const COMPRESS_FROM_BYTES: usize = 48;
const LEVEL: i32 = 3;
/// No blob is longer. A longer one is damage, for which no memory is allocated.
const BLOB_LIMIT_BYTES: u64 = 1 << 33;

/// The encoding of a blob.
mod way {
    pub(super) const PLAIN: u8 = 0;
    pub(super) const ZSTD: u8 = 1;
}

/// The position of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BlobPosition {
    /// The first byte of its head.
    pub at: u64,
    /// Its length in bytes, with the head.
    pub len: u32,
}

impl BlobPosition {
    pub(crate) fn end(self) -> u64 {
        self.at.saturating_add(u64::from(self.len))
    }
}

/// An open pack.
pub(crate) struct Pack {
    path: PathBuf,
    file: File,
    end: u64,
    is_head_mended: bool,
    compressor: Option<zstd::bulk::Compressor<'static>>,
    decompressor: Option<zstd::bulk::Decompressor<'static>>,
}

impl Pack {
    /// Opens a pack to append to, or creates it. `referenced` is the end of the last blob that was reported. A kill leaves at
    /// most one blob behind it, complete or not, which is cut off. If there is more, it was reported and its journal was
    /// lost, so it stays. The second result is the number of bytes that were cut off.
    pub(crate) fn open(path: &Path, referenced: u64) -> Result<(Self, u64)> {
        let file = output::open(path).map_err(StoreError::file("open", path))?;
        let mut pack = Self::of(path, file);
        let len = pack.len()?;
        let referenced = referenced.max(MAGIC.len() as u64);
        if len < MAGIC.len() as u64 {
            // A kill while it was created, or a lost file: nothing in it can be read, and new blobs go behind all
            // positions that were ever used.
            (pack.file.write_all_at(&MAGIC, 0)).map_err(StoreError::file("write", path))?;
            pack.end = referenced;
            return Ok((pack, len));
        }
        pack.mend_magic()?;
        let cut = len > referenced && pack.is_one_blob(referenced, len)?;
        if cut {
            (pack.file.set_len(referenced)).map_err(StoreError::file("cut", path))?;
        }
        pack.end = if cut { referenced } else { len.max(referenced) };
        Ok((pack, if cut { len - referenced } else { 0 }))
    }

    /// Opens a pack that another process may be appending to.
    pub(crate) fn follow(path: &Path) -> Result<Self> {
        let file = input::open(path).map_err(StoreError::file("open", path))?;
        let pack = Self::of(path, file);
        pack.check_magic()?;
        Ok(pack)
    }

    fn of(path: &Path, file: File) -> Self {
        Self {
            path: path.to_owned(),
            file,
            end: 0,
            is_head_mended: false,
            compressor: None,
            decompressor: None,
        }
    }

    fn check_magic(&self) -> Result<()> {
        let mut magic = [0; MAGIC.len()];
        match self.file.read_exact_at(&mut magic, 0) {
            Ok(()) if magic == MAGIC => Ok(()),
            Ok(()) if magic[..6] == MAGIC[..6] => Err(StoreError::Version {
                path: self.path.clone(),
            }),
            Ok(()) => Err(StoreError::damaged(&self.path, 0, "not a pack")),
            Err(error) => Err(StoreError::file("read", &self.path)(error)),
        }
    }

    /// Writes the magic again if it is damaged. It cannot be that of another version: then, the record of the campaign has
    /// a newer format, and nothing is opened for writing. Every blob has its own checksum.
    fn mend_magic(&mut self) -> Result<()> {
        match self.check_magic() {
            Err(StoreError::Damaged { .. } | StoreError::Version { .. }) => {}
            checked => return checked,
        }
        (self.file.write_all_at(&MAGIC, 0)).map_err(StoreError::file("write", &self.path))?;
        self.is_head_mended = true;
        Ok(())
    }

    /// Whether the magic was damaged when the pack was opened.
    pub(crate) const fn is_head_mended(&self) -> bool {
        self.is_head_mended
    }

    /// Whether at most one blob lies between two positions.
    fn is_one_blob(&self, from: u64, to: u64) -> Result<bool> {
        if to - from < HEAD_BYTES as u64 {
            return Ok(true);
        }
        let mut head = [0; HEAD_BYTES];
        (self.file.read_exact_at(&mut head, from)).map_err(StoreError::file("read", &self.path))?;
        Ok(split_head(&head).1 as u64 >= to - from - HEAD_BYTES as u64)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The length of the file.
    pub(crate) fn len(&self) -> Result<u64> {
        let metadata = self.file.metadata();
        Ok((metadata.map_err(StoreError::file("inspect", &self.path))?).len())
    }

    /// Appends a blob. After an error, the pack is unchanged.
    pub(crate) fn append(&mut self, blob: &[u8]) -> Result<BlobPosition> {
        let (bytes, place) = self.encode(blob, self.end)?;
        if let Err(error) = self.file.write_all_at(&bytes, self.end) {
            self.cut(place);
            return Err(StoreError::file("write", &self.path)(error));
        }
        self.end = place.end();
        Ok(place)
    }

    /// Writes a lost blob again where it was. Returns `false`, and writes nothing, if it now takes another number of bytes.
    pub(crate) fn write_again(&mut self, place: BlobPosition, blob: &[u8]) -> Result<bool> {
        let (bytes, now) = self.encode(blob, place.at)?;
        if now != place {
            return Ok(false);
        }
        (self.file.write_all_at(&bytes, place.at))
            .map_err(StoreError::file("write", &self.path))?;
        self.end = self.end.max(place.end());
        Ok(true)
    }

    /// The bytes of a blob at a position, with its head.
    fn encode(&mut self, blob: &[u8], at: u64) -> Result<(Vec<u8>, BlobPosition)> {
        let mut bytes = vec![0; HEAD_BYTES];
        (self.compress(blob, &mut bytes)).map_err(StoreError::file("compress for", &self.path))?;
        let payload = bytes.len() - HEAD_BYTES;
        let too_long = || {
            let error = io::Error::from(io::ErrorKind::FileTooLarge);
            StoreError::file("write so much at once to", &self.path)(error)
        };
        let len = u32::try_from(bytes.len()).map_err(|_| too_long())?;
        let sum = xxh3_64_with_seed(&bytes[HEAD_BYTES..], at);
        bytes[..8].copy_from_slice(&sum.to_le_bytes());
        bytes[8..12].copy_from_slice(&(payload as u32).to_le_bytes());
        Ok((bytes, BlobPosition { at, len }))
    }

    /// Removes the last blob. If the file cannot be cut, the next blob overwrites it.
    pub(crate) fn cut(&mut self, last: BlobPosition) {
        self.end = last.at;
        drop(self.file.set_len(self.end));
    }

    fn compress(&mut self, blob: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        if blob.len() >= COMPRESS_FROM_BYTES {
            let compressor = match &mut self.compressor {
                Some(compressor) => compressor,
                none => none.insert(zstd::bulk::Compressor::new(LEVEL)?),
            };
            let small = compressor.compress(blob)?;
            if small.len() + 4 < blob.len() {
                out.push(way::ZSTD);
                put(out, blob.len() as u64);
                out.extend_from_slice(&small);
                return Ok(());
            }
        }
        out.push(way::PLAIN);
        out.extend_from_slice(blob);
        Ok(())
    }

    /// Reads a blob; `None` if the file is too short.
    pub(crate) fn read(&mut self, place: BlobPosition) -> Result<Option<Vec<u8>>> {
        let damaged = |what| Err(StoreError::damaged(&self.path, place.at, what));
        if place.end() > self.len()? {
            return Ok(None);
        }
        let mut bytes = vec![0; place.len as usize];
        (self.file.read_exact_at(&mut bytes, place.at))
            .map_err(StoreError::file("read", &self.path))?;
        let Some((head, payload)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
            return damaged("a blob is shorter than its head");
        };
        let (sum, len) = split_head(head);
        if len != payload.len() || sum != xxh3_64_with_seed(payload, place.at) {
            return damaged("the checksum of a blob is wrong");
        }
        let Some((way, mut payload)) = payload.split_first() else {
            return damaged("a blob is empty");
        };
        match *way {
            way::PLAIN => Ok(Some(payload.to_vec())),
            way::ZSTD => {
                let Some(len) = take(&mut payload).filter(|len| *len <= BLOB_LIMIT_BYTES) else {
                    return damaged("a blob has an impossible length");
                };
                let decompressor = match &mut self.decompressor {
                    Some(decompressor) => decompressor,
                    none => none.insert(
                        zstd::bulk::Decompressor::new()
                            .map_err(StoreError::file("decompress", &self.path))?,
                    ),
                };
                match decompressor.decompress(payload, len as usize) {
                    Ok(blob) if blob.len() as u64 == len => Ok(Some(blob)),
                    _ => damaged("a blob cannot be decompressed"),
                }
            }
            _ => damaged("a blob has an unknown encoding; update powerfail"),
        }
    }
}

fn split_head(head: &[u8; HEAD_BYTES]) -> (u64, usize) {
    let sum = u64::from_le_bytes(std::array::from_fn(|byte| head[byte]));
    let len = u32::from_le_bytes(std::array::from_fn(|byte| head[8 + byte]));
    (sum, len as usize)
}
