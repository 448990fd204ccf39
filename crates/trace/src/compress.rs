//! Payloads between memory and file: compression, and its bounds.

use std::io;

use crate::error::{Result, TraceError};
use crate::layout::Codec;

/// How a writer stores payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// As they are.
    None,
    /// With zstd at this level, where that makes them smaller. Negative levels are faster.
    Zstd {
        /// The level.
        level: i32,
    },
}

/// Compresses payloads, keeping its memory from one to the next.
pub(crate) struct Compressor {
    zstd: Option<zstd::bulk::Compressor<'static>>,
    buffer: Vec<u8>,
}

impl Compressor {
    pub(crate) fn new(compression: Compression) -> io::Result<Self> {
        let zstd = match compression {
            Compression::None => None,
            Compression::Zstd { level } => Some(zstd::bulk::Compressor::new(level)?),
        };
        Ok(Self {
            zstd,
            buffer: Vec::new(),
        })
    }

    /// What to store for `raw`: as it is, unless compression makes it smaller.
    pub(crate) fn compress<'a>(&'a mut self, raw: &'a [u8]) -> io::Result<(Codec, &'a [u8])> {
        let Some(zstd) = &mut self.zstd else {
            return Ok((Codec::Raw, raw));
        };
        self.buffer.clear();
        self.buffer
            .reserve(zstd::zstd_safe::compress_bound(raw.len()));
        zstd.compress_to_buffer(raw, &mut self.buffer)?;
        if self.buffer.len() < raw.len() {
            Ok((Codec::Zstd, &self.buffer))
        } else {
            Ok((Codec::Raw, raw))
        }
    }
}

/// Restores a payload of exactly `raw_len` bytes. Sets aside no more than that, whatever the bytes
/// claim.
pub(crate) fn decompress(
    codec: Codec,
    stored: &[u8],
    raw_len: usize,
    raw: &mut Vec<u8>,
    block_offset: u64,
) -> Result<()> {
    raw.clear();
    match codec {
        Codec::Raw => raw.extend_from_slice(stored),
        Codec::Zstd => {
            raw.reserve_exact(raw_len);
            let result = zstd::bulk::Decompressor::new()?.decompress_to_buffer(stored, raw);
            if result.is_err() {
                return Err(TraceError::corrupt(
                    "a block cannot be decompressed",
                    block_offset,
                ));
            }
        }
    }
    if raw.len() == raw_len {
        Ok(())
    } else {
        Err(TraceError::corrupt(
            "a block's payload has not the length that its header says",
            block_offset,
        ))
    }
}
