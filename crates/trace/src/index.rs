//! The payloads at the end of a trace: what the pools became, and where the blocks are.

use std::os::unix::ffi::OsStrExt;

use powerfail_model::PoolIndex;

use crate::definitions::{put_string, take_path};
use crate::error::{Result, TraceError};
use crate::image::{FinalImage, ImageHash};
use crate::layout::{BlockDescriptor, BlockKind, Codec, FILE_HEADER_LEN};
use crate::tag;
use crate::tree::{FinalContent, FinalEntry};
use crate::varint;
use crate::wire::Fields;

/// How many blocks one index block describes. Far below the limit of a block's length.
const ENTRIES_PER_BLOCK: usize = 1 << 20;
const ENTRY_LEN: usize = 18;

/// The pools at the end, and the totals that the writer counted.
#[derive(Debug, Default)]
pub(crate) struct Final {
    pub(crate) event_count: u64,
    pub(crate) images: Vec<FinalImage>,
}

pub(crate) fn encode_final(out: &mut Vec<u8>, event_count: u64, images: &[FinalImage]) {
    out.clear();
    out.extend_from_slice(&event_count.to_le_bytes());
    for image in images {
        out.extend_from_slice(&image.pool.0.to_le_bytes());
        out.extend_from_slice(&image.len_bytes.to_le_bytes());
        out.extend_from_slice(&image.hash.0);
    }
}

pub(crate) fn decode_final(payload: &[u8], pool_count: u32, block_offset: u64) -> Result<Final> {
    let mut fields = Fields::new(payload, block_offset);
    let mut end = Final {
        event_count: fields.u64()?,
        images: Vec::new(),
    };
    while !fields.is_empty() {
        let image = FinalImage {
            pool: PoolIndex(fields.u32()?),
            len_bytes: fields.u64()?,
            hash: ImageHash(fields.array()?),
        };
        if image.pool.0 >= pool_count {
            return Err(fields.corrupt("a final image is of a pool that is not defined"));
        }
        end.images.push(image);
    }
    Ok(end)
}

/// Appends a name that a tree had at the end.
pub(crate) fn encode_final_entry(out: &mut Vec<u8>, entry: &FinalEntry) -> Result<()> {
    put_string(out, entry.path.as_os_str().as_bytes())?;
    match &entry.content {
        FinalContent::File { len_bytes, hash } => {
            out.push(tag::NODE_FILE);
            varint::put(out, *len_bytes);
            out.extend_from_slice(&hash.0);
        }
        FinalContent::Directory => out.push(tag::NODE_DIRECTORY),
        FinalContent::Symlink(target) => {
            out.push(tag::NODE_SYMLINK);
            put_string(out, target)?;
        }
        FinalContent::Other => out.push(tag::NODE_OTHER),
        FinalContent::Unrecorded => out.push(tag::NODE_UNRECORDED),
    }
    Ok(())
}

/// Adds the names of a block to those of a tree.
pub(crate) fn decode_final_tree(
    entries: &mut Vec<FinalEntry>,
    payload: &[u8],
    block_offset: u64,
) -> Result<()> {
    let mut fields = Fields::new(payload, block_offset);
    while !fields.is_empty() {
        let path = take_path(&mut fields)?;
        let content = match fields.u8()? {
            tag::NODE_FILE => FinalContent::File {
                len_bytes: fields.varint()?,
                hash: ImageHash(fields.array()?),
            },
            tag::NODE_DIRECTORY => FinalContent::Directory,
            tag::NODE_SYMLINK => FinalContent::Symlink(fields.bytes()?.into()),
            tag::NODE_OTHER => FinalContent::Other,
            tag::NODE_UNRECORDED => FinalContent::Unrecorded,
            code => return Err(fields.unknown("kind of file", u64::from(code))),
        };
        entries.push(FinalEntry { path, content });
    }
    Ok(())
}

/// The payloads of the index blocks for these blocks.
pub(crate) fn encode_index(blocks: &[BlockDescriptor]) -> impl Iterator<Item = Vec<u8>> {
    blocks.chunks(ENTRIES_PER_BLOCK).map(|part| {
        let mut out = Vec::with_capacity(part.len() * ENTRY_LEN);
        for block in part {
            out.push(block.kind.code());
            out.push(block.codec.code());
            out.extend_from_slice(&block.subject.to_le_bytes());
            out.extend_from_slice(&block.event_count.to_le_bytes());
            out.extend_from_slice(&block.raw_len_bytes.to_le_bytes());
            out.extend_from_slice(&block.stored_len_bytes.to_le_bytes());
        }
        out
    })
}

/// Restores descriptors from index blocks. Entries say how long blocks are, not where they are: the
/// blocks fill the file from the file header to the index without gap.
#[derive(Debug)]
pub(crate) struct IndexDecoder {
    pub(crate) blocks: Vec<BlockDescriptor>,
    pub(crate) event_count: u64,
    position: u64,
    index_offset: u64,
}

impl IndexDecoder {
    /// For a file whose index begins at `index_offset`.
    pub(crate) const fn new(index_offset: u64) -> Self {
        Self {
            blocks: Vec::new(),
            event_count: 0,
            position: FILE_HEADER_LEN as u64,
            index_offset,
        }
    }

    pub(crate) fn decode(&mut self, payload: &[u8], block_offset: u64) -> Result<()> {
        let mut fields = Fields::new(payload, block_offset);
        while !fields.is_empty() {
            let descriptor = BlockDescriptor {
                kind: BlockKind::from_code(fields.u8()?, block_offset)?,
                codec: Codec::from_code(fields.u8()?, block_offset)?,
                subject: fields.u32()?,
                offset: self.position,
                event_count: fields.u32()?,
                raw_len_bytes: fields.u32()?,
                stored_len_bytes: fields.u32()?,
                first_event: self.event_count,
            };
            descriptor.check()?;
            // Since a block takes at least its header, this bounds how many there can be.
            if descriptor.end() > self.index_offset {
                return Err(fields.corrupt("the index describes blocks beyond itself"));
            }
            self.position = descriptor.end();
            self.event_count += u64::from(descriptor.event_count);
            self.blocks.push(descriptor);
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> Result<(Vec<BlockDescriptor>, u64)> {
        if self.position != self.index_offset {
            return Err(TraceError::corrupt(
                "the index does not describe all blocks",
                self.index_offset,
            ));
        }
        Ok((self.blocks, self.event_count))
    }
}
