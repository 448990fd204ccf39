//! Writes a trace, block by block, so that what is in the file is readable whenever the writer dies.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use powerfail_model::files::NodeId;
use powerfail_model::{Event, EventIndex, Place, PoolIndex, PoolOffset, StoreKind, ThreadIndex};
use rustc_hash::FxHashMap;

use crate::compress::{Compression, Compressor};
use crate::definition::{Frame, Meta, Module, ModuleIndex, Pool, StackId, StackNode, Thread};
use crate::definitions::{
    check_module_count, check_node_count, check_pool_count, check_stack_count, check_thread_count,
    check_tree_count, count, encode_entry, encode_generated, encode_meta, encode_module,
    encode_node, encode_pool, encode_stack, encode_thread, encode_tree, encode_unrecorded,
    too_many_definitions,
};
use crate::encode::Encoder;
use crate::error::{Result, TraceError};
use crate::file::{EntryName, FileOperation, NewNode, is_name};
use crate::image::{FinalImage, ImageBuffer, PAGE_BYTES, is_zero, page_offset};
use crate::index::{encode_final, encode_final_entry, encode_index};
use crate::layout::{
    BlockDescriptor, BlockKind, FORMAT_MAJOR, FORMAT_MINOR, MAX_DEFINITIONS_BYTES,
    MAX_META_RAW_BYTES, MAX_NODES, MAX_PAYLOAD_BYTES, Trailer, encode_file_header,
    payload_checksum,
};
use crate::record::Body;
use crate::tree::{FinalEntry, InitialNode, Tree, TreeIndex};

/// Definitions are written out when there are this many bytes of them.
const DEFINITIONS_BLOCK_BYTES: usize = 1 << 20;

/// How to write a trace.
#[derive(Clone, Copy, Debug)]
pub struct WriterOptions {
    /// How blocks are stored.
    pub compression: Compression,
    /// A block of events ends after this many records.
    pub events_per_block: u32,
    /// A block of events ends when it has this many bytes before compression.
    pub bytes_per_block: usize,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            compression: Compression::Zstd { level: -1 },
            events_per_block: 1 << 16,
            bytes_per_block: 1 << 20,
        }
    }
}

/// The size of a trace that a writer has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceSize {
    /// How many records.
    pub event_count: u64,
    /// How many bytes they take in the file, with the headers of their blocks.
    pub event_bytes: u64,
    /// How many bytes the file has.
    pub file_bytes: u64,
    /// How many blocks it has.
    pub block_count: u64,
}

/// Writes a trace.
///
/// Records go into a block in memory; full blocks go to the file at once, after the definitions
/// that they need. A writer that is dropped or killed before [`finish`](Self::finish) leaves a
/// trace that is readable up to its last complete block.
pub struct TraceWriter<W: Write> {
    sink: W,
    options: WriterOptions,
    compressor: Compressor,
    encoder: Encoder,
    /// Definitions that are not yet in the file.
    definitions: Vec<u8>,
    definitions_bytes: u64,
    image: ImageBuffer,
    raw: Vec<u8>,
    /// What the image in the buffer is of: a pool, or a file of a tree.
    image_kind: BlockKind,
    pool_lens: Vec<u64>,
    /// The lengths of the initial nodes.
    node_lens: FxHashMap<NodeId, u64>,
    tree_count: u32,
    module_count: u32,
    generated_count: u32,
    thread_count: u32,
    stack_count: u32,
    stacks: FxHashMap<StackNode, StackId>,
    blocks: Vec<BlockDescriptor>,
    /// How many records are in the file.
    flushed_events: u64,
    event_bytes: u64,
    position: u64,
    /// A write failed in the middle of something.
    failed: bool,
}

impl TraceWriter<File> {
    /// Begins a trace in the file `path`, which is replaced if it exists. A link is not followed.
    pub fn create(path: impl AsRef<Path>, meta: &Meta, options: WriterOptions) -> Result<Self> {
        Self::new(
            powerfail_files::output::create(path.as_ref())?,
            meta,
            options,
        )
    }
}

impl<W: Write> TraceWriter<W> {
    /// Begins a trace in `sink`. Blocks are written whole: a buffer in between is of no use and
    /// would lose what it holds when the process dies.
    pub fn new(sink: W, meta: &Meta, mut options: WriterOptions) -> Result<Self> {
        options.events_per_block = options.events_per_block.clamp(1, 1 << 22);
        options.bytes_per_block = options.bytes_per_block.clamp(1, 32 << 20);
        let mut writer = Self {
            sink,
            options,
            compressor: Compressor::new(options.compression)?,
            encoder: Encoder::new(),
            definitions: Vec::new(),
            definitions_bytes: 0,
            image: ImageBuffer::default(),
            raw: Vec::new(),
            image_kind: BlockKind::InitialImage,
            pool_lens: Vec::new(),
            node_lens: FxHashMap::default(),
            tree_count: 0,
            module_count: 0,
            generated_count: 0,
            thread_count: 0,
            stack_count: 0,
            stacks: FxHashMap::default(),
            blocks: Vec::new(),
            flushed_events: 0,
            event_bytes: 0,
            position: 0,
            failed: false,
        };
        writer.raw = encode_meta(meta);
        if writer.raw.len() > MAX_META_RAW_BYTES as usize {
            return Err(TraceError::TooLarge {
                what: "the bytes of meta information",
                limit: u64::from(MAX_META_RAW_BYTES),
            });
        }
        writer.write(&encode_file_header(FORMAT_MAJOR, FORMAT_MINOR))?;
        writer.write_block(BlockKind::Meta, 0, 0)?;
        Ok(writer)
    }

    /// Adds a pool. Its content follows with [`initial_image`](Self::initial_image).
    pub fn define_pool(&mut self, pool: &Pool) -> Result<PoolIndex> {
        let index = count(&self.pool_lens);
        check_pool_count(index)?;
        self.define(|out| encode_pool(out, pool))?;
        self.pool_lens.push(pool.len_bytes);
        Ok(PoolIndex(index))
    }

    /// Adds a module. Modules may be loaded at any time during the run.
    pub fn define_module(&mut self, module: &Module) -> Result<ModuleIndex> {
        check_module_count(self.module_count)?;
        self.define(|out| encode_module(out, module))?;
        self.module_count += 1;
        Ok(ModuleIndex(self.module_count - 1))
    }

    /// Names the function of generated code that an address of a frame lies in. To be called once for an address.
    pub fn define_generated(&mut self, address: u64, name: &str) -> Result<()> {
        check_module_count(self.generated_count)?;
        self.define(|out| encode_generated(out, address, name))?;
        self.generated_count += 1;
        Ok(())
    }

    /// Adds a thread.
    pub fn define_thread(&mut self, thread: &Thread) -> Result<ThreadIndex> {
        check_thread_count(self.thread_count)?;
        self.define(|out| encode_thread(out, thread))?;
        self.thread_count += 1;
        Ok(ThreadIndex(self.thread_count - 1))
    }

    /// The call stack with these frames, innermost first. No frames: [`StackId::NONE`].
    pub fn intern_stack(&mut self, frames: &[Frame]) -> Result<StackId> {
        frames
            .iter()
            .rev()
            .try_fold(StackId::NONE, |caller, frame| {
                self.intern_frame(*frame, caller)
            })
    }

    /// The call stack whose innermost frame is `frame` and whose other frames are `caller`.
    pub fn intern_frame(&mut self, frame: Frame, caller: StackId) -> Result<StackId> {
        let node = StackNode { frame, caller };
        if let Some(id) = self.stacks.get(&node) {
            return Ok(*id);
        }
        if let Frame::Module { module, .. } = frame
            && module.0 >= self.module_count
        {
            return Err(undefined("module", module.0));
        }
        if caller.0 > self.stack_count {
            return Err(undefined("call stack", caller.0));
        }
        check_stack_count(self.stack_count)?;
        self.define(|out| {
            encode_stack(out, &node);
            Ok(())
        })?;
        self.stack_count += 1;
        let id = StackId(self.stack_count);
        self.stacks.insert(node, id);
        Ok(id)
    }

    /// Adds content that a pool had when it was mapped. What is never given was zero; pages that
    /// are all zero cost nothing. Call it before the first record about the pool.
    pub fn initial_image(
        &mut self,
        pool: PoolIndex,
        offset: PoolOffset,
        bytes: &[u8],
    ) -> Result<()> {
        let pool_len = *self
            .pool_lens
            .get(pool.0 as usize)
            .ok_or_else(|| undefined("pool", pool.0))?;
        let end = offset.0.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > pool_len) {
            return Err(TraceError::OutsidePool {
                pool: pool.0,
                offset: offset.0,
                len_bytes: bytes.len() as u64,
            });
        }
        self.fill_image(BlockKind::InitialImage, pool.0, offset.0, bytes)
    }

    /// Adds the root of a tree, which is a node that was defined.
    pub fn define_tree(&mut self, tree: &Tree) -> Result<TreeIndex> {
        check_tree_count(self.tree_count)?;
        self.check_initial(tree.root)?;
        self.define(|out| encode_tree(out, tree))?;
        self.tree_count += 1;
        Ok(TreeIndex(self.tree_count - 1))
    }

    /// Adds a node that a tree had before the first operation on it. Its content follows with
    /// [`initial_file`](Self::initial_file).
    pub fn define_node(&mut self, node: &InitialNode) -> Result<()> {
        check_node_count(node.node.0)?;
        if self.node_lens.contains_key(&node.node) {
            return Err(undefined("free number for node", node.node.0));
        }
        self.define(|out| encode_node(out, node))?;
        self.node_lens.insert(node.node, node.len_bytes);
        Ok(())
    }

    /// Adds a name that a tree had before the first operation on it.
    pub fn define_entry(&mut self, entry: EntryName<'_>, node: NodeId) -> Result<()> {
        self.check_initial(entry.directory)?;
        self.check_initial(node)?;
        check_name(entry)?;
        self.define(|out| encode_entry(out, entry.directory, entry.name, node))
    }

    /// Says that the content of a file is not recorded.
    pub fn define_unrecorded(&mut self, node: NodeId) -> Result<()> {
        check_node_count(node.0)?;
        self.define(|out| {
            encode_unrecorded(out, node);
            Ok(())
        })
    }

    /// Adds content that a file had before the first operation on its tree. What is never given was zero.
    pub fn initial_file(&mut self, node: NodeId, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check_initial(node)?;
        let len = self.node_lens.get(&node).copied().unwrap_or_default();
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > len) {
            return Err(TraceError::TooLarge {
                what: "the initial bytes of a file",
                limit: len,
            });
        }
        self.fill_image(BlockKind::InitialFile, node.0, offset, bytes)
    }

    /// Says what a tree was found to be at the end. Comes before [`finish`](Self::finish).
    pub fn final_tree<'e>(
        &mut self,
        tree: TreeIndex,
        entries: impl IntoIterator<Item = &'e FinalEntry>,
    ) -> Result<()> {
        if tree.0 >= self.tree_count {
            return Err(undefined("tree", tree.0));
        }
        self.flush_block()?;
        let mut raw = Vec::new();
        for entry in entries {
            encode_final_entry(&mut raw, entry)?;
            if raw.len() >= DEFINITIONS_BLOCK_BYTES {
                self.raw.clear();
                self.raw.append(&mut raw);
                self.write_block(BlockKind::FinalTree, tree.0, 0)?;
            }
        }
        self.raw = raw;
        self.write_block(BlockKind::FinalTree, tree.0, 0)
    }

    fn check_initial(&self, node: NodeId) -> Result<()> {
        if self.node_lens.contains_key(&node) {
            Ok(())
        } else {
            Err(undefined("node", node.0))
        }
    }

    fn fill_image(
        &mut self,
        kind: BlockKind,
        subject: u32,
        offset: u64,
        bytes: &[u8],
    ) -> Result<()> {
        if (self.image_kind, self.image.pool) != (kind, subject) {
            self.flush_image()?;
            self.image_kind = kind;
            self.image.pool = subject;
        }
        let mut position = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let page_len = rest.len().min(PAGE_BYTES - page_offset(position));
            let (page, later) = rest.split_at(page_len);
            if !is_zero(page) {
                if self.image.room() < page.len() {
                    self.flush_image()?;
                }
                self.image.push(position, page);
            }
            position += page_len as u64;
            rest = later;
        }
        Ok(())
    }

    /// Appends a record and gives its place in the order.
    ///
    /// A store of more than [`MAX_PAYLOAD_BYTES`] becomes several stores that begin at page borders,
    /// which means the same, since no line or sector crosses one; the place is that of the first.
    #[inline]
    pub fn append(
        &mut self,
        thread: ThreadIndex,
        stack: StackId,
        body: Body<'_>,
    ) -> Result<EventIndex> {
        if thread.0 >= self.thread_count {
            return Err(undefined("thread", thread.0));
        }
        if stack.0 > self.stack_count {
            return Err(undefined("call stack", stack.0));
        }
        match &body {
            Body::Pm(Event::Store { kind, at, bytes }) => {
                self.check_range(at.pool, at.offset, bytes.len() as u64)?;
                if bytes.len() > MAX_PAYLOAD_BYTES {
                    return self.append_long_store(thread, stack, *kind, *at, bytes);
                }
            }
            Body::Pm(Event::Flush { at, .. }) => self.check_range(at.pool, at.offset, 0)?,
            Body::Pm(Event::Sync {
                pool,
                offset,
                len_bytes,
            }) => self.check_range(*pool, *offset, *len_bytes)?,
            Body::Pm(Event::Resize { pool, .. }) => self.check_range(*pool, PoolOffset(0), 0)?,
            Body::Mark(mark) if mark.payload.len() > MAX_PAYLOAD_BYTES => {
                return Err(TraceError::TooLarge {
                    what: "the bytes of a mark",
                    limit: MAX_PAYLOAD_BYTES as u64,
                });
            }
            Body::File(FileOperation::Write {
                node,
                offset,
                bytes,
            }) if bytes.len() > MAX_PAYLOAD_BYTES => {
                return self.append_long_write(thread, stack, *node, *offset, bytes);
            }
            Body::File(operation) => check_operation(operation)?,
            Body::Mapped { pool, node } => {
                self.check_range(*pool, PoolOffset(0), 0)?;
                check_node_count(node.0)?;
            }
            _ => {}
        }
        self.append_checked(thread, stack, &body)
    }

    /// How many records there are so far.
    pub fn event_count(&self) -> u64 {
        self.flushed_events + u64::from(self.encoder.event_count())
    }

    /// Writes out everything so far, so that it survives the writer.
    pub fn flush_block(&mut self) -> Result<()> {
        self.flush_definitions()?;
        self.flush_image()?;
        let event_count = self.encoder.event_count();
        if event_count > 0 {
            if self.failed {
                return Err(TraceError::WriterFailed);
            }
            self.encoder.take_into(&mut self.raw);
            let before = self.position;
            self.write_block(BlockKind::Events, 0, event_count)?;
            self.event_bytes += self.position - before;
        }
        Ok(())
    }

    /// Completes the trace. `images` are the pools at the end of the run, as far as known.
    pub fn finish(self, images: &[FinalImage]) -> Result<TraceSize> {
        Ok(self.finish_into(images)?.1)
    }

    /// Completes the trace and gives the sink back.
    pub fn finish_into(mut self, images: &[FinalImage]) -> Result<(W, TraceSize)> {
        if let Some(image) = images
            .iter()
            .find(|image| image.pool.0 as usize >= self.pool_lens.len())
        {
            return Err(undefined("pool", image.pool.0));
        }
        self.flush_block()?;
        encode_final(&mut self.raw, self.flushed_events, images);
        self.write_block(BlockKind::Final, 0, 0)?;
        let index_offset = self.position;
        let blocks = std::mem::take(&mut self.blocks);
        for part in encode_index(&blocks) {
            self.raw = part;
            self.write_block(BlockKind::Index, 0, 0)?;
        }
        let trailer = Trailer {
            index_offset,
            event_count: self.flushed_events,
        };
        self.write(&trailer.encode(self.position))?;
        self.sink.flush()?;
        let size = TraceSize {
            event_count: self.flushed_events,
            event_bytes: self.event_bytes,
            file_bytes: self.position,
            block_count: (blocks.len() + self.blocks.len()) as u64,
        };
        Ok((self.sink, size))
    }

    #[inline]
    fn append_checked(
        &mut self,
        thread: ThreadIndex,
        stack: StackId,
        body: &Body<'_>,
    ) -> Result<EventIndex> {
        let index = EventIndex(self.event_count());
        self.encoder.append(thread.0, stack.0, body);
        if self.encoder.event_count() >= self.options.events_per_block
            || self.encoder.raw_len() >= self.options.bytes_per_block
        {
            self.flush_block()?;
        }
        Ok(index)
    }

    #[cold]
    fn append_long_store(
        &mut self,
        thread: ThreadIndex,
        stack: StackId,
        kind: StoreKind,
        at: Place,
        bytes: &[u8],
    ) -> Result<EventIndex> {
        let first = EventIndex(self.event_count());
        let mut offset = at.offset.0;
        let mut rest = bytes;
        while !rest.is_empty() {
            // The first piece is shorter, if it must be, so that all others begin at a page.
            let len = rest.len().min(MAX_PAYLOAD_BYTES - page_offset(offset));
            let (piece, later) = rest.split_at(len);
            let store = Event::Store {
                kind,
                at: Place::new(at.pool, PoolOffset(offset)),
                bytes: piece,
            };
            self.append_checked(thread, stack, &Body::Pm(store))?;
            offset += len as u64;
            rest = later;
        }
        Ok(first)
    }

    /// As [`Self::append_long_store`].
    #[cold]
    fn append_long_write(
        &mut self,
        thread: ThreadIndex,
        stack: StackId,
        node: NodeId,
        offset: u64,
        bytes: &[u8],
    ) -> Result<EventIndex> {
        let first = EventIndex(self.event_count());
        let mut offset = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let len = rest.len().min(MAX_PAYLOAD_BYTES - page_offset(offset));
            let (piece, later) = rest.split_at(len);
            let write = FileOperation::Write {
                node,
                offset,
                bytes: piece,
            };
            check_operation(&write)?;
            self.append_checked(thread, stack, &Body::File(write))?;
            offset += len as u64;
            rest = later;
        }
        Ok(first)
    }

    #[inline]
    fn check_range(&self, pool: PoolIndex, offset: PoolOffset, len_bytes: u64) -> Result<()> {
        if pool.0 as usize >= self.pool_lens.len() {
            return Err(undefined("pool", pool.0));
        }
        if offset.0.checked_add(len_bytes).is_none() {
            return Err(TraceError::OutsidePool {
                pool: pool.0,
                offset: offset.0,
                len_bytes,
            });
        }
        Ok(())
    }

    /// Adds one definition; if that fails, none of it.
    fn define(&mut self, encode: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
        if self.definitions.len() >= DEFINITIONS_BLOCK_BYTES {
            self.flush_definitions()?;
        }
        let before = self.definitions.len();
        let mut result = encode(&mut self.definitions);
        let added = (self.definitions.len() - before) as u64;
        if self.definitions_bytes + added > MAX_DEFINITIONS_BYTES {
            result = Err(too_many_definitions());
        }
        if result.is_ok() {
            self.definitions_bytes += added;
        } else {
            self.definitions.truncate(before);
        }
        result
    }

    fn flush_definitions(&mut self) -> Result<()> {
        if !self.definitions.is_empty() {
            self.raw.clear();
            self.raw.append(&mut self.definitions);
            self.write_block(BlockKind::Definitions, 0, 0)?;
        }
        Ok(())
    }

    fn flush_image(&mut self) -> Result<()> {
        if !self.image.is_empty() {
            self.flush_definitions()?;
            self.image.take_into(&mut self.raw);
            self.write_block(self.image_kind, self.image.pool, 0)?;
        }
        Ok(())
    }

    /// Writes `self.raw` as a block.
    fn write_block(&mut self, kind: BlockKind, subject: u32, event_count: u32) -> Result<()> {
        if self.failed {
            return Err(TraceError::WriterFailed);
        }
        // Until the block is in the file, whatever fails loses its records.
        self.failed = true;
        let (codec, stored) = self.compressor.compress(&self.raw)?;
        let too_large = |_| TraceError::TooLarge {
            what: "the bytes of a block",
            limit: u64::from(u32::MAX),
        };
        let descriptor = BlockDescriptor {
            kind,
            codec,
            subject,
            offset: self.position,
            stored_len_bytes: u32::try_from(stored.len()).map_err(too_large)?,
            raw_len_bytes: u32::try_from(self.raw.len()).map_err(too_large)?,
            first_event: self.flushed_events,
            event_count,
        };
        descriptor.check()?;
        let header = descriptor.encode(payload_checksum(stored));
        self.sink.write_all(&header)?;
        self.sink.write_all(stored)?;
        self.failed = false;
        self.position = descriptor.end();
        self.flushed_events += u64::from(event_count);
        self.blocks.push(descriptor);
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if self.failed {
            return Err(TraceError::WriterFailed);
        }
        self.failed = true;
        self.sink.write_all(bytes)?;
        self.failed = false;
        self.position += bytes.len() as u64;
        Ok(())
    }
}

/// Whether a reader would take an operation.
fn check_operation(operation: &FileOperation<'_>) -> Result<()> {
    let too_long = || TraceError::TooLarge {
        what: "the length of a file",
        limit: i64::MAX as u64,
    };
    let range = |offset: u64, len: u64| {
        let end = offset.checked_add(len).ok_or_else(too_long)?;
        i64::try_from(end).map(drop).map_err(|_| too_long())
    };
    if let Some(node) = operation.node()
        && node.0 >= MAX_NODES
    {
        check_node_count(node.0)?;
    }
    match *operation {
        FileOperation::Create { kind, entry, .. } => {
            if let NewNode::Symlink(target) = kind
                && target.len() > MAX_PAYLOAD_BYTES
            {
                return Err(TraceError::TooLarge {
                    what: "the bytes of a symbolic link",
                    limit: MAX_PAYLOAD_BYTES as u64,
                });
            }
            entry.map_or(Ok(()), check_name)
        }
        FileOperation::Link { entry, .. } | FileOperation::Unlink { entry, .. } => {
            check_name(entry)
        }
        FileOperation::Rename { from, to, .. } => check_name(from).and(check_name(to)),
        FileOperation::Exchange { first, second, .. } => check_name(first).and(check_name(second)),
        FileOperation::Write { offset, bytes, .. } => range(offset, bytes.len() as u64),
        FileOperation::Truncate { len_bytes, .. } => range(0, len_bytes),
        FileOperation::Change { range: changed, .. } => range(changed.offset, changed.len_bytes),
        _ => Ok(()),
    }
}

fn check_name(entry: EntryName<'_>) -> Result<()> {
    if is_name(entry.name) && entry.directory.0 < MAX_NODES {
        Ok(())
    } else {
        Err(TraceError::BadName)
    }
}

#[cold]
fn undefined(what: &'static str, index: u32) -> TraceError {
    TraceError::Undefined {
        what,
        index: u64::from(index),
    }
}
