//! Decodes the columns of one event block into records. The reverse is `encode`.
//!
//! Trusts nothing: every position is checked against its column, everything a record names against
//! the definitions of the trace, and at the end every column must be used up.

use powerfail_model::files::{ByteRange, NodeId};
use powerfail_model::{Event, EventIndex, Place, PoolIndex, PoolOffset, ThreadIndex};

use crate::annotation::Annotation;
use crate::definition::StackId;
use crate::error::{Result, TraceError};
use crate::file::{EntryName, FileOperation, NewNode, RangeChange, is_name};
use crate::layout::{BlockDescriptor, MAX_NODES, MAX_PAYLOAD_BYTES};
use crate::predict::Predictor;
use crate::record::{Body, Mark, MarkKind, Record};
use crate::tag;
use crate::varint;
use crate::wire::{Fields, unzigzag};

/// How many of each thing a trace defines.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    pub(crate) threads: u32,
    pub(crate) pools: u32,
    /// The largest stack id.
    pub(crate) stacks: u32,
}

/// The part of a block's bytes that one column still has to give.
#[derive(Clone, Copy, Default)]
struct Column {
    position: usize,
    end: usize,
}

impl Column {
    #[inline]
    fn varint(&mut self, raw: &[u8]) -> Option<u64> {
        varint::take_at(raw.get(..self.end)?, &mut self.position)
    }

    #[inline]
    fn byte(&mut self, raw: &[u8]) -> Option<u8> {
        if self.position >= self.end {
            return None;
        }
        let byte = *raw.get(self.position)?;
        self.position += 1;
        Some(byte)
    }

    #[inline]
    fn take<'a>(&mut self, raw: &'a [u8], len: usize) -> Option<&'a [u8]> {
        if self.end - self.position < len {
            return None;
        }
        let bytes = raw.get(self.position..self.position + len)?;
        self.position += len;
        Some(bytes)
    }
}

const COLUMNS_END: &str = "a column of an event block ends too early";

/// Where the columns of an event block begin and end.
#[derive(Clone, Copy, Default)]
pub(crate) struct Columns {
    tags: Column,
    addresses: Column,
    stacks: Column,
    extras: Column,
    payload: Column,
}

impl Columns {
    /// Reads the table at the beginning of `raw`. The columns fill what follows exactly.
    pub(crate) fn decode(raw: &[u8], block_offset: u64) -> Result<Self> {
        let mut columns = Self::default();
        let mut fields = Fields::new(raw, block_offset);
        let mut position = 5 * size_of::<u32>();
        for column in [
            &mut columns.tags,
            &mut columns.addresses,
            &mut columns.stacks,
            &mut columns.extras,
            &mut columns.payload,
        ] {
            let len = fields.u32()? as usize;
            let end = position.saturating_add(len);
            *column = Column { position, end };
            position = end;
        }
        if position != raw.len() {
            return Err(fields.corrupt("the columns of an event block do not fill it"));
        }
        Ok(columns)
    }
}

/// A position inside an event block. Does not hold the bytes, so that its owner can own both.
pub(crate) struct Decoder {
    tags: Column,
    addresses: Column,
    stacks: Column,
    extras: Column,
    payload: Column,
    next_index: u64,
    remaining: u32,
    predictor: Predictor,
    limits: Limits,
    block_offset: u64,
    /// Nothing more comes: the end was reached and checked, or an error was given.
    done: bool,
}

impl Decoder {
    /// Begins at the first record of a block.
    pub(crate) fn new(columns: Columns, descriptor: &BlockDescriptor, limits: Limits) -> Self {
        Self {
            tags: columns.tags,
            addresses: columns.addresses,
            stacks: columns.stacks,
            extras: columns.extras,
            payload: columns.payload,
            next_index: descriptor.first_event,
            remaining: descriptor.event_count,
            predictor: Predictor::new(),
            limits,
            block_offset: descriptor.offset,
            done: false,
        }
    }

    /// How many records are still to come, unless there is an error.
    #[inline]
    pub(crate) const fn remaining(&self) -> u32 {
        self.remaining
    }

    /// The next record of `raw`, which must be the bytes that the columns are from. After an error
    /// there is none.
    ///
    /// Inlined into each caller, down to the rare cases: a record that is returned through memory
    /// and repacked there costs more than decoding it.
    #[allow(
        clippy::inline_always,
        reason = "measured: it doubles the speed of reading"
    )]
    #[inline(always)]
    pub(crate) fn next<'a>(&mut self, raw: &'a [u8]) -> Option<Result<Record<'a>>> {
        if self.remaining == 0 {
            return self.check_end().map(Err);
        }
        self.remaining -= 1;
        Some(self.record(raw))
    }

    /// What is wrong with the end of the block, once.
    #[cold]
    pub(crate) fn check_end(&mut self) -> Option<TraceError> {
        if self.done {
            return None;
        }
        self.done = true;
        let columns = [
            self.tags,
            self.addresses,
            self.stacks,
            self.extras,
            self.payload,
        ];
        columns
            .iter()
            .any(|column| column.position != column.end)
            .then(|| self.corrupt("an event block holds more than its events"))
    }

    /// The error that ends this block.
    #[cold]
    const fn corrupt(&mut self, what: &'static str) -> TraceError {
        self.remaining = 0;
        self.done = true;
        TraceError::corrupt(what, self.block_offset)
    }

    /// The same for a code that this version does not know.
    #[cold]
    const fn unknown(&mut self, what: &'static str, code: u64) -> TraceError {
        self.remaining = 0;
        self.done = true;
        TraceError::UnknownCode {
            what,
            code,
            offset: self.block_offset,
        }
    }

    #[allow(clippy::inline_always, reason = "see `next`")]
    #[inline(always)]
    fn extra(&mut self, raw: &[u8]) -> Result<u64> {
        match self.extras.varint(raw) {
            Some(value) => Ok(value),
            None => Err(self.corrupt(COLUMNS_END)),
        }
    }

    #[allow(clippy::inline_always, reason = "see `next`")]
    #[inline(always)]
    fn bytes<'a>(&mut self, raw: &'a [u8], len: usize) -> Result<&'a [u8]> {
        match self.payload.take(raw, len) {
            Some(bytes) => Ok(bytes),
            None => Err(self.corrupt(COLUMNS_END)),
        }
    }

    #[allow(clippy::inline_always, reason = "see `next`")]
    #[inline(always)]
    fn record<'a>(&mut self, raw: &'a [u8]) -> Result<Record<'a>> {
        let tag = loop {
            let Some(tag) = self.tags.byte(raw) else {
                return Err(self.corrupt(COLUMNS_END));
            };
            match tag {
                tag::THREAD_SWITCH => self.switch_thread(raw)?,
                tag::POOL_SWITCH => self.switch_pool(raw)?,
                _ => break tag,
            }
        };
        let code = tag & tag::CODE_MASK;
        let body = if code < tag::STORE_END {
            let class = code & 7;
            let len = if class == tag::LENGTH_OTHER {
                self.length(raw)?
            } else {
                1 << class
            };
            let at = self.access(raw, tag, len as u64)?;
            Body::Pm(Event::Store {
                kind: tag::store_kind(code),
                at,
                bytes: self.bytes(raw, len)?,
            })
        } else if code < tag::FENCE {
            let at = self.access(raw, tag, 0)?;
            Body::Pm(Event::Flush {
                kind: tag::flush_kind(code - tag::FLUSH),
                at,
            })
        } else if code < tag::SYNC {
            self.plain(raw, tag)?;
            Body::Pm(Event::Fence(tag::fence_kind(code - tag::FENCE)))
        } else {
            self.plain(raw, tag)?;
            self.rare(raw, code)?
        };
        let index = EventIndex(self.next_index);
        self.next_index = self.next_index.wrapping_add(1);
        Ok(Record {
            index,
            thread: ThreadIndex(self.predictor.thread),
            stack: StackId(self.predictor.previous_stack()),
            body,
        })
    }

    /// The stack of a record without address.
    #[allow(clippy::inline_always, reason = "see `next`")]
    #[inline(always)]
    fn plain(&mut self, raw: &[u8], tag: u8) -> Result<()> {
        if tag & tag::ADDRESS_GUESSED != 0 {
            return Err(self.corrupt("a record without address has a guessed one"));
        }
        let stack = if tag & tag::STACK_GUESSED != 0 {
            self.predictor.guess().stack
        } else {
            let stack = self.stack(raw)?;
            self.predictor.guess().stack = stack;
            stack
        };
        self.predictor.advance(stack);
        Ok(())
    }

    /// The stack and the place of an access to a pool.
    #[allow(clippy::inline_always, reason = "see `next`")]
    #[inline(always)]
    fn access(&mut self, raw: &[u8], tag: u8, len: u64) -> Result<Place> {
        let pool = self.predictor.state.pool;
        if pool >= self.limits.pools {
            return Err(self.corrupt("an event is in a pool that is not defined"));
        }
        let mut guess = *self.predictor.guess();
        if tag & tag::STACK_GUESSED == 0 {
            guess.stack = self.stack(raw)?;
        }
        if tag & tag::ADDRESS_GUESSED == 0 {
            let Some(delta) = self.addresses.varint(raw) else {
                return Err(self.corrupt(COLUMNS_END));
            };
            guess.delta = unzigzag(delta);
        }
        *self.predictor.guess() = guess;
        let last_end = self.predictor.state.end();
        let offset = last_end.wrapping_add(guess.delta);
        let Some(end) = offset.checked_add(len) else {
            return Err(self.corrupt("a store goes beyond the end of all addresses"));
        };
        *last_end = end;
        self.predictor.advance(guess.stack);
        Ok(Place::new(PoolIndex(pool), PoolOffset(offset)))
    }

    #[allow(clippy::inline_always, reason = "see `next`")]
    #[inline(always)]
    fn stack(&mut self, raw: &[u8]) -> Result<u32> {
        let Some(stack) = self.stacks.varint(raw) else {
            return Err(self.corrupt(COLUMNS_END));
        };
        match u32::try_from(stack) {
            Ok(stack) if stack <= self.limits.stacks => Ok(stack),
            _ => Err(self.corrupt("a call stack is not defined")),
        }
    }

    /// The length of a payload that is written out.
    fn length(&mut self, raw: &[u8]) -> Result<usize> {
        match usize::try_from(self.extra(raw)?) {
            Ok(len) if len <= MAX_PAYLOAD_BYTES => Ok(len),
            _ => Err(self.corrupt("the payload of a record is too long")),
        }
    }

    #[cold]
    fn switch_thread(&mut self, raw: &[u8]) -> Result<()> {
        match u32::try_from(self.extra(raw)?) {
            Ok(thread) if thread < self.limits.threads => {
                self.predictor.switch_thread(thread);
                Ok(())
            }
            _ => Err(self.corrupt("an event is of a thread that is not defined")),
        }
    }

    #[cold]
    fn switch_pool(&mut self, raw: &[u8]) -> Result<()> {
        self.predictor.state.pool = self.pool(raw)?.0;
        Ok(())
    }

    fn pool(&mut self, raw: &[u8]) -> Result<PoolIndex> {
        match u32::try_from(self.extra(raw)?) {
            Ok(pool) if pool < self.limits.pools => Ok(PoolIndex(pool)),
            _ => Err(self.corrupt("an event is in a pool that is not defined")),
        }
    }

    /// The bodies that no hot loop is made of.
    #[cold]
    fn rare<'a>(&mut self, raw: &'a [u8], code: u8) -> Result<Body<'a>> {
        Ok(match code {
            tag::SYNC => {
                let pool = self.pool(raw)?;
                let offset = self.extra(raw)?;
                let len_bytes = self.extra(raw)?;
                if offset.checked_add(len_bytes).is_none() {
                    return Err(self.corrupt("a sync goes beyond the end of all addresses"));
                }
                Body::Pm(Event::Sync {
                    pool,
                    offset: PoolOffset(offset),
                    len_bytes,
                })
            }
            tag::VOLATILE_FLUSH..tag::RESIZE => {
                let delta = unzigzag(self.extra(raw)?);
                let address = self.predictor.volatile_address.wrapping_add(delta);
                self.predictor.volatile_address = address;
                Body::VolatileFlush {
                    kind: tag::flush_kind(code - tag::VOLATILE_FLUSH),
                    address,
                }
            }
            tag::RESIZE => Body::Pm(Event::Resize {
                pool: self.pool(raw)?,
                len_bytes: self.extra(raw)?,
            }),
            tag::THREAD_START => Body::ThreadStart,
            tag::THREAD_END => Body::ThreadEnd,
            tag::MARK => Body::Mark(self.mark(raw)?),
            tag::FILE => Body::File(self.file(raw)?),
            tag::MAPPED => Body::Mapped {
                pool: self.pool(raw)?,
                node: self.node(raw)?,
            },
            _ => return Err(self.unknown("kind of record", u64::from(code))),
        })
    }

    fn node(&mut self, raw: &[u8]) -> Result<NodeId> {
        match u32::try_from(self.extra(raw)?) {
            Ok(node) if node < MAX_NODES => Ok(NodeId(node)),
            _ => Err(self.corrupt("the number of a node is too large")),
        }
    }

    fn entry<'a>(&mut self, raw: &'a [u8]) -> Result<EntryName<'a>> {
        let directory = self.node(raw)?;
        let len = self.length(raw)?;
        let name = self.bytes(raw, len)?;
        if !is_name(name) {
            return Err(self.corrupt("a name of a file is not one"));
        }
        Ok(EntryName { directory, name })
    }

    fn range(&mut self, raw: &[u8]) -> Result<ByteRange> {
        let range = ByteRange::new(self.extra(raw)?, self.extra(raw)?);
        self.check_range(range.offset, range.len_bytes)?;
        Ok(range)
    }

    /// Lengths of files of Linux have 63 bits.
    fn check_range(&mut self, offset: u64, len_bytes: u64) -> Result<()> {
        match offset.checked_add(len_bytes) {
            Some(end) if i64::try_from(end).is_ok() => Ok(()),
            _ => Err(self.corrupt("an operation goes beyond the longest file")),
        }
    }

    fn flag(&mut self, raw: &[u8]) -> Result<bool> {
        match self.extra(raw)? {
            0 => Ok(false),
            1 => Ok(true),
            code => Err(self.unknown("flag of an operation", code)),
        }
    }

    fn file<'a>(&mut self, raw: &'a [u8]) -> Result<FileOperation<'a>> {
        Ok(match self.extra(raw)? {
            tag::FILE_CREATE => self.create(raw)?,
            tag::FILE_LINK => FileOperation::Link {
                node: self.node(raw)?,
                entry: self.entry(raw)?,
            },
            tag::FILE_UNLINK => FileOperation::Unlink {
                node: self.node(raw)?,
                entry: self.entry(raw)?,
            },
            tag::FILE_RENAME => {
                let node = self.node(raw)?;
                let replaced = match self.extra(raw)?.checked_sub(1) {
                    None => None,
                    Some(node) if node < u64::from(MAX_NODES) => Some(NodeId(node as u32)),
                    Some(_) => return Err(self.corrupt("the number of a node is too large")),
                };
                FileOperation::Rename {
                    node,
                    replaced,
                    from: self.entry(raw)?,
                    to: self.entry(raw)?,
                }
            }
            tag::FILE_EXCHANGE => FileOperation::Exchange {
                first_node: self.node(raw)?,
                second_node: self.node(raw)?,
                first: self.entry(raw)?,
                second: self.entry(raw)?,
            },
            tag::FILE_WRITE => {
                let node = self.node(raw)?;
                let offset = self.extra(raw)?;
                let len = self.length(raw)?;
                self.check_range(offset, len as u64)?;
                FileOperation::Write {
                    node,
                    offset,
                    bytes: self.bytes(raw, len)?,
                }
            }
            tag::FILE_TRUNCATE => {
                let node = self.node(raw)?;
                let len_bytes = self.extra(raw)?;
                self.check_range(0, len_bytes)?;
                FileOperation::Truncate { node, len_bytes }
            }
            code @ tag::FILE_ALLOCATE..=tag::FILE_INSERT => {
                let node = self.node(raw)?;
                let range = self.range(raw)?;
                let change = match code {
                    tag::FILE_ALLOCATE => RangeChange::Allocate {
                        keep_size: self.flag(raw)?,
                    },
                    tag::FILE_ZERO => RangeChange::Zero {
                        keep_size: self.flag(raw)?,
                    },
                    tag::FILE_PUNCH_HOLE => RangeChange::PunchHole,
                    tag::FILE_COLLAPSE => RangeChange::Collapse,
                    _ => RangeChange::Insert,
                };
                FileOperation::Change {
                    node,
                    change,
                    range,
                }
            }
            tag::FILE_SYNC => FileOperation::SyncFile {
                node: self.node(raw)?,
                data_only: self.flag(raw)?,
            },
            tag::FILE_SYNC_ALL => FileOperation::SyncFileSystem,
            tag::FILE_CLOSE => FileOperation::Close {
                node: self.node(raw)?,
            },
            tag::FILE_FAILED_SYNC => FileOperation::FailedSync {
                node: self.node(raw)?,
            },
            tag::FILE_CROSSED_DEVICES => FileOperation::CrossedDevices {
                entry: self.entry(raw)?,
            },
            code => return Err(self.unknown("operation on a file", code)),
        })
    }

    fn create<'a>(&mut self, raw: &'a [u8]) -> Result<FileOperation<'a>> {
        let node = self.node(raw)?;
        let code = self.extra(raw)?;
        let mode = u32::try_from(self.extra(raw)?)
            .map_err(|_| self.corrupt("the mode of a file exceeds 32 bits"))?;
        let entry = if self.flag(raw)? {
            Some(self.entry(raw)?)
        } else {
            None
        };
        let kind = match u8::try_from(code) {
            Ok(tag::NODE_FILE) => NewNode::File,
            Ok(tag::NODE_DIRECTORY) => NewNode::Directory,
            Ok(tag::NODE_SYMLINK) => {
                let len = self.length(raw)?;
                NewNode::Symlink(self.bytes(raw, len)?)
            }
            Ok(tag::NODE_OTHER) => NewNode::Other,
            _ => return Err(self.unknown("kind of file", code)),
        };
        Ok(FileOperation::Create {
            node,
            kind,
            mode,
            entry,
        })
    }

    fn mark<'a>(&mut self, raw: &'a [u8]) -> Result<Mark<'a>> {
        let kind = match self.extra(raw)? {
            tag::MARK_OUTPUT => {
                let fd = unzigzag(self.extra(raw)?).cast_signed();
                MarkKind::Output {
                    fd: i32::try_from(fd)
                        .map_err(|_| self.corrupt("a file descriptor exceeds 32 bits"))?,
                    full_len_bytes: self.extra(raw)?,
                }
            }
            tag::MARK_ANNOTATION => {
                let code = u32::try_from(self.extra(raw)?)
                    .map_err(|_| self.corrupt("an annotation's code exceeds 32 bits"))?;
                MarkKind::Annotation(Annotation::from_code(code))
            }
            tag::MARK_OPERATION_BEGIN => MarkKind::OperationBegin,
            tag::MARK_OPERATION_END => MarkKind::OperationEnd,
            code => return Err(self.unknown("kind of mark", code)),
        };
        let value = self.extra(raw)?;
        let len = self.length(raw)?;
        Ok(Mark {
            kind,
            value,
            payload: self.bytes(raw, len)?,
        })
    }
}
