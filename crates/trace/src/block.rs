//! Reads records and image runs out of blocks: one block at a time, never the whole trace.

use std::ops::Range;

use powerfail_model::files::NodeId;
use powerfail_model::{EventIndex, PoolIndex};

use crate::decode::{Columns, Decoder, Limits};
use crate::error::Result;
use crate::image::{ImageBlock, ImageRun};
use crate::layout::{BlockDescriptor, BlockKind};
use crate::reader::Trace;
use crate::record::Record;
use crate::tree::FileRun;

/// One block of records, decompressed.
#[derive(Default)]
pub struct EventBlock {
    descriptor: Option<BlockDescriptor>,
    stored: Vec<u8>,
    raw: Vec<u8>,
    columns: Columns,
    limits: Limits,
}

impl EventBlock {
    /// The place of its first record.
    pub fn first_event(&self) -> EventIndex {
        EventIndex(self.descriptor.map_or(0, |block| block.first_event))
    }

    /// How many records it holds.
    pub fn event_count(&self) -> u32 {
        self.descriptor.map_or(0, |block| block.event_count)
    }

    /// Its records. After an error there are no more.
    pub fn records(&self) -> Records<'_> {
        Records {
            raw: &self.raw,
            decoder: self.decoder(),
        }
    }

    fn decoder(&self) -> Option<Decoder> {
        let descriptor = self.descriptor.as_ref()?;
        Some(Decoder::new(self.columns, descriptor, self.limits))
    }

    pub(crate) fn read(
        &mut self,
        trace: &Trace,
        descriptor: &BlockDescriptor,
        limits: Limits,
    ) -> Result<()> {
        self.descriptor = None;
        trace.read_payload(descriptor, &mut self.stored, &mut self.raw)?;
        self.columns = Columns::decode(&self.raw, descriptor.offset)?;
        self.limits = limits;
        self.descriptor = Some(*descriptor);
        Ok(())
    }
}

/// The records of one block.
pub struct Records<'a> {
    raw: &'a [u8],
    decoder: Option<Decoder>,
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.decoder.as_mut()?.next(self.raw)
    }
}

/// Reads the records of a trace in order, from any place.
pub struct RecordCursor<'t> {
    trace: &'t Trace,
    next_block: usize,
    block: EventBlock,
    decoder: Option<Decoder>,
    /// How many records of the first block to pass over.
    skip: u64,
}

impl<'t> RecordCursor<'t> {
    pub(crate) fn new(trace: &'t Trace, first: EventIndex) -> Self {
        let next_block = trace.block_of(first);
        let skip = trace
            .event_blocks()
            .get(next_block)
            .map_or(0, |block| first.0.saturating_sub(block.first_event));
        Self {
            trace,
            next_block,
            block: EventBlock::default(),
            decoder: None,
            skip,
        }
    }

    /// The next record, which lives until the one after it is asked for. After an error there are
    /// no more.
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>> {
        let more = self
            .decoder
            .as_ref()
            .is_some_and(|decoder| decoder.remaining() > 0);
        if !more && !self.load_block()? {
            return Ok(None);
        }
        match &mut self.decoder {
            Some(decoder) => decoder.next(&self.block.raw).transpose(),
            None => Ok(None),
        }
    }

    /// Where in the file the block ends that is being read; 0 before the first record.
    pub fn file_position(&self) -> u64 {
        self.block.descriptor.map_or(0, |block| block.end())
    }

    /// Goes to the next block, if there is one, and there to the first record that is wanted.
    #[cold]
    fn load_block(&mut self) -> Result<bool> {
        if let Some(decoder) = &mut self.decoder
            && let Some(error) = decoder.check_end()
        {
            self.stop();
            return Err(error);
        }
        if self.next_block >= self.trace.event_blocks().len() {
            return Ok(false);
        }
        let loaded = self.try_load_block();
        if loaded.is_err() {
            self.stop();
        }
        loaded.map(|()| true)
    }

    fn try_load_block(&mut self) -> Result<()> {
        self.trace
            .read_block_into(self.next_block, &mut self.block)?;
        self.next_block += 1;
        self.decoder = self.block.decoder();
        if let Some(decoder) = &mut self.decoder {
            for _ in 0..std::mem::take(&mut self.skip) {
                let passed = decoder.next(&self.block.raw);
                passed.transpose()?;
            }
        }
        Ok(())
    }

    fn stop(&mut self) {
        self.decoder = None;
        self.next_block = usize::MAX;
    }
}

/// Reads the initial image of one pool or of all, piece by piece.
pub struct ImageRuns<'t> {
    trace: &'t Trace,
    /// The kind of blocks that is wanted.
    kind: BlockKind,
    /// The only pool or file that is wanted.
    subject: Option<u32>,
    /// The next block of the trace to look at.
    next_block: usize,
    /// The block behind the last one to look at.
    end_block: usize,
    block: Option<ImageBlock>,
    next_run: usize,
    stored: Vec<u8>,
    raw: Vec<u8>,
}

impl<'t> ImageRuns<'t> {
    pub(crate) fn new(trace: &'t Trace, pool: Option<PoolIndex>) -> Self {
        let subject = pool.map(|pool| pool.0);
        Self::of(trace, BlockKind::InitialImage, subject, 0..usize::MAX)
    }

    /// Of blocks of a kind among those with these numbers.
    fn of(trace: &'t Trace, kind: BlockKind, subject: Option<u32>, blocks: Range<usize>) -> Self {
        Self {
            trace,
            kind,
            subject,
            next_block: blocks.start,
            end_block: blocks.end,
            block: None,
            next_run: 0,
            stored: Vec::new(),
            raw: Vec::new(),
        }
    }

    /// The next piece, which lives until the one after it is asked for. After an error there are
    /// no more.
    pub fn next_run(&mut self) -> Result<Option<ImageRun<'_>>> {
        let more = self
            .block
            .as_ref()
            .is_some_and(|block| self.next_run < block.run_count());
        if !more {
            let loaded = self.load_block();
            if !matches!(loaded, Ok(true)) {
                self.block = None;
                self.next_block = usize::MAX;
                return loaded.map(|_| None);
            }
        }
        self.next_run += 1;
        Ok(self
            .block
            .as_mut()
            .and_then(|block| block.run(self.next_run - 1, &self.raw)))
    }

    fn load_block(&mut self) -> Result<bool> {
        let all = self.trace.blocks();
        let end = self.end_block.min(all.len());
        let blocks = all.get(self.next_block..end).unwrap_or(&[]);
        let wanted = |block: &&BlockDescriptor| {
            block.kind == self.kind && self.subject.is_none_or(|subject| subject == block.subject)
        };
        let Some((skipped, descriptor)) =
            blocks.iter().enumerate().find(|(_, block)| wanted(block))
        else {
            return Ok(false);
        };
        self.next_block += skipped + 1;
        self.trace
            .read_payload(descriptor, &mut self.stored, &mut self.raw)?;
        self.block = Some(self.trace.image_block(descriptor, &self.raw)?);
        self.next_run = 0;
        Ok(true)
    }
}

/// Reads the initial content of one file of a tree or of all, piece by piece.
pub struct FileRuns<'t>(ImageRuns<'t>);

impl<'t> FileRuns<'t> {
    pub(crate) fn new(trace: &'t Trace, node: Option<NodeId>, blocks: Range<usize>) -> Self {
        let subject = node.map(|node| node.0);
        Self(ImageRuns::of(
            trace,
            BlockKind::InitialFile,
            subject,
            blocks,
        ))
    }

    /// The next piece, which lives until the one after it is asked for. After an error there are no more.
    pub fn next_run(&mut self) -> Result<Option<FileRun<'_>>> {
        Ok(self.0.next_run()?.map(|run| FileRun {
            // The subject of the block.
            node: NodeId(run.pool.0),
            offset: run.offset.0,
            bytes: run.bytes,
        }))
    }
}
