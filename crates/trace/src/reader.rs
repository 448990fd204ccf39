//! Opens a trace: finds its blocks and loads its definitions. Records stay in the file.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;

use powerfail_model::files::{InitialTree, NodeId};
use powerfail_model::{EventIndex, PoolIndex};
use rustc_hash::FxHashMap;
use xxhash_rust::xxh3::Xxh3;

use crate::block::{EventBlock, FileRuns, ImageRuns, RecordCursor};
use crate::compress::decompress;
use crate::definition::{Frame, Meta, Module, Pool, StackId, StackNode, Thread};
use crate::definitions::{Definitions, decode_meta};
use crate::error::{Result, TraceError};
use crate::image::{FinalImage, ImageBlock, is_zero};
use crate::index::{Final, IndexDecoder, decode_final, decode_final_tree};
use crate::layout::{
    BLOCK_CHECKSUM_AT, BLOCK_HEADER_LEN, BlockDescriptor, BlockKind, FILE_HEADER_LEN, TRAILER_LEN,
    Trailer, check_file_header, checksum_matches, payload_checksum,
};
use crate::source::ReadAt;
use crate::tree::{FinalEntry, InitialEntry, InitialNode, Tree, TreeIndex};

/// Whether a trace has everything that its writer wanted to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completeness {
    /// The writer finished it.
    Complete,
    /// The writer died, or the file was cut. Everything up to the last complete block is readable.
    Incomplete {
        /// The bytes from the beginning of the file that are readable.
        usable_bytes: u64,
        /// The bytes after them: of a block that is not complete, or zeros that were never
        /// written.
        lost_bytes: u64,
    },
}

/// An open trace. Can be shared by several threads, each of which reads other blocks.
pub struct Trace {
    source: Box<dyn ReadAt>,
    file_bytes: u64,
    completeness: Completeness,
    meta: Meta,
    definitions: Definitions,
    end: Option<Final>,
    blocks: Vec<BlockDescriptor>,
    event_blocks: Vec<BlockDescriptor>,
    /// The first block with content of a file, and the one behind the last.
    file_blocks: FxHashMap<NodeId, (usize, usize)>,
    /// By tree.
    final_trees: Vec<Option<Vec<FinalEntry>>>,
    event_count: u64,
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace")
            .field("file_bytes", &self.file_bytes)
            .field("completeness", &self.completeness)
            .field("event_count", &self.event_count)
            .finish_non_exhaustive()
    }
}

impl Trace {
    /// Opens the trace in a file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::from_source(File::open(path)?)
    }

    /// The same; `progress` hears how far in the file the reader is, in bytes.
    pub fn open_with_progress(
        path: impl AsRef<Path>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self> {
        Self::read_with_progress(File::open(path)?, progress)
    }

    /// The same, of an open file.
    pub fn read_with_progress(file: File, progress: &mut dyn FnMut(u64)) -> Result<Self> {
        Self::read_from(file, progress)
    }

    /// Opens a trace in memory.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self> {
        Self::from_source(bytes)
    }

    /// Opens a trace anywhere.
    pub fn from_source(source: impl ReadAt + 'static) -> Result<Self> {
        Self::read_from(source, &mut |_| ())
    }

    fn read_from(source: impl ReadAt + 'static, progress: &mut dyn FnMut(u64)) -> Result<Self> {
        let file_bytes = source.len()?;
        let mut trace = Self {
            source: Box::new(source),
            file_bytes,
            completeness: Completeness::Complete,
            meta: Meta::default(),
            definitions: Definitions::default(),
            end: None,
            blocks: Vec::new(),
            event_blocks: Vec::new(),
            file_blocks: FxHashMap::default(),
            final_trees: Vec::new(),
            event_count: 0,
        };
        let mut header = [0; FILE_HEADER_LEN];
        let present =
            usize::try_from(file_bytes).map_or(FILE_HEADER_LEN, |len| len.min(FILE_HEADER_LEN));
        trace.read(&mut header[..present], 0)?;
        check_file_header(&header[..present])?;
        match trace.read_trailer()? {
            Some((trailer, trailer_offset)) => trace.read_index(trailer, trailer_offset)?,
            None => trace.scan(progress)?,
        }
        trace.load(progress)?;
        Ok(trace)
    }

    /// Whether the trace has everything that its writer wanted to write.
    pub const fn completeness(&self) -> Completeness {
        self.completeness
    }

    /// How long the file is.
    pub const fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Where the trace comes from.
    pub const fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The pools; a [`PoolIndex`] is a position in this slice.
    pub fn pools(&self) -> &[Pool] {
        &self.definitions.pools
    }

    /// The modules; a [`ModuleIndex`](crate::ModuleIndex) is a position in this slice.
    pub fn modules(&self) -> &[Module] {
        &self.definitions.modules
    }

    /// The threads; a [`ThreadIndex`](powerfail_model::ThreadIndex) is a position in this slice.
    pub fn threads(&self) -> &[Thread] {
        &self.definitions.threads
    }

    /// How many nodes the tree of call stacks has. Their ids count from one.
    pub fn stack_count(&self) -> u32 {
        self.definitions.limits().stacks
    }

    /// One node of the tree of call stacks; `None` for [`StackId::NONE`] and unknown ids.
    pub fn stack_node(&self, id: StackId) -> Option<StackNode> {
        self.definitions.stack(id)
    }

    /// Addresses of frames in generated code, and the functions that they lie in, as far as the target has told it.
    pub fn generated(&self) -> impl Iterator<Item = (u64, &str)> {
        let names = self.definitions.generated.iter();
        names.map(|(address, name)| (*address, name.as_str()))
    }

    /// The frames of a call stack, innermost first. The first one is the site.
    pub fn stack(&self, id: StackId) -> StackFrames<'_> {
        StackFrames {
            definitions: &self.definitions,
            next: id,
        }
    }

    /// The places in code of a call stack, innermost first: the path of the module with the offset in it, or no path
    /// with the address.
    pub fn code_places(&self, id: StackId) -> impl Iterator<Item = (Option<&[u8]>, u64)> {
        self.stack(id).map(|frame| match frame {
            Frame::Module { module, offset } => {
                let module = self.modules().get(module.0 as usize);
                (
                    module.map(|it| it.path.as_os_str().as_encoded_bytes()),
                    offset,
                )
            }
            Frame::Absolute { address } => (None, address),
        })
    }

    /// How many records the trace holds.
    pub const fn event_count(&self) -> u64 {
        self.event_count
    }

    /// All blocks but the index, in the order of the file.
    pub fn blocks(&self) -> &[BlockDescriptor] {
        &self.blocks
    }

    /// A digest of everything in the file: two traces with the same one are the same. Costs a read of each block's header,
    /// which has the checksum of the block.
    pub fn digest(&self) -> Result<u128> {
        let mut hasher = Xxh3::new();
        let mut header = [0; BLOCK_HEADER_LEN];
        for block in &self.blocks {
            self.read(&mut header, block.offset)?;
            hasher.update(&header);
        }
        hasher.update(&self.file_bytes.to_le_bytes());
        Ok(hasher.digest128())
    }

    /// The blocks that hold records, in the order of the records.
    pub fn event_blocks(&self) -> &[BlockDescriptor] {
        &self.event_blocks
    }

    /// Reads one of the [`event_blocks`](Self::event_blocks), by its position there.
    pub fn read_block(&self, number: usize) -> Result<EventBlock> {
        let mut block = EventBlock::default();
        self.read_block_into(number, &mut block)?;
        Ok(block)
    }

    /// The same, reusing the memory of a block that is not needed any more.
    pub fn read_block_into(&self, number: usize, block: &mut EventBlock) -> Result<()> {
        let descriptor = self.event_blocks.get(number).ok_or(TraceError::Undefined {
            what: "event block",
            index: number as u64,
        })?;
        block.read(self, descriptor, self.definitions.limits())
    }

    /// The records from `first` on. A `first` beyond the last record gives none.
    pub fn records_from(&self, first: EventIndex) -> RecordCursor<'_> {
        RecordCursor::new(self, first)
    }

    /// The number of the event block that holds the record `index`, or of the next one.
    pub(crate) fn block_of(&self, index: EventIndex) -> usize {
        self.event_blocks.partition_point(|block| {
            block
                .first_event
                .saturating_add(u64::from(block.event_count))
                <= index.0
        })
    }

    /// The content of a pool when it was mapped, in pieces. What no piece covers was zero; where
    /// pieces overlap, the later one holds.
    pub fn initial_image(&self, pool: PoolIndex) -> ImageRuns<'_> {
        ImageRuns::new(self, Some(pool))
    }

    /// The same for all pools, in the order of the file.
    pub fn initial_images(&self) -> ImageRuns<'_> {
        ImageRuns::new(self, None)
    }

    /// The pools at the end of the run, as far as the writer knew and lived to say.
    pub fn final_images(&self) -> &[FinalImage] {
        self.end.as_ref().map_or(&[], |end| &end.images)
    }

    /// The trees; a [`TreeIndex`] is a position in this slice.
    pub fn trees(&self) -> &[Tree] {
        &self.definitions.trees
    }

    /// The nodes that the trees had before the first operation.
    pub fn initial_nodes(&self) -> &[InitialNode] {
        &self.definitions.nodes
    }

    /// One of these, by its number.
    pub fn initial_node(&self, node: NodeId) -> Option<&InitialNode> {
        self.definitions.initial_node(node)
    }

    /// The names that the trees had before the first operation.
    pub fn initial_entries(&self) -> &[InitialEntry] {
        &self.definitions.entries
    }

    /// The trees before the first operation, as the model has them.
    pub fn initial_tree(&self) -> InitialTree {
        let mut tree = InitialTree::default();
        for initial in self.initial_nodes() {
            tree.add(initial.node, initial.kind.clone(), initial.len_bytes, None);
        }
        let entries = self.initial_entries().iter();
        tree.entries
            .extend(entries.map(|it| (it.entry.clone(), it.node)));
        tree
    }

    /// The content that a file had before the first operation, in pieces. What no piece covers was zero; where pieces
    /// overlap, the later one holds.
    pub fn initial_file(&self, node: NodeId) -> FileRuns<'_> {
        let (from, to) = self.file_blocks.get(&node).copied().unwrap_or_default();
        FileRuns::new(self, Some(node), from..to)
    }

    /// The same for all files, in the order of the trace.
    pub fn initial_files(&self) -> FileRuns<'_> {
        FileRuns::new(self, None, 0..usize::MAX)
    }

    /// Files whose content is not recorded: the target changed them by mappings that are not pools.
    pub fn unrecorded_files(&self) -> &[NodeId] {
        &self.definitions.unrecorded
    }

    /// What was found in a tree at the end, if the writer lived to say.
    pub fn final_tree(&self, tree: TreeIndex) -> Option<&[FinalEntry]> {
        self.final_trees.get(tree.0 as usize)?.as_deref()
    }

    /// Reads everything and checks all of it: each byte of a complete trace is covered.
    pub fn verify(&self) -> Result<()> {
        let mut stored = Vec::new();
        let mut raw = Vec::new();
        let mut events = EventBlock::default();
        for descriptor in &self.blocks {
            match descriptor.kind {
                BlockKind::Events => {
                    events.read(self, descriptor, self.definitions.limits())?;
                    events.records().try_for_each(|record| record.map(drop))?;
                }
                BlockKind::InitialImage | BlockKind::InitialFile => {
                    self.read_payload(descriptor, &mut stored, &mut raw)?;
                    self.image_block(descriptor, &raw)?;
                }
                _ => self.read_payload(descriptor, &mut stored, &mut raw)?,
            }
        }
        Ok(())
    }

    /// The runs of a block of an initial image, whose payload is `raw`.
    pub(crate) fn image_block(
        &self,
        descriptor: &BlockDescriptor,
        raw: &[u8],
    ) -> Result<ImageBlock> {
        let pool = PoolIndex(descriptor.subject);
        let len_bytes = if descriptor.kind == BlockKind::InitialFile {
            let node = self.initial_node(NodeId(descriptor.subject));
            node.map_or(0, |node| node.len_bytes)
        } else {
            let pool = self.pools().get(pool.0 as usize);
            pool.map_or(0, |pool| pool.len_bytes)
        };
        ImageBlock::decode(raw, pool, len_bytes, descriptor.offset)
    }

    /// Reads, checks and decompresses a payload into `raw`.
    pub(crate) fn read_payload(
        &self,
        descriptor: &BlockDescriptor,
        stored: &mut Vec<u8>,
        raw: &mut Vec<u8>,
    ) -> Result<()> {
        let stored_len = descriptor.stored_len_bytes as usize;
        stored.resize(BLOCK_HEADER_LEN + stored_len, 0);
        self.read(stored, descriptor.offset)?;
        let Some((header, payload)) = stored.split_first_chunk::<BLOCK_HEADER_LEN>() else {
            return Err(TraceError::Truncated { what: "block" });
        };
        let (found, checksum) = BlockDescriptor::decode(header, descriptor.offset)?;
        if found != *descriptor {
            return Err(TraceError::corrupt(
                "a block is not what the index says",
                descriptor.offset,
            ));
        }
        if !checksum_matches(checksum, payload_checksum(payload)) {
            return Err(TraceError::corrupt(
                "a block's checksum is wrong",
                descriptor.offset,
            ));
        }
        let raw_len = descriptor.raw_len_bytes as usize;
        decompress(descriptor.codec, payload, raw_len, raw, descriptor.offset)
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.source
            .read_exact_at(buffer, offset)
            .map_err(|error| match error.kind() {
                // Lengths are checked before: the file shrank in the meantime.
                io::ErrorKind::UnexpectedEof => TraceError::Truncated { what: "block" },
                _ => TraceError::Io(error),
            })
    }

    fn read_header(&self, offset: u64) -> Result<BlockDescriptor> {
        let mut header = [0; BLOCK_HEADER_LEN];
        self.read(&mut header, offset)?;
        Ok(BlockDescriptor::decode(&header, offset)?.0)
    }

    /// The trailer and where it is, if the file ends with one.
    fn read_trailer(&self) -> Result<Option<(Trailer, u64)>> {
        let Some(offset) = self.file_bytes.checked_sub(TRAILER_LEN as u64) else {
            return Ok(None);
        };
        let mut bytes = [0; TRAILER_LEN];
        self.read(&mut bytes, offset)?;
        Ok(Trailer::decode(&bytes, offset).map(|trailer| (trailer, offset)))
    }

    /// Finds the blocks of a complete trace.
    fn read_index(&mut self, trailer: Trailer, trailer_offset: u64) -> Result<()> {
        let mut position = trailer.index_offset;
        if position < FILE_HEADER_LEN as u64 || position >= trailer_offset {
            return Err(TraceError::corrupt(
                "the trailer points outside of the file",
                trailer_offset,
            ));
        }
        let mut index = IndexDecoder::new(position);
        let (mut stored, mut raw) = (Vec::new(), Vec::new());
        while position < trailer_offset {
            if trailer_offset - position < BLOCK_HEADER_LEN as u64 {
                return Err(TraceError::corrupt("the index is cut off", position));
            }
            let descriptor = self.read_header(position)?;
            if descriptor.kind != BlockKind::Index
                || descriptor.end() > trailer_offset
                || descriptor.first_event != trailer.event_count
            {
                return Err(TraceError::corrupt(
                    "the index does not fill the end of the file",
                    position,
                ));
            }
            self.read_payload(&descriptor, &mut stored, &mut raw)?;
            index.decode(&raw, position)?;
            position = descriptor.end();
        }
        (self.blocks, self.event_count) = index.finish()?;
        if self.event_count != trailer.event_count {
            return Err(TraceError::corrupt(
                "the index and the trailer disagree about the number of events",
                trailer_offset,
            ));
        }
        if self.blocks.last().map(|block| block.kind) != Some(BlockKind::Final) {
            return Err(TraceError::corrupt(
                "a complete trace has no final block",
                trailer.index_offset,
            ));
        }
        Ok(())
    }

    /// Finds the blocks of a trace that has no trailer: its writer died, or it is damaged.
    fn scan(&mut self, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let mut position = FILE_HEADER_LEN as u64;
        let mut index_seen = false;
        loop {
            let left = self.file_bytes.saturating_sub(position);
            let header = (left >= BLOCK_HEADER_LEN as u64).then(|| self.read_header(position));
            if !matches!(header, Some(Ok(_))) && self.never_written_from(position, index_seen)? {
                position = self.drop_torn_block(position)?;
                break;
            }
            if index_seen && left >= TRAILER_LEN as u64 {
                // A writer that got as far as this writes a trailer next or another index block.
                let index_next = header.as_ref().is_some_and(|header| {
                    header
                        .as_ref()
                        .is_ok_and(|header| header.kind == BlockKind::Index)
                });
                if !index_next {
                    return Err(TraceError::corrupt("the trailer is damaged", position));
                }
            }
            let Some(descriptor) = header.transpose()? else {
                break;
            };
            if descriptor.end() > self.file_bytes {
                break;
            }
            if descriptor.first_event != self.event_count {
                return Err(TraceError::corrupt(
                    "the numbering of events has a gap",
                    position,
                ));
            }
            position = descriptor.end();
            progress(position);
            self.event_count += u64::from(descriptor.event_count);
            if descriptor.kind == BlockKind::Index {
                index_seen = true;
            } else {
                self.blocks.push(descriptor);
            }
        }
        self.completeness = Completeness::Incomplete {
            usable_bytes: position,
            lost_bytes: self.file_bytes.saturating_sub(position),
        };
        Ok(())
    }

    /// Whether the file ends at `position`, or has nothing but zeros from there on, or from within
    /// the block header there. After a crash of the host a file can have its new length but not its
    /// new bytes.
    fn never_written_from(&self, position: u64, index_seen: bool) -> Result<bool> {
        // An intact header ends with its checksum. Behind an index a trailer may stand, not a block.
        let checksum = position.saturating_add(BLOCK_CHECKSUM_AT as u64);
        let first = if !index_seen && checksum < self.file_bytes {
            checksum
        } else {
            position
        };
        self.is_zero_from(first)
    }

    fn is_zero_from(&self, mut position: u64) -> Result<bool> {
        let mut chunk = vec![0; 1 << 16];
        while position < self.file_bytes {
            let left = self.file_bytes - position;
            let len = usize::try_from(left).map_or(chunk.len(), |left| left.min(chunk.len()));
            self.read(&mut chunk[..len], position)?;
            if !is_zero(&chunk[..len]) {
                return Ok(false);
            }
            position += len as u64;
        }
        Ok(true)
    }

    /// Where the readable part ends, if nothing was written from `position` on: what was never
    /// written may begin in the payload of the block before, at the border of a sector.
    fn drop_torn_block(&mut self, position: u64) -> Result<u64> {
        const SECTOR_BYTES: u64 = 512;
        let Some(last) = self.blocks.last().copied() else {
            return Ok(position);
        };
        let payload_offset = last.offset + BLOCK_HEADER_LEN as u64;
        let border = position.saturating_sub(1) / SECTOR_BYTES * SECTOR_BYTES;
        if last.end() != position || border < payload_offset {
            return Ok(position);
        }
        let mut block = vec![0; BLOCK_HEADER_LEN + last.stored_len_bytes as usize];
        self.read(&mut block, last.offset)?;
        let Some((header, payload)) = block.split_first_chunk::<BLOCK_HEADER_LEN>() else {
            return Ok(position);
        };
        let (_, checksum) = BlockDescriptor::decode(header, last.offset)?;
        let torn = is_zero(&payload[(border - payload_offset) as usize..])
            && !checksum_matches(checksum, payload_checksum(payload));
        if !torn {
            return Ok(position);
        }
        self.blocks.pop();
        self.event_count = last.first_event;
        Ok(last.offset)
    }

    /// Loads what stays in memory, and checks that the blocks are in an order that makes sense.
    fn load(&mut self, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let (mut stored, mut raw) = (Vec::new(), Vec::new());
        let blocks = std::mem::take(&mut self.blocks);
        for (number, descriptor) in blocks.iter().enumerate() {
            let corrupt = |what| Err(TraceError::corrupt(what, descriptor.offset));
            if (descriptor.kind == BlockKind::Meta) != (number == 0) {
                return corrupt("a trace begins with meta information, and has it once");
            }
            if self.end.is_some() {
                return corrupt("there is a block after the final one");
            }
            match descriptor.kind {
                BlockKind::Meta => {
                    self.read_payload(descriptor, &mut stored, &mut raw)?;
                    self.meta = decode_meta(&raw, descriptor.offset)?;
                }
                BlockKind::Definitions => {
                    self.read_payload(descriptor, &mut stored, &mut raw)?;
                    self.definitions.decode(&raw, descriptor.offset)?;
                }
                BlockKind::InitialImage => {
                    if descriptor.subject >= self.definitions.limits().pools {
                        return corrupt("an image is of a pool that is not defined");
                    }
                }
                BlockKind::InitialFile => {
                    let node = NodeId(descriptor.subject);
                    if self.definitions.initial_node(node).is_none() {
                        return corrupt("content is of a file that is not defined");
                    }
                    let blocks = self.file_blocks.entry(node).or_insert((number, 0));
                    blocks.1 = number + 1;
                }
                BlockKind::FinalTree => {
                    self.read_payload(descriptor, &mut stored, &mut raw)?;
                    self.definitions.grow(raw.len())?;
                    let tree = descriptor.subject as usize;
                    if tree >= self.definitions.trees.len() {
                        return corrupt("the end is of a tree that is not defined");
                    }
                    if self.final_trees.len() <= tree {
                        self.final_trees.resize(tree + 1, None);
                    }
                    let known = self.final_trees[tree].get_or_insert_default();
                    decode_final_tree(known, &raw, descriptor.offset)?;
                }
                BlockKind::Events => {
                    if self.definitions.limits().threads == 0 {
                        return corrupt("there are events but no thread is defined");
                    }
                    self.event_blocks.push(*descriptor);
                }
                BlockKind::Final => {
                    self.read_payload(descriptor, &mut stored, &mut raw)?;
                    let pools = self.definitions.limits().pools;
                    let end = decode_final(&raw, pools, descriptor.offset)?;
                    if end.event_count != self.event_count {
                        return corrupt("the final block counts other events than there are");
                    }
                    self.end = Some(end);
                }
                BlockKind::Index => return corrupt("an index block describes an index block"),
            }
            progress(descriptor.end());
        }
        self.blocks = blocks;
        Ok(())
    }
}

/// The frames of a call stack, innermost first.
#[derive(Clone, Debug)]
pub struct StackFrames<'a> {
    definitions: &'a Definitions,
    next: StackId,
}

impl Iterator for StackFrames<'_> {
    type Item = Frame;

    fn next(&mut self) -> Option<Frame> {
        let node = self.definitions.stack(self.next)?;
        self.next = node.caller;
        Some(node.frame)
    }
}
