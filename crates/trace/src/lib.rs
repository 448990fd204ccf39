//! The trace file: what a target did to its pools and to the files of its trees, in one self-contained, versioned file.
//!
//! Only this crate knows its bytes; `docs/reference/trace-format.md` describes them. A [`TraceWriter`] is fed
//! by a recorder; a [`Trace`] is read by everything else, as a stream, from any place, or block by
//! block in parallel. Neither ever holds a whole trace in memory.
//!
//! What this crate does not do: it does not decide what may survive a crash (that is
//! `powerfail-model`, whose events it carries), it does not find sources for addresses, and it does
//! not print.
//!
//! Reading trusts nothing. Whatever the bytes are, the result is records or a [`TraceError`]: never
//! a panic, an endless loop, or memory beyond the limits of the format.
//!
//! ```
//! use powerfail_model::{Event, EventIndex, Place, PoolOffset, StoreKind};
//! use powerfail_trace::{Body, Meta, Pool, PoolKind, StackId, Thread, Trace, TraceWriter};
//!
//! # fn main() -> powerfail_trace::Result<()> {
//! let mut bytes = Vec::new();
//! let mut writer = TraceWriter::new(&mut bytes, &Meta::default(), Default::default())?;
//! let pool = writer.define_pool(&Pool {
//!     path: "/mnt/pmem/pool".into(),
//!     kind: PoolKind::File,
//!     len_bytes: 8 << 20,
//!     address: 0x7f00_0000_0000,
//! })?;
//! let thread = writer.define_thread(&Thread { os_id: 4711, name: None })?;
//! let store = Event::Store {
//!     kind: StoreKind::Plain,
//!     at: Place::new(pool, PoolOffset(64)),
//!     bytes: &[1, 2, 3, 4],
//! };
//! writer.append(thread, StackId::NONE, Body::Pm(store))?;
//! writer.finish(&[])?;
//!
//! let trace = Trace::from_bytes(bytes)?;
//! let mut records = trace.records_from(EventIndex(0));
//! while let Some(record) = records.next_record()? {
//!     assert_eq!(record.body, Body::Pm(store));
//! }
//! # Ok(())
//! # }
//! ```

pub mod annotation;
mod block;
mod compress;
mod declared;
mod decode;
mod definition;
mod definitions;
mod encode;
mod error;
mod file;
mod image;
mod index;
mod kind;
mod layout;
pub mod pmemcheck;
mod predict;
mod reader;
mod record;
pub mod recording;
pub mod replay;
mod scope;
mod source;
mod statistics;
mod tag;
mod tree;
pub mod tree_replay;
pub mod varint;
mod wire;
mod writer;

pub use annotation::{AnnotatedRange, Annotation};
pub use block::{EventBlock, FileRuns, ImageRuns, RecordCursor, Records};
pub use compress::Compression;
pub use declared::{DeclaredContent, Durable};
pub use definition::{
    DERANDOMISE_NOTE, DIRECTORY_NOTE, DOMAIN_NOTE, Frame, HEAP_NOTE, Meta, Module, ModuleIndex,
    POOL_NOTE, Pool, PoolKind, SEAL_NOTE, StackId, StackNode, Thread,
};
pub use error::{Result, TraceError};
pub use file::{
    EntryName, FileOperation, FileOperations, MAX_NAME_BYTES, NewNode, RangeChange, is_name,
};
pub use image::{FinalImage, ImageHash, ImageHasher, ImageRun, PAGE_BYTES};
pub use kind::{RecordGroup, RecordKind};
pub use layout::{
    BlockDescriptor, BlockKind, Codec, FORMAT_MAJOR, FORMAT_MINOR, MAX_PAYLOAD_BYTES,
};
pub use reader::{Completeness, StackFrames, Trace};
pub use record::{Body, Mark, MarkKind, Record};
pub use scope::{Scope, ScopeChange};
pub use source::ReadAt;
pub use statistics::Statistics;
pub use tree::{FileRun, FinalContent, FinalEntry, InitialEntry, InitialNode, Tree, TreeIndex};
pub use writer::{TraceSize, TraceWriter, WriterOptions};
