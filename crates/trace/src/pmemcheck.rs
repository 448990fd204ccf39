//! The store log of pmemcheck (`valgrind --tool=pmemcheck --log-stores=yes`), which pmreorder reads, too: `powerfail trace
//! import` makes a trace of one, and `powerfail trace export` writes one.
//!
//! Between `START` and `STOP`, operations are separated by `|` and their fields by `;`. Numbers are hexadecimal. What
//! follows the known fields of an operation (a call stack) and operations of other names (markers) are skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::PathBuf;

use powerfail_model::{
    Event, EventIndex, FenceKind, FlushKind, Image, Place, PoolIndex, PoolOffset, SparseImage,
    StoreKind,
};

use crate::{
    Body, FinalImage, ImageHasher, Meta, PAGE_BYTES, Pool, PoolKind, StackId, Thread, Trace,
    TraceError, TraceWriter, WriterOptions,
};

const START: &str = "START";
const STOP: &str = "STOP";
const LINE_BYTES: u64 = 64;
/// No store of a log is longer.
const STORE_MAX: u64 = 8;
/// A longer flush is damage: each of its lines becomes an event.
const FLUSH_MAX: u64 = 4 << 30;

/// Why a log is not imported or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PmemcheckError {
    /// It has bytes that are not UTF-8.
    #[error("the log is not text")]
    NotText(#[from] std::str::Utf8Error),
    /// It has no beginning.
    #[error("there is no START")]
    NoStart,
    /// It has no end.
    #[error("there is no STOP: the log is incomplete")]
    NoStop,
    /// An operation is wrong.
    #[error("operation {number}: `{part}`: {reason}")]
    Operation {
        /// Its number, from 1.
        number: usize,
        /// Its text.
        part: String,
        /// What is wrong.
        reason: OperationError,
    },
    /// It is about no file.
    #[error("no file is registered")]
    NoFile,
    /// An operation is about memory of no file.
    #[error("{0:#x} is in no registered file")]
    NotRegistered(u64),
    /// The trace has an address that a log cannot express.
    #[error("an address of the trace is beyond the last one")]
    Address,
    /// The trace cannot be written or read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The log cannot be written.
    #[error(transparent)]
    Write(#[from] io::Error),
}

/// What is wrong with an operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OperationError {
    /// It has too few fields.
    #[error("a field is missing")]
    Missing,
    /// A field is not a number.
    #[error("`{0}` is not a number")]
    NotANumber(String),
    /// A store has no bytes or too many.
    #[error("a store has 1 to 8 bytes")]
    StoreLength,
    /// A flush is too long.
    #[error("a flush has at most 4 GiB")]
    FlushLength,
    /// A range ends beyond the last address.
    #[error("the range ends beyond the last address")]
    Range,
    /// A file is mapped at a lower address than its offset.
    #[error("the file would begin before the first address")]
    Offset,
}

type Result<T, E = PmemcheckError> = std::result::Result<T, E>;

/// An operation of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation<'a> {
    /// A file was mapped.
    Register {
        path: &'a str,
        address: u64,
        len_bytes: u64,
        offset: u64,
    },
    Store {
        address: u64,
        value: u64,
        len_bytes: u64,
    },
    Flush {
        address: u64,
        len_bytes: u64,
    },
    Fence,
}

/// Whether a file is the log of pmemcheck: it may begin with lines of Valgrind.
pub fn is_log(bytes: &[u8]) -> bool {
    let is_start = |line: &[u8]| {
        let line = line.trim_ascii();
        let text = match line.strip_prefix(b"==") {
            // ==123== START
            Some(rest) => rest.split(|byte| *byte == b' ').nth(1).unwrap_or_default(),
            None => line,
        };
        text.starts_with(START.as_bytes())
    };
    bytes.split(|byte| *byte == b'\n').take(64).any(is_start)
}

fn operations(text: &str) -> Result<Vec<Operation<'_>>> {
    let begin = text.find(START).ok_or(PmemcheckError::NoStart)?;
    let mut operations = Vec::new();
    for (number, part) in text[begin..].split('|').map(str::trim).enumerate() {
        if part.starts_with(STOP) {
            return Ok(operations);
        }
        let parsed = operation(part).map_err(|reason| PmemcheckError::Operation {
            number,
            part: part.to_owned(),
            reason,
        })?;
        operations.extend(parsed);
    }
    Err(PmemcheckError::NoStop)
}

/// Nothing if it is one that means nothing here.
fn operation(part: &str) -> Result<Option<Operation<'_>>, OperationError> {
    let mut fields = part.split(';');
    let name = fields.next().unwrap_or_default();
    let fields = &mut fields;
    Ok(match name {
        "STORE" => {
            let (address, value, len_bytes) = (number(fields)?, number(fields)?, number(fields)?);
            if !(1..=STORE_MAX).contains(&len_bytes) {
                return Err(OperationError::StoreLength);
            }
            ensure_range(address, len_bytes)?;
            Some(Operation::Store {
                address,
                value,
                len_bytes,
            })
        }
        "FLUSH" => {
            let (address, len_bytes) = (number(fields)?, number(fields)?);
            ensure_range(address, len_bytes)?;
            if len_bytes > FLUSH_MAX {
                return Err(OperationError::FlushLength);
            }
            Some(Operation::Flush { address, len_bytes })
        }
        "FENCE" => Some(Operation::Fence),
        "REGISTER_FILE" => {
            let path = fields.next().ok_or(OperationError::Missing)?;
            let (address, len_bytes, offset) = (number(fields)?, number(fields)?, number(fields)?);
            ensure_range(address, len_bytes)?;
            ensure_range(offset, len_bytes)?;
            if offset > address {
                return Err(OperationError::Offset);
            }
            Some(Operation::Register {
                path,
                address,
                len_bytes,
                offset,
            })
        }
        _ => None,
    })
}

fn ensure_range(from: u64, len_bytes: u64) -> Result<(), OperationError> {
    let end = from.checked_add(len_bytes.max(1));
    end.map(|_| ()).ok_or(OperationError::Range)
}

fn number<'a>(fields: &mut impl Iterator<Item = &'a str>) -> Result<u64, OperationError> {
    let field = fields.next().ok_or(OperationError::Missing)?;
    let digits = field.trim_start_matches("0x");
    u64::from_str_radix(digits, 16).map_err(|_| OperationError::NotANumber(field.to_owned()))
}

/// Where files are mapped.
#[derive(Debug, Default)]
struct Mappings {
    pools: Vec<Pool>,
    /// By address: the pool, the length, and the offset in the file.
    mapped: BTreeMap<u64, (PoolIndex, u64, u64)>,
}

impl Mappings {
    fn add(&mut self, path: &str, address: u64, len_bytes: u64, offset: u64) {
        let path = PathBuf::from(path);
        let known = self.pools.iter().position(|pool| pool.path == path);
        let number = known.unwrap_or_else(|| {
            self.pools.push(Pool {
                path,
                kind: PoolKind::File,
                len_bytes: 0,
                address: address - offset,
            });
            self.pools.len() - 1
        });
        let pool = &mut self.pools[number];
        pool.len_bytes = pool.len_bytes.max(offset + len_bytes);
        let index = PoolIndex(number as u32);
        self.mapped.insert(address, (index, len_bytes, offset));
    }

    fn place(&self, address: u64) -> Result<Place> {
        let before = self.mapped.range(..=address).next_back();
        let (start, (pool, _, offset)) = before
            .filter(|(start, (_, len_bytes, _))| address - **start < *len_bytes)
            .ok_or(PmemcheckError::NotRegistered(address))?;
        Ok(Place::new(*pool, PoolOffset(address - start + offset)))
    }
}

/// A log that was read and makes sense.
#[derive(Debug)]
pub struct Log<'a> {
    operations: Vec<Operation<'a>>,
    mappings: Mappings,
}

impl<'a> Log<'a> {
    /// Reads a log.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let text = std::str::from_utf8(bytes)?;
        let operations = operations(text)?;
        let mut mappings = Mappings::default();
        for operation in &operations {
            if let Operation::Register {
                path,
                address,
                len_bytes,
                offset,
            } = *operation
            {
                mappings.add(path, address, len_bytes, offset);
            }
        }
        if mappings.pools.is_empty() {
            return Err(PmemcheckError::NoFile);
        }
        for operation in &operations {
            if let Operation::Store {
                address, len_bytes, ..
            }
            | Operation::Flush { address, len_bytes } = *operation
            {
                mappings.place(address)?;
                mappings.place(address + len_bytes.max(1) - 1)?;
            }
        }
        Ok(Self {
            operations,
            mappings,
        })
    }

    /// How many files it is about.
    pub const fn file_count(&self) -> usize {
        self.mappings.pools.len()
    }
}

/// Writes the trace of a log. `initial` is what its first file held before. Returns the number of events.
pub fn import(log: &Log<'_>, initial: &[u8], out: impl Write) -> Result<u64> {
    let Log {
        operations,
        mappings,
    } = log;
    let mut image = SparseImage::new();
    let mut pages: Vec<BTreeSet<u64>> = vec![BTreeSet::new(); mappings.pools.len()];
    let meta = Meta {
        powerfail_version: env!("CARGO_PKG_VERSION").to_owned(),
        notes: vec![("imported".to_owned(), "pmemcheck".to_owned())],
        ..Meta::default()
    };
    let mut writer = TraceWriter::new(out, &meta, WriterOptions::default())?;
    for pool in &mappings.pools {
        writer.define_pool(pool)?;
    }
    for (page, bytes) in initial.chunks(PAGE_BYTES).enumerate() {
        if bytes.iter().any(|byte| *byte != 0) {
            let offset = PoolOffset((page * PAGE_BYTES) as u64);
            writer.initial_image(PoolIndex(0), offset, bytes)?;
            image.write(Place::new(PoolIndex(0), offset), bytes);
            pages[0].insert(page as u64);
        }
    }
    let thread = writer.define_thread(&Thread {
        os_id: 0,
        name: None,
    })?;
    for operation in operations {
        match *operation {
            Operation::Register { .. } => {}
            Operation::Store {
                address,
                value,
                len_bytes,
            } => {
                let at = mappings.place(address)?;
                let bytes = &value.to_le_bytes()[..len_bytes as usize];
                let kind = StoreKind::Plain;
                writer.append(
                    thread,
                    StackId::NONE,
                    Body::Pm(Event::Store { kind, at, bytes }),
                )?;
                image.write(at, bytes);
                let last = at.offset.0 + len_bytes - 1;
                let page = PAGE_BYTES as u64;
                pages[at.pool.0 as usize].extend(at.offset.0 / page..=last / page);
            }
            Operation::Flush { address, len_bytes } => {
                let first = address / LINE_BYTES;
                let last = (address + len_bytes.max(1) - 1) / LINE_BYTES;
                for line in first..=last {
                    let at = mappings.place((line * LINE_BYTES).max(address))?;
                    let kind = FlushKind::Clwb;
                    writer.append(thread, StackId::NONE, Body::Pm(Event::Flush { kind, at }))?;
                }
            }
            Operation::Fence => {
                let fence = Event::Fence(FenceKind::Sfence);
                writer.append(thread, StackId::NONE, Body::Pm(fence))?;
            }
        }
    }
    let events = writer.event_count();
    writer.finish(&final_images(&mappings.pools, &pages, &image))?;
    Ok(events)
}

/// The pools at the end, of which only some pages are not zero.
fn final_images(pools: &[Pool], pages: &[BTreeSet<u64>], image: &SparseImage) -> Vec<FinalImage> {
    let of_pool = |((pool, pages), number): ((&Pool, &BTreeSet<u64>), u32)| {
        let mut hasher = ImageHasher::new(pool.len_bytes);
        for page in pages {
            let offset = page * PAGE_BYTES as u64;
            let len = pool.len_bytes.saturating_sub(offset).min(PAGE_BYTES as u64);
            let mut bytes = vec![0; len as usize];
            let at = Place::new(PoolIndex(number), PoolOffset(offset));
            image.read(at, &mut bytes);
            hasher.update(offset, &bytes);
        }
        FinalImage {
            pool: PoolIndex(number),
            len_bytes: pool.len_bytes,
            hash: hasher.finish(),
        }
    };
    pools.iter().zip(pages).zip(0..).map(of_pool).collect()
}

/// Writes a trace as a log. Returns how many events it cannot express.
pub fn export(trace: &Trace, out: &mut dyn Write) -> Result<u64> {
    let pools = trace.pools();
    write!(out, "{START}")?;
    for pool in pools {
        let Pool {
            path,
            len_bytes,
            address,
            ..
        } = pool;
        if address.checked_add((*len_bytes).max(1)).is_none() {
            return Err(PmemcheckError::Address);
        }
        let path = path.display();
        write!(out, "|REGISTER_FILE;{path};{address:#x};{len_bytes:#x};0x0")?;
    }
    let mut left_out = 0;
    let mut records = trace.records_from(EventIndex(0));
    while let Some(record) = records.next_record()? {
        let Body::Pm(event) = record.body else {
            continue;
        };
        let address = |at: Place, len_bytes: u64| {
            let pool = pools.get(at.pool.0 as usize);
            let address = pool.and_then(|pool| pool.address.checked_add(at.offset.0));
            // A flush ends at the end of a line.
            let fits = |address: &u64| {
                let end = address.checked_add(len_bytes.max(1));
                end.and_then(|end| end.checked_next_multiple_of(LINE_BYTES))
                    .is_some()
            };
            address.filter(fits).ok_or(PmemcheckError::Address)
        };
        match event {
            Event::Store { kind, at, bytes } => {
                if kind == StoreKind::Locked {
                    write!(out, "|FENCE")?;
                }
                let start = address(at, bytes.len() as u64)?;
                let mut from = start;
                let mut rest = bytes;
                while !rest.is_empty() {
                    let room = STORE_MAX - from % STORE_MAX;
                    let (now, later) = rest.split_at(rest.len().min(room as usize));
                    let mut value = [0; STORE_MAX as usize];
                    value[..now.len()].copy_from_slice(now);
                    let value = u64::from_le_bytes(value);
                    write!(out, "|STORE;{from:#x};{value:#x};{:#x}", now.len())?;
                    from += now.len() as u64;
                    rest = later;
                }
                if kind == StoreKind::NonTemporal {
                    flush(out, start, bytes.len() as u64)?;
                }
            }
            Event::Flush { kind, at } => {
                flush(out, address(at, 1)?, 1)?;
                if kind == FlushKind::Clflush {
                    write!(out, "|FENCE")?;
                }
            }
            Event::Fence(_) => write!(out, "|FENCE")?,
            Event::Sync {
                pool,
                offset,
                len_bytes,
            } => {
                let start = address(Place::new(pool, offset), len_bytes)?;
                flush(out, start, len_bytes)?;
                write!(out, "|FENCE")?;
            }
            Event::Resize { .. } => left_out += 1,
        }
    }
    writeln!(out, "|{STOP}")?;
    Ok(left_out)
}

/// Flushes the lines of a range.
fn flush(out: &mut dyn Write, address: u64, len_bytes: u64) -> io::Result<()> {
    let first = address / LINE_BYTES * LINE_BYTES;
    let end = (address + len_bytes.max(1)).next_multiple_of(LINE_BYTES);
    write!(out, "|FLUSH;{first:#x};{:#x}", end - first)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The trace of a log, as a log again.
    fn exported(log: &str) -> Result<String> {
        let mut bytes = Vec::new();
        import(&Log::parse(log.as_bytes())?, b"", &mut bytes)?;
        let mut out = Vec::new();
        export(&Trace::from_bytes(bytes)?, &mut out)?;
        Ok(String::from_utf8(out).expect("text"))
    }

    #[test]
    fn what_is_exported_is_a_log() {
        let log = "START|REGISTER_FILE;q;0x3000;0x1000;0x1000|STORE;0x3001;0xffff;0x2|FENCE|STOP";
        let again = exported(log).expect("a log");
        Log::parse(again.as_bytes()).expect("what was exported is a log");
    }

    #[test]
    fn a_file_that_would_begin_before_the_first_address_is_refused() {
        let log = "START|REGISTER_FILE;q;0x30000;0x1000;0x1000001|FENCE|STOP";
        let refused = exported(log).expect_err("it wraps around").to_string();
        assert!(refused.contains("before the first address"), "{refused}");
    }

    #[test]
    fn a_file_that_would_end_beyond_the_last_address_is_not_exported() {
        let log = "START|REGISTER_FILE;q;0xffffffffffff0000;0x1000;0x0|\
                   REGISTER_FILE;q;0x10000000;0x1000;0x100000|FENCE|STOP";
        exported(log).expect_err("its addresses wrap around");
    }
}
