//! Encodes the records of one event block into columns. The reverse is `decode`.
//!
//! Does not know of compression, files or definitions: the writer has checked that what a record
//! names exists.

use powerfail_model::files::NodeId;
use powerfail_model::{Event, Place};

use crate::file::{EntryName, FileOperation, NewNode, RangeChange};
use crate::predict::Predictor;
use crate::record::{Body, Mark, MarkKind};
use crate::tag;
use crate::varint;
use crate::wire::zigzag;

/// The columns of a block that is being filled.
pub(crate) struct Encoder {
    tags: Vec<u8>,
    addresses: Vec<u8>,
    stacks: Vec<u8>,
    extras: Vec<u8>,
    payload: Vec<u8>,
    event_count: u32,
    predictor: Predictor,
}

impl Encoder {
    pub(crate) fn new() -> Self {
        Self {
            tags: Vec::new(),
            addresses: Vec::new(),
            stacks: Vec::new(),
            extras: Vec::new(),
            payload: Vec::new(),
            event_count: 0,
            predictor: Predictor::new(),
        }
    }

    pub(crate) const fn event_count(&self) -> u32 {
        self.event_count
    }

    /// How many bytes the block takes before compression.
    #[inline]
    pub(crate) const fn raw_len(&self) -> usize {
        self.tags.len()
            + self.addresses.len()
            + self.stacks.len()
            + self.extras.len()
            + self.payload.len()
    }

    /// Puts the block into `raw` and begins the next one.
    pub(crate) fn take_into(&mut self, raw: &mut Vec<u8>) {
        raw.clear();
        let columns = [
            &mut self.tags,
            &mut self.addresses,
            &mut self.stacks,
            &mut self.extras,
            &mut self.payload,
        ];
        for column in &columns {
            // The writer ends a block long before a column exceeds 32 bits.
            let len = u32::try_from(column.len()).unwrap_or(u32::MAX);
            raw.extend_from_slice(&len.to_le_bytes());
        }
        for column in columns {
            raw.extend_from_slice(column);
            column.clear();
        }
        self.event_count = 0;
        self.predictor.reset();
    }

    /// Appends a record.
    #[inline]
    pub(crate) fn append(&mut self, thread: u32, stack: u32, body: &Body<'_>) {
        if thread != self.predictor.thread {
            self.switch_thread(thread);
        }
        self.event_count += 1;
        match *body {
            Body::Pm(Event::Store { kind, at, bytes }) => {
                let class = tag::length_class(bytes.len());
                self.access(tag::store_code(kind, class), stack, at, bytes.len() as u64);
                // A copy of known length is one move; most stores are words.
                if let Ok(word) = <&[u8; 8]>::try_from(bytes) {
                    self.payload.extend_from_slice(word);
                } else {
                    if class == tag::LENGTH_OTHER {
                        varint::put(&mut self.extras, bytes.len() as u64);
                    }
                    self.payload.extend_from_slice(bytes);
                }
            }
            Body::Pm(Event::Flush { kind, at }) => {
                self.access(tag::FLUSH + tag::flush_number(kind), stack, at, 0);
            }
            Body::Pm(Event::Fence(kind)) => {
                self.plain(tag::FENCE + tag::fence_number(kind), stack);
            }
            Body::Pm(Event::Sync {
                pool,
                offset,
                len_bytes,
            }) => {
                self.plain(tag::SYNC, stack);
                varint::put(&mut self.extras, u64::from(pool.0));
                varint::put(&mut self.extras, offset.0);
                varint::put(&mut self.extras, len_bytes);
            }
            Body::Pm(Event::Resize { pool, len_bytes }) => {
                self.plain(tag::RESIZE, stack);
                varint::put(&mut self.extras, u64::from(pool.0));
                varint::put(&mut self.extras, len_bytes);
            }
            Body::VolatileFlush { kind, address } => {
                self.plain(tag::VOLATILE_FLUSH + tag::flush_number(kind), stack);
                let delta = address.wrapping_sub(self.predictor.volatile_address);
                self.predictor.volatile_address = address;
                varint::put(&mut self.extras, zigzag(delta));
            }
            Body::ThreadStart => self.plain(tag::THREAD_START, stack),
            Body::ThreadEnd => self.plain(tag::THREAD_END, stack),
            Body::Mark(ref mark) => {
                self.plain(tag::MARK, stack);
                self.mark(mark);
            }
            Body::File(ref operation) => {
                self.plain(tag::FILE, stack);
                self.file(operation);
            }
            Body::Mapped { pool, node } => {
                self.plain(tag::MAPPED, stack);
                varint::put(&mut self.extras, u64::from(pool.0));
                varint::put(&mut self.extras, u64::from(node.0));
            }
        }
    }

    fn numbers<const N: usize>(&mut self, numbers: [u64; N]) {
        for number in numbers {
            varint::put(&mut self.extras, number);
        }
    }

    fn entry(&mut self, entry: EntryName<'_>) {
        self.numbers([u64::from(entry.directory.0), entry.name.len() as u64]);
        self.payload.extend_from_slice(entry.name);
    }

    fn file(&mut self, operation: &FileOperation<'_>) {
        match *operation {
            FileOperation::Create {
                node,
                kind,
                mode,
                entry,
            } => {
                let code = match kind {
                    NewNode::File => tag::NODE_FILE,
                    NewNode::Directory => tag::NODE_DIRECTORY,
                    NewNode::Symlink(_) => tag::NODE_SYMLINK,
                    NewNode::Other => tag::NODE_OTHER,
                };
                self.numbers([
                    tag::FILE_CREATE,
                    node.0.into(),
                    code.into(),
                    mode.into(),
                    entry.is_some().into(),
                ]);
                if let Some(entry) = entry {
                    self.entry(entry);
                }
                if let NewNode::Symlink(target) = kind {
                    self.numbers([target.len() as u64]);
                    self.payload.extend_from_slice(target);
                }
            }
            FileOperation::Link { node, entry } => {
                self.numbers([tag::FILE_LINK, node.0.into()]);
                self.entry(entry);
            }
            FileOperation::Unlink { node, entry } => {
                self.numbers([tag::FILE_UNLINK, node.0.into()]);
                self.entry(entry);
            }
            FileOperation::Rename {
                node,
                from,
                to,
                replaced,
            } => {
                let replaced = replaced.map_or(0, |node| u64::from(node.0) + 1);
                self.numbers([tag::FILE_RENAME, node.0.into(), replaced]);
                self.entry(from);
                self.entry(to);
            }
            FileOperation::Exchange {
                first,
                first_node,
                second,
                second_node,
            } => {
                self.numbers([
                    tag::FILE_EXCHANGE,
                    first_node.0.into(),
                    second_node.0.into(),
                ]);
                self.entry(first);
                self.entry(second);
            }
            FileOperation::Write {
                node,
                offset,
                bytes,
            } => {
                self.numbers([tag::FILE_WRITE, node.0.into(), offset, bytes.len() as u64]);
                self.payload.extend_from_slice(bytes);
            }
            FileOperation::Truncate { node, len_bytes } => {
                self.numbers([tag::FILE_TRUNCATE, node.0.into(), len_bytes]);
            }
            FileOperation::Change {
                node,
                change,
                range,
            } => {
                let (code, keep_size) = match change {
                    RangeChange::Allocate { keep_size } => (tag::FILE_ALLOCATE, keep_size),
                    RangeChange::Zero { keep_size } => (tag::FILE_ZERO, keep_size),
                    RangeChange::PunchHole => (tag::FILE_PUNCH_HOLE, true),
                    RangeChange::Collapse => (tag::FILE_COLLAPSE, false),
                    RangeChange::Insert => (tag::FILE_INSERT, false),
                };
                self.numbers([code, node.0.into(), range.offset, range.len_bytes]);
                if matches!(code, tag::FILE_ALLOCATE | tag::FILE_ZERO) {
                    self.numbers([keep_size.into()]);
                }
            }
            FileOperation::SyncFile { node, data_only } => {
                self.numbers([tag::FILE_SYNC, node.0.into(), data_only.into()]);
            }
            FileOperation::SyncFileSystem => self.numbers([tag::FILE_SYNC_ALL]),
            FileOperation::Close { node } => self.about(tag::FILE_CLOSE, node),
            FileOperation::FailedSync { node } => self.about(tag::FILE_FAILED_SYNC, node),
            FileOperation::CrossedDevices { entry } => {
                self.numbers([tag::FILE_CROSSED_DEVICES]);
                self.entry(entry);
            }
        }
    }

    /// An operation that says only which node it is about.
    fn about(&mut self, code: u64, node: NodeId) {
        self.numbers([code, node.0.into()]);
    }

    /// A record without address.
    #[inline]
    fn plain(&mut self, code: u8, stack: u32) {
        let guess = self.predictor.guess();
        let mut tag = code;
        if guess.stack == stack {
            tag |= tag::STACK_GUESSED;
        } else {
            guess.stack = stack;
            varint::put(&mut self.stacks, u64::from(stack));
        }
        self.predictor.advance(stack);
        self.tags.push(tag);
    }

    /// A record of an access to a pool.
    #[inline]
    fn access(&mut self, code: u8, stack: u32, at: Place, len: u64) {
        if at.pool.0 != self.predictor.state.pool {
            self.switch_pool(at.pool.0);
        }
        let end = self.predictor.state.end();
        let delta = at.offset.0.wrapping_sub(*end);
        *end = at.offset.0.wrapping_add(len);
        let guess = self.predictor.guess();
        let mut tag = code;
        if guess.stack == stack {
            tag |= tag::STACK_GUESSED;
        } else {
            guess.stack = stack;
            varint::put(&mut self.stacks, u64::from(stack));
        }
        if guess.delta == delta {
            tag |= tag::ADDRESS_GUESSED;
        } else {
            guess.delta = delta;
            varint::put(&mut self.addresses, zigzag(delta));
        }
        self.predictor.advance(stack);
        self.tags.push(tag);
    }

    #[cold]
    fn switch_thread(&mut self, thread: u32) {
        self.predictor.switch_thread(thread);
        self.tags.push(tag::THREAD_SWITCH);
        varint::put(&mut self.extras, u64::from(thread));
    }

    #[cold]
    fn switch_pool(&mut self, pool: u32) {
        self.predictor.state.pool = pool;
        self.tags.push(tag::POOL_SWITCH);
        varint::put(&mut self.extras, u64::from(pool));
    }

    fn mark(&mut self, mark: &Mark<'_>) {
        let extras = &mut self.extras;
        match mark.kind {
            MarkKind::Output { fd, full_len_bytes } => {
                varint::put(extras, tag::MARK_OUTPUT);
                varint::put(extras, zigzag(i64::from(fd).cast_unsigned()));
                varint::put(extras, full_len_bytes);
            }
            MarkKind::Annotation(annotation) => {
                varint::put(extras, tag::MARK_ANNOTATION);
                varint::put(extras, u64::from(annotation.code()));
            }
            MarkKind::OperationBegin => varint::put(extras, tag::MARK_OPERATION_BEGIN),
            MarkKind::OperationEnd => varint::put(extras, tag::MARK_OPERATION_END),
        }
        varint::put(extras, mark.value);
        varint::put(extras, mark.payload.len() as u64);
        self.payload.extend_from_slice(mark.payload);
    }
}
