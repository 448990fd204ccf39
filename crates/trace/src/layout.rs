//! The fixed structures of a trace file: file header, block header, trailer; and their checksums.
//!
//! `docs/reference/trace-format.md` is the prose to this module. Nothing here knows what payloads mean.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::error::{Result, TraceError};

/// The newest major version of the format that this crate reads, and the one that it writes.
pub const FORMAT_MAJOR: u16 = 1;
/// The minor version that this crate writes. A newer one is readable unless it uses unknown codes.
pub const FORMAT_MINOR: u16 = 2;

/// The longest payload of one record. Longer stores are split by the writer, longer marks refused.
pub const MAX_PAYLOAD_BYTES: usize = 16 << 20;

/// The longest payload of a block after decompression.
pub(crate) const MAX_RAW_BYTES: u32 = 64 << 20;
/// The same for a block of definitions: they stay in memory.
pub(crate) const MAX_DEFINITION_RAW_BYTES: u32 = 4 << 20;
/// The longest byte string in a definition: a path, a name, a build-id.
pub(crate) const MAX_DEFINITION_STRING_BYTES: usize = 1 << 20;
/// All blocks of definitions together, after decompression.
pub(crate) const MAX_DEFINITIONS_BYTES: u64 = 512 << 20;
/// The most nodes in the tree of call stacks.
pub(crate) const MAX_STACK_NODES: u32 = 1 << 26;
/// The most bytes of pool content in one block of an initial image.
pub(crate) const MAX_IMAGE_CHUNK_BYTES: usize = 1 << 20;
/// The longest payload of such a block: content and the table of its runs.
pub(crate) const MAX_IMAGE_RAW_BYTES: u32 = 2 << 20;
/// The longest block of meta information. Linux allows command lines of 2 MiB.
pub(crate) const MAX_META_RAW_BYTES: u32 = 4 << 20;
/// The most pools, modules and threads: tables of them stay in memory.
pub(crate) const MAX_POOLS: u32 = 1 << 16;
pub(crate) const MAX_MODULES: u32 = 1 << 20;
pub(crate) const MAX_THREADS: u32 = 1 << 22;
pub(crate) const MAX_TREES: u32 = 1 << 16;
/// The most nodes of all trees. Their numbers are below it.
pub(crate) const MAX_NODES: u32 = 1 << 24;

pub(crate) const FILE_HEADER_LEN: usize = 24;
pub(crate) const BLOCK_HEADER_LEN: usize = 48;
/// Where in a block header its own checksum is: the last of its fields.
pub(crate) const BLOCK_CHECKSUM_AT: usize = 40;
pub(crate) const TRAILER_LEN: usize = 32;

const FILE_MAGIC: [u8; 8] = *b"\x89PFTRC\r\n";
const BLOCK_MARKER: [u8; 4] = *b"PFBK";
const TRAILER_MAGIC: [u8; 8] = *b"PFTREND\n";

/// Whether a checksum is right.
///
/// A build for fuzzing takes every checksum for right: a fuzzer cannot forge checksums, and what it
/// is after is the code behind them. No other build does that.
#[allow(
    unexpected_cfgs,
    reason = "cargo-fuzz sets `fuzzing`; cargo does not know it"
)]
pub(crate) const fn checksum_matches(expected: u64, actual: u64) -> bool {
    cfg!(fuzzing) || expected == actual
}

/// The checksum of the stored bytes of a payload.
pub(crate) fn payload_checksum(stored: &[u8]) -> u64 {
    xxh3_64(stored)
}

/// The checksum of a fixed structure depends on where it stands, so that a block that was moved or
/// repeated is not taken for a good one.
fn placed_checksum(bytes: &[u8], offset: u64) -> u64 {
    xxh3_64_with_seed(bytes, offset)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

/// The `N` bytes at `at`; callers pass arrays of fixed size, so they are there.
fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    if let Some(found) = bytes.get(at..at + N) {
        array.copy_from_slice(found);
    }
    array
}

/// The file header that this crate writes.
pub(crate) fn encode_file_header(major: u16, minor: u16) -> [u8; FILE_HEADER_LEN] {
    let mut bytes = [0; FILE_HEADER_LEN];
    bytes[..8].copy_from_slice(&FILE_MAGIC);
    bytes[8..10].copy_from_slice(&major.to_le_bytes());
    bytes[10..12].copy_from_slice(&minor.to_le_bytes());
    let checksum = placed_checksum(&bytes[..16], 0);
    bytes[16..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Checks the first bytes of a file: all of it if it is shorter than a file header.
pub(crate) fn check_file_header(bytes: &[u8]) -> Result<()> {
    if bytes.is_empty() {
        return Err(TraceError::Empty);
    }
    let magic_len = bytes.len().min(FILE_MAGIC.len());
    if bytes[..magic_len] != FILE_MAGIC[..magic_len] {
        return Err(TraceError::NotATrace);
    }
    if bytes.len() < FILE_HEADER_LEN {
        return Err(TraceError::Truncated {
            what: "file header",
        });
    }
    if !checksum_matches(u64_at(bytes, 16), placed_checksum(&bytes[..16], 0)) {
        return Err(TraceError::corrupt(
            "the file header's checksum is wrong",
            0,
        ));
    }
    // The layout of the file header is the same in all versions, so the version can be trusted now.
    let found = u16_at(bytes, 8);
    if found > FORMAT_MAJOR {
        return Err(TraceError::NewerVersion {
            found,
            supported: FORMAT_MAJOR,
        });
    }
    if found == 0 {
        return Err(TraceError::corrupt("there is no format version 0", 0));
    }
    if u32_at(bytes, 12) != 0 {
        return Err(TraceError::UnknownCode {
            what: "set of file flags",
            code: u64::from(u32_at(bytes, 12)),
            offset: 0,
        });
    }
    Ok(())
}

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockKind {
    /// Where the trace comes from.
    Meta,
    /// Pools, modules, threads, call stacks.
    Definitions,
    /// Content of a pool when it was first mapped.
    InitialImage,
    /// Records.
    Events,
    /// Lengths and hashes of the pools at the end, and totals.
    Final,
    /// The descriptors of all blocks before.
    Index,
    /// Content that a file of a tree had at the beginning.
    InitialFile,
    /// Names of a tree at the end, and what was found there.
    FinalTree,
}

impl BlockKind {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Meta => 1,
            Self::Definitions => 2,
            Self::InitialImage => 3,
            Self::Events => 4,
            Self::Final => 5,
            Self::Index => 6,
            Self::InitialFile => 7,
            Self::FinalTree => 8,
        }
    }

    pub(crate) const fn from_code(code: u8, offset: u64) -> Result<Self> {
        Ok(match code {
            1 => Self::Meta,
            2 => Self::Definitions,
            3 => Self::InitialImage,
            4 => Self::Events,
            5 => Self::Final,
            6 => Self::Index,
            7 => Self::InitialFile,
            8 => Self::FinalTree,
            _ => {
                return Err(TraceError::UnknownCode {
                    what: "kind of block",
                    code: code as u64,
                    offset,
                });
            }
        })
    }

    const fn max_raw_bytes(self) -> u32 {
        match self {
            Self::Meta => MAX_META_RAW_BYTES,
            Self::Definitions | Self::FinalTree => MAX_DEFINITION_RAW_BYTES,
            Self::InitialImage | Self::InitialFile => MAX_IMAGE_RAW_BYTES,
            Self::Events | Self::Final | Self::Index => MAX_RAW_BYTES,
        }
    }
}

/// How the payload of a block is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// As it is.
    Raw,
    /// As a zstd frame.
    Zstd,
}

impl Codec {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Raw => 0,
            Self::Zstd => 1,
        }
    }

    pub(crate) const fn from_code(code: u8, offset: u64) -> Result<Self> {
        Ok(match code {
            0 => Self::Raw,
            1 => Self::Zstd,
            _ => {
                return Err(TraceError::UnknownCode {
                    what: "codec",
                    code: code as u64,
                    offset,
                });
            }
        })
    }
}

/// What is known of a block without reading its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockDescriptor {
    /// What it holds.
    pub kind: BlockKind,
    /// How its payload is stored.
    pub codec: Codec,
    /// What it is about: the index of the pool for an initial image, the number of the node for the content of a file,
    /// the index of the tree for what was found at its end, else zero.
    pub subject: u32,
    /// Where its header begins in the file.
    pub offset: u64,
    /// How many bytes its payload takes in the file, after the header.
    pub stored_len_bytes: u32,
    /// How many bytes its payload has after decompression.
    pub raw_len_bytes: u32,
    /// The index of the first record in this block, or after it if it holds none.
    pub first_event: u64,
    /// How many records it holds.
    pub event_count: u32,
}

impl BlockDescriptor {
    /// Where the next block begins.
    pub(crate) const fn end(&self) -> u64 {
        // Neither term can come near the limit: offsets are below the file's length.
        self.offset
            .saturating_add(BLOCK_HEADER_LEN as u64)
            .saturating_add(self.stored_len_bytes as u64)
    }

    /// Checks what must hold whatever the payload is.
    pub(crate) fn check(&self) -> Result<()> {
        let corrupt = |what| Err(TraceError::corrupt(what, self.offset));
        if self.raw_len_bytes > self.kind.max_raw_bytes() {
            return Err(TraceError::TooLarge {
                what: "the bytes of a block",
                limit: u64::from(self.kind.max_raw_bytes()),
            });
        }
        let stored_right = match self.codec {
            Codec::Raw => self.stored_len_bytes == self.raw_len_bytes,
            Codec::Zstd => self.stored_len_bytes < self.raw_len_bytes,
        };
        if !stored_right {
            return corrupt("a block's lengths contradict each other");
        }
        if (self.kind == BlockKind::Events) != (self.event_count > 0) {
            return corrupt("a block's number of events contradicts its kind");
        }
        // A record takes at least one byte: this bounds what readers set aside and loop over.
        if self.event_count > self.raw_len_bytes {
            return corrupt("a block is too short for its number of events");
        }
        let has_subject = matches!(
            self.kind,
            BlockKind::InitialImage | BlockKind::InitialFile | BlockKind::FinalTree
        );
        if !has_subject && self.subject != 0 {
            return corrupt("a block has a subject where none belongs");
        }
        Ok(())
    }

    pub(crate) fn encode(&self, payload_checksum: u64) -> [u8; BLOCK_HEADER_LEN] {
        let mut bytes = [0; BLOCK_HEADER_LEN];
        bytes[..4].copy_from_slice(&BLOCK_MARKER);
        bytes[4] = self.kind.code();
        bytes[5] = self.codec.code();
        bytes[8..12].copy_from_slice(&self.subject.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.event_count.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.raw_len_bytes.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.stored_len_bytes.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.first_event.to_le_bytes());
        bytes[32..40].copy_from_slice(&payload_checksum.to_le_bytes());
        let checksum = placed_checksum(&bytes[..BLOCK_CHECKSUM_AT], self.offset);
        bytes[BLOCK_CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads the header that stands at `offset`; gives the payload's checksum too.
    pub(crate) fn decode(bytes: &[u8; BLOCK_HEADER_LEN], offset: u64) -> Result<(Self, u64)> {
        if bytes[..4] != BLOCK_MARKER {
            return Err(TraceError::corrupt("no block begins here", offset));
        }
        let expected = u64_at(bytes, BLOCK_CHECKSUM_AT);
        if !checksum_matches(
            expected,
            placed_checksum(&bytes[..BLOCK_CHECKSUM_AT], offset),
        ) {
            return Err(TraceError::corrupt(
                "a block header's checksum is wrong",
                offset,
            ));
        }
        if u16_at(bytes, 6) != 0 {
            return Err(TraceError::UnknownCode {
                what: "set of block flags",
                code: u64::from(u16_at(bytes, 6)),
                offset,
            });
        }
        let descriptor = Self {
            kind: BlockKind::from_code(bytes[4], offset)?,
            codec: Codec::from_code(bytes[5], offset)?,
            subject: u32_at(bytes, 8),
            offset,
            event_count: u32_at(bytes, 12),
            raw_len_bytes: u32_at(bytes, 16),
            stored_len_bytes: u32_at(bytes, 20),
            first_event: u64_at(bytes, 24),
        };
        descriptor.check()?;
        Ok((descriptor, u64_at(bytes, 32)))
    }
}

/// The end of a complete trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    /// Where the first index block begins.
    pub(crate) index_offset: u64,
    /// How many records the trace holds.
    pub(crate) event_count: u64,
}

impl Trailer {
    pub(crate) fn encode(self, offset: u64) -> [u8; TRAILER_LEN] {
        let mut bytes = [0; TRAILER_LEN];
        bytes[..8].copy_from_slice(&self.index_offset.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.event_count.to_le_bytes());
        bytes[16..24].copy_from_slice(&TRAILER_MAGIC);
        let checksum = placed_checksum(&bytes[..24], offset);
        bytes[24..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The trailer at `offset`, if these bytes are one that is intact.
    pub(crate) fn decode(bytes: &[u8; TRAILER_LEN], offset: u64) -> Option<Self> {
        let intact = bytes[16..24] == TRAILER_MAGIC
            && checksum_matches(u64_at(bytes, 24), placed_checksum(&bytes[..24], offset));
        intact.then(|| Self {
            index_offset: u64_at(bytes, 0),
            event_count: u64_at(bytes, 8),
        })
    }
}
