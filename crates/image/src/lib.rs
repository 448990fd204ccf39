//! Crash images on disk: the pools as a crash leaves them, for recovery to run on.
//!
//! - [`ImageCursor`]: a forward pass over a trace that holds the newest content of all pools and, if
//!   asked, the frontier. Moves from one failure point to the next at the cost of the events between.
//! - [`ImageSlot`]: a directory with private copies of all pools. [`ImageSlot::prepare`] makes them equal to a
//!   crash state at the cursor, byte for byte, whatever the last recovery did to them.
//! - [`TreeSlot`]: the same for whole trees of files, whose images are [`TreeImage`]s.
//! - [`RunDirectory`]: where slots live; gone when dropped, and [`sweep_leftovers`] removes those of
//!   processes that were killed.
//! - [`write_image`]: a crash image to keep.
//!
//! Cost: an image in memory takes its pages that are not zero; preparing a slot takes a comparison of
//! the pages that the files have, and writes only those that differ. The length of a pool costs
//! nothing.
//!
//! Starts no process and does not judge anything. Recovery must have ended, with all of its
//! processes, before its slot is prepared again.
//!
//! ```
//! use powerfail_image::{CursorOptions, ImageCursor, Layout, RunDirectory};
//! use powerfail_model::{CrashState, Event, EventIndex, Place, PoolOffset, StoreKind};
//! # use powerfail_trace::{Body, Meta, Pool, PoolKind, StackId, Thread, Trace, TraceWriter};
//! # let mut bytes = Vec::new();
//! # let mut writer = TraceWriter::new(&mut bytes, &Meta::default(), Default::default())?;
//! # let pool = writer.define_pool(&Pool {
//! #     path: "/mnt/pmem/pool".into(), kind: PoolKind::File, len_bytes: 8192, address: 0,
//! # })?;
//! # let thread = writer.define_thread(&Thread { os_id: 1, name: None })?;
//! # let at = Place::new(pool, PoolOffset(64));
//! # let store = Event::Store { kind: StoreKind::Plain, at, bytes: b"hello" };
//! # writer.append(thread, StackId::NONE, Body::Pm(store))?;
//! # writer.finish(&[])?;
//! # let trace = Trace::from_bytes(bytes)?;
//! # let parent = tempfile::tempdir()?;
//! let run = RunDirectory::create_in(parent.path())?;
//! let layout = Layout::of(&trace, &[])?;
//! let mut slot = run.slot(0, &layout);
//! let mut cursor = ImageCursor::new(&trace, CursorOptions::default())?;
//! cursor.move_to(EventIndex(1))?;
//! slot.prepare(&cursor, &CrashState::default())?;
//! let image = std::fs::read(slot.path_of(pool).unwrap())?;
//! assert_eq!(image[64..69], *b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod changed_pages;
mod contents;
mod cursor;
mod error;
mod export;
mod layout;
mod library_metadata;
mod mapping;
mod memory;
mod page;
mod pools;
mod private_file;
mod run_directory;
mod slot;
mod tree;

pub use contents::{DirectoryContents, FileContents, ImageId, PageBytes, PageHash, page_hash};
pub use cursor::{CursorOptions, ImageCursor, Patch};
pub use error::{ImageError, Result};
pub use export::write_image;
pub use layout::{Layout, find_companions};
pub use pools::{Fill, FillExtent, PoolImages};
pub use run_directory::{
    RunDirectory, default_parent, scratch_directory, sweep_leftovers, sweep_usual_places,
};
pub use slot::{ImageSlot, Prepared};
pub use tree::{
    FileContent, NodeKey, NodeSet, TreeDigest, TreeEntry, TreeFile, TreeImage, TreeNode, TreeNodes,
    TreePrepared, TreeSlot, TreeUse, write_tree,
};
