//! Translates records of the runtime to records of the trace: addresses become offsets in pools.

use std::fs::File;

use powerfail_model::files::NodeId;
use powerfail_model::{
    Event, FenceKind, FlushKind, Place, PoolIndex, PoolOffset, StoreKind, ThreadIndex,
};
use powerfail_protocol::file::{FileCode, FileEvent};
use powerfail_protocol::shared::Stacks;
use powerfail_protocol::{EventKind, FLUSHED_WORD_LEN, Record, Records, mark};
use powerfail_trace::{
    AnnotatedRange, Annotation, Body, Mark, MarkKind, RecordKind, StackId, TraceError, TraceWriter,
};
use rustc_hash::FxHashMap;

use crate::clock::Stamp;
use crate::mapping::Mappings;
use crate::order_check::OrderCheck;
use crate::pool::Pools;
use crate::queue::Item;
use crate::site::Sites;
use crate::sparse::FileIdentity;
use crate::target_thread::{InTrace, TargetThread};
use crate::tree::{Meaning, Trees};

/// The trace and what its records refer to.
pub(crate) struct Output {
    pub(crate) writer: TraceWriter<File>,
    pub(crate) pools: Pools,
    pub(crate) sites: Sites,
    /// How much of each output of the target is kept.
    prefix_bytes_max: usize,
    pub(crate) counts: [u64; RecordKind::ALL.len()],
    pub(crate) trap_events: u64,
    pub(crate) unmapped_bytes: u64,
    pub(crate) order: OrderCheck,
    pub(crate) trees: Trees,
    /// The pools that are files of a tree, as far as records were written.
    pool_nodes: FxHashMap<PoolIndex, NodeId>,
    /// Writes of which records are still to come, by thread.
    unfinished: FxHashMap<ThreadIndex, UnfinishedWrite>,
    /// How many operations on files contradict those before them.
    pub(crate) contradictions: u64,
    /// How many records were invalid: without the address or value that their kind needs.
    pub(crate) malformed: u64,
}

impl Output {
    pub(crate) fn new(
        writer: TraceWriter<File>,
        pools: Pools,
        trees: Trees,
        stacks: Stacks,
        prefix_bytes_max: usize,
    ) -> Self {
        Self {
            writer,
            pools,
            sites: Sites::new(stacks),
            prefix_bytes_max: prefix_bytes_max.min(powerfail_trace::MAX_PAYLOAD_BYTES),
            counts: [0; RecordKind::ALL.len()],
            trap_events: 0,
            unmapped_bytes: 0,
            order: OrderCheck::default(),
            trees,
            pool_nodes: FxHashMap::default(),
            unfinished: FxHashMap::default(),
            contradictions: 0,
            malformed: 0,
        }
    }

    /// Writes what has come out of the queue of a thread.
    pub(crate) fn write(
        &mut self,
        thread: &mut TargetThread,
        mappings: &Mappings,
        stamp: Stamp,
        item: Item<'_>,
    ) -> Result<(), TraceError> {
        match item {
            Item::PoolLength { pool, len_bytes } => {
                if self
                    .pools
                    .get(pool)
                    .is_some_and(|pool| pool.len_bytes != len_bytes)
                {
                    self.resize(thread, StackId::NONE, pool, len_bytes)?;
                }
                Ok(())
            }
            Item::Mapped { pool } => self.mapped(thread, pool),
            Item::Record(bytes) => match Records::new(bytes).next() {
                Some(Ok(record)) if record.header.kind == EventKind::Void => Ok(()),
                Some(Ok(record)) => self.write_record(thread, mappings, stamp, &record),
                _ => {
                    self.malformed += 1;
                    Ok(())
                }
            },
        }
    }

    /// Writes that a thread has ended, unless it has said so itself.
    pub(crate) fn write_end(&mut self, thread: &mut TargetThread) -> Result<(), TraceError> {
        if thread.in_trace == InTrace::Ended {
            return Ok(());
        }
        self.append(thread, StackId::NONE, Body::ThreadEnd)?;
        thread.in_trace = InTrace::Ended;
        Ok(())
    }

    fn append(
        &mut self,
        thread: &mut TargetThread,
        stack: StackId,
        body: Body<'_>,
    ) -> Result<(), TraceError> {
        if thread.in_trace == InTrace::Nothing {
            thread.in_trace = InTrace::Started;
            self.writer
                .append(thread.index, StackId::NONE, Body::ThreadStart)?;
            self.counts[RecordKind::ThreadStart as usize] += 1;
        }
        self.writer.append(thread.index, stack, body)?;
        self.counts[RecordKind::of(&body) as usize] += 1;
        Ok(())
    }

    fn resize(
        &mut self,
        thread: &mut TargetThread,
        stack: StackId,
        pool: powerfail_model::PoolIndex,
        len_bytes: u64,
    ) -> Result<(), TraceError> {
        if let Some(pool) = self.pools.get_mut(pool) {
            pool.len_bytes = len_bytes;
        }
        self.order.resize();
        self.append(thread, stack, Body::Pm(Event::Resize { pool, len_bytes }))
    }

    fn write_record(
        &mut self,
        thread: &mut TargetThread,
        mappings: &Mappings,
        stamp: Stamp,
        record: &Record<'_>,
    ) -> Result<(), TraceError> {
        let site = record.header.site;
        let stack = self.sites.stack(site, &mut self.writer)?;
        self.trap_events += u64::from(self.sites.is_trap(site));
        let number = |at: usize| {
            Some(u64::from_le_bytes(
                record.value().get(at..at + 8)?.try_into().ok()?,
            ))
        };
        match record.header.kind {
            EventKind::StorePlain => {
                self.store(thread, stack, mappings, stamp, StoreKind::Plain, record)
            }
            EventKind::StoreNonTemporal => self.store(
                thread,
                stack,
                mappings,
                stamp,
                StoreKind::NonTemporal,
                record,
            ),
            EventKind::StoreLocked => {
                self.store(thread, stack, mappings, stamp, StoreKind::Locked, record)
            }
            EventKind::StoreSystem => {
                self.store(thread, stack, mappings, stamp, StoreKind::System, record)
            }
            EventKind::Clflush => {
                self.flush(thread, stack, mappings, stamp, FlushKind::Clflush, record)
            }
            EventKind::Clflushopt => self.flush(
                thread,
                stack,
                mappings,
                stamp,
                FlushKind::Clflushopt,
                record,
            ),
            EventKind::Clwb => self.flush(thread, stack, mappings, stamp, FlushKind::Clwb, record),
            EventKind::Sfence => self.fence(thread, stack, FenceKind::Sfence),
            EventKind::Mfence => self.fence(thread, stack, FenceKind::Mfence),
            EventKind::FenceLocked => {
                self.find(mappings, stamp, record);
                self.fence(thread, stack, FenceKind::Locked)
            }
            EventKind::Void => Ok(()),
            EventKind::Sync => {
                let (Some(address), Some(len_bytes)) = (record.address, number(0)) else {
                    self.malformed += 1;
                    return Ok(());
                };
                // What is stored during the call would be covered by its record.
                if let Some(found) = record.value().get(8..16)
                    && let Some((pool, offset)) = mappings.at(stamp, address)
                {
                    self.order.find(pool, offset, found);
                }
                for piece in mappings.pieces(stamp, address, len_bytes) {
                    let (pool, offset, len_bytes) = (piece.pool, piece.offset, piece.len_bytes);
                    self.append(
                        thread,
                        stack,
                        Body::Pm(Event::Sync {
                            pool,
                            offset,
                            len_bytes,
                        }),
                    )?;
                }
                Ok(())
            }
            EventKind::Resize => {
                let place = record
                    .address
                    .and_then(|address| mappings.at(stamp, address));
                let (Some((pool, _)), Some(len_bytes)) = (place, number(0)) else {
                    self.malformed += 1;
                    return Ok(());
                };
                self.resize(thread, stack, pool, len_bytes)
            }
            EventKind::Mark => self.mark(thread, stack, mappings, stamp, record),
            EventKind::Output => self.said(thread, stack, record),
            EventKind::File => self.file(thread, stack, record),
            EventKind::ThreadEnd => self.write_end(thread),
        }
    }

    /// A mark that the runtime made.
    fn mark(
        &mut self,
        thread: &mut TargetThread,
        stack: StackId,
        mappings: &Mappings,
        stamp: Stamp,
        record: &Record<'_>,
    ) -> Result<(), TraceError> {
        let Some(([code, value], rest)) = numbers(record.value()) else {
            self.malformed += 1;
            return Ok(());
        };
        let code = code as u32;
        let mut ranges = Vec::new();
        let payload = if code & mark::HAS_RANGES == 0 {
            rest
        } else {
            let mut rest = rest;
            while let Some(([address, len], after)) = numbers(rest) {
                rest = after;
                let place = mappings.at(stamp, address);
                let range = AnnotatedRange {
                    pool: place.map(|(pool, _)| pool),
                    offset: place.map_or(address, |(_, offset)| offset.0),
                    len,
                };
                ranges.extend(range.to_bytes());
            }
            &ranges
        };
        let kind = match code {
            mark::OPERATION_BEGIN => MarkKind::OperationBegin,
            mark::OPERATION_END => MarkKind::OperationEnd,
            _ => MarkKind::Annotation(Annotation::from_code(code)),
        };
        let mark = Mark {
            kind,
            value,
            payload,
        };
        self.append(thread, stack, Body::Mark(mark))
    }

    /// The target wrote output.
    fn said(
        &mut self,
        thread: &mut TargetThread,
        stack: StackId,
        record: &Record<'_>,
    ) -> Result<(), TraceError> {
        let Some(([fd, full_len_bytes], prefix)) = numbers(record.value()) else {
            self.malformed += 1;
            return Ok(());
        };
        let mark = Mark {
            kind: MarkKind::Output {
                fd: fd as i32,
                full_len_bytes,
            },
            value: 0,
            payload: &prefix[..prefix.len().min(self.prefix_bytes_max)],
        };
        self.append(thread, stack, Body::Mark(mark))
    }

    fn store(
        &mut self,
        thread: &mut TargetThread,
        stack: StackId,
        mappings: &Mappings,
        stamp: Stamp,
        kind: StoreKind,
        record: &Record<'_>,
    ) -> Result<(), TraceError> {
        let Some(address) = record.address else {
            self.malformed += 1;
            return Ok(());
        };
        for (start, bytes) in record.runs() {
            let found = record
                .found()
                .map(|found| &found[start..start + bytes.len()]);
            let mut unmapped = bytes.len() as u64;
            for piece in mappings.pieces(
                stamp,
                address.wrapping_add(start as u64),
                bytes.len() as u64,
            ) {
                let from = piece.start as usize;
                let part = from..from + piece.len_bytes as usize;
                let bytes = &bytes[part.clone()];
                let found = found.map(|found| &found[part]);
                self.order.store(piece.pool, piece.offset, bytes, found);
                let at = Place::new(piece.pool, piece.offset);
                self.append(thread, stack, Body::Pm(Event::Store { kind, at, bytes }))?;
                unmapped -= piece.len_bytes;
            }
            self.unmapped_bytes += unmapped;
        }
        Ok(())
    }

    /// An operation that stored nothing found what the stores before it have left.
    fn find(&mut self, mappings: &Mappings, stamp: Stamp, record: &Record<'_>) {
        if let (Some(address), Some(found)) = (record.address, record.found()) {
            for piece in mappings.pieces(stamp, address, found.len() as u64) {
                let from = piece.start as usize;
                let found = &found[from..from + piece.len_bytes as usize];
                self.order.find(piece.pool, piece.offset, found);
            }
        }
    }

    fn flush(
        &mut self,
        thread: &mut TargetThread,
        stack: StackId,
        mappings: &Mappings,
        stamp: Stamp,
        kind: FlushKind,
        record: &Record<'_>,
    ) -> Result<(), TraceError> {
        let Some(address) = record.address else {
            self.malformed += 1;
            return Ok(());
        };
        let body = match mappings.at(stamp, address) {
            Some((pool, offset)) => {
                let word = PoolOffset(offset.0 & !(u64::from(FLUSHED_WORD_LEN) - 1));
                self.order.find(pool, word, record.value());
                Body::Pm(Event::Flush {
                    kind,
                    at: Place::new(pool, offset),
                })
            }
            None => Body::VolatileFlush { kind, address },
        };
        self.append(thread, stack, body)
    }

    fn fence(
        &mut self,
        thread: &mut TargetThread,
        stack: StackId,
        kind: FenceKind,
    ) -> Result<(), TraceError> {
        self.append(thread, stack, Body::Pm(Event::Fence(kind)))
    }
}

/// A write of which not all bytes have come.
pub(crate) struct UnfinishedWrite {
    file: FileIdentity,
    offset: u64,
    len_bytes: u64,
    sync: u64,
    bytes: Vec<u8>,
}

/// Operations on files.
impl Output {
    /// A file was mapped as a pool.
    fn mapped(&mut self, thread: &mut TargetThread, pool: PoolIndex) -> Result<(), TraceError> {
        let identity = self.pools.get(pool).map(|pool| pool.file.identity());
        let Some(node) = identity.and_then(|file| self.trees.node(file)) else {
            return Ok(());
        };
        if self.pool_nodes.insert(pool, node).is_some() {
            return Ok(());
        }
        self.append(thread, StackId::NONE, Body::Mapped { pool, node })
    }

    /// The pool that a file is by now.
    fn mapped_pool(&self, file: FileIdentity) -> Option<PoolIndex> {
        let pool = self.pools.index_of(file)?;
        self.pool_nodes.contains_key(&pool).then_some(pool)
    }

    fn file(
        &mut self,
        thread: &mut TargetThread,
        stack: StackId,
        record: &Record<'_>,
    ) -> Result<(), TraceError> {
        let Some(event) = FileEvent::from_value(record.value()) else {
            self.malformed += 1;
            return Ok(());
        };
        let file = FileIdentity {
            device: event.device,
            inode: event.inode,
        };
        match event.code {
            FileCode::Write => {
                let [offset, len_bytes, sync] = event.numbers;
                if event.bytes.len() as u64 == len_bytes {
                    return self.written(thread, stack, file, offset, event.bytes, sync);
                }
                let write = UnfinishedWrite {
                    file,
                    offset,
                    len_bytes,
                    sync,
                    bytes: event.bytes.to_vec(),
                };
                self.unfinished.insert(thread.index, write);
                Ok(())
            }
            FileCode::Continued => {
                let Some(mut write) = self.unfinished.remove(&thread.index) else {
                    self.malformed += 1;
                    return Ok(());
                };
                write.bytes.extend_from_slice(event.bytes);
                if (write.bytes.len() as u64) < write.len_bytes {
                    self.unfinished.insert(thread.index, write);
                    return Ok(());
                }
                let (file, offset, sync) = (write.file, write.offset, write.sync);
                self.written(thread, stack, file, offset, &write.bytes, sync)
            }
            FileCode::Truncate | FileCode::Allocate if self.mapped_pool(file).is_some() => {
                let Some(pool) = self.mapped_pool(file) else {
                    return Ok(());
                };
                self.changed_pool(thread, stack, pool, &event)
            }
            _ => match self.trees.apply(&event) {
                Meaning::Operations(operations) => operations
                    .into_iter()
                    .try_for_each(|operation| self.append(thread, stack, Body::File(operation))),
                Meaning::Nothing => Ok(()),
                Meaning::Contradiction => {
                    if !self.trees.is_excluded(file) {
                        self.contradictions += 1;
                    }
                    Ok(())
                }
            },
        }
    }

    fn written(
        &mut self,
        thread: &mut TargetThread,
        stack: StackId,
        file: FileIdentity,
        offset: u64,
        bytes: &[u8],
        sync: u64,
    ) -> Result<(), TraceError> {
        let Some((write, durable)) = self.trees.write(file, offset, bytes, sync) else {
            if !self.trees.is_excluded(file) {
                self.contradictions += 1;
            }
            return Ok(());
        };
        match self.mapped_pool(file) {
            Some(pool) => self.written_pool(thread, stack, pool, offset, bytes)?,
            None => self.append(thread, stack, Body::File(write))?,
        }
        match durable {
            Some(durable) => self.append(thread, stack, Body::File(durable)),
            None => Ok(()),
        }
    }

    /// A process that has not mapped a pool wrote to its file.
    fn written_pool(
        &mut self,
        thread: &mut TargetThread,
        stack: StackId,
        pool: PoolIndex,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), TraceError> {
        let end = offset.saturating_add(bytes.len() as u64);
        if self
            .pools
            .get(pool)
            .is_some_and(|pool| pool.len_bytes < end)
        {
            self.resize(thread, stack, pool, end)?;
        }
        let kind = StoreKind::System;
        self.order.store(pool, PoolOffset(offset), bytes, None);
        let at = Place::new(pool, PoolOffset(offset));
        self.append(thread, stack, Body::Pm(Event::Store { kind, at, bytes }))
    }

    /// A process that has not mapped a pool changed the length of its file.
    fn changed_pool(
        &mut self,
        thread: &mut TargetThread,
        stack: StackId,
        pool: PoolIndex,
        event: &FileEvent<'_>,
    ) -> Result<(), TraceError> {
        const KEEP_SIZE: u64 = 1;
        let len_bytes = self.pools.get(pool).map_or(0, |pool| pool.len_bytes);
        match (event.code, event.numbers) {
            (FileCode::Truncate, [len_bytes, ..]) => self.resize(thread, stack, pool, len_bytes),
            (_, [KEEP_SIZE, ..]) => Ok(()),
            (_, [0, offset, len]) => {
                let end = offset.saturating_add(len).max(len_bytes);
                self.resize(thread, stack, pool, end)
            }
            _ => {
                self.contradictions += 1;
                Ok(())
            }
        }
    }
}

/// The two numbers that a value begins with, and the rest of it.
fn numbers(value: &[u8]) -> Option<([u64; 2], &[u8])> {
    let (numbers, rest) = value.split_at_checked(16)?;
    let number = |at: usize| Some(u64::from_le_bytes(numbers[at..at + 8].try_into().ok()?));
    Some(([number(0)?, number(8)?], rest))
}
