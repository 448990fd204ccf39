//! From the addresses of a recorded program to functions, source lines and inlined calls.
//!
//! A trace names a place in the code by its module and an offset ([`Frame`](powerfail_trace::Frame)).
//! A [`Symbolizer`] looks that place up in the module's file, or in the separate debug file that
//! belongs to it, and gives a [`Resolved`]:
//!
//! ```no_run
//! use powerfail_symbol::{AddressKind, Symbolizer};
//! use powerfail_trace::{Frame, Module, ModuleIndex};
//!
//! let modules = [Module {
//!     path: "/opt/store/bin/server".into(),
//!     build_id: vec![0x3f, 0x20, 0x11],
//!     load_address: 0x5555_5555_4000,
//!     len_bytes: 0x8000,
//!     function: None,
//! }];
//! let mut symbolizer = Symbolizer::new(&modules);
//! let frame = Frame::Module { module: ModuleIndex(0), offset: 0x1234 };
//! let resolved = symbolizer.resolve(frame, AddressKind::Instruction);
//! println!("{resolved}"); // insert (btree.c:42) inlined into main (server.c:10)
//! ```
//!
//! Invariants, most of them about what is absent:
//!
//! - **Nothing is invented.** What is not known is `None`, and [`Resolved::no_source`] says why. A file
//!   that is not the one that was recorded (its build-id differs) is not used, however plausible its
//!   lines would look.
//! - **No file can make it panic.** Modules vanish, are cut, are rebuilt or were never ELF files: each
//!   of these is a [`Problem`]. Files are read and not mapped, because a mapped file that is cut is a
//!   `SIGBUS`, and at most [`MAX_DEBUG_BYTES`] of one file are kept. Debug information itself is
//!   trusted to be made by a compiler: its inlined calls may not nest deeper than the stack allows.
//! - **Nothing is read before it is asked for, and nothing twice.** A module is opened when the first frame in it
//!   is resolved; its units, line tables and functions are parsed when an address falls into them. All symbolizers
//!   of a process share what was read ([`module_loads`] counts).
//!
//! What this crate does not do: it does not unwind (frames come from the recorder), does not show
//! source text, and does not fetch debug files from the network.

mod build_id;
mod demangle;
mod dwarf;
mod elf;
mod imports;
mod locate;
mod module;
mod problem;
mod resolved;
mod shared;
mod split;
mod symbolizer;
mod symbols;

pub use build_id::BuildId;
pub use elf::MAX_DEBUG_BYTES;
pub use module::{LineSource, ModuleReport, NameSource};
pub use problem::{NoSource, Problem};
pub use resolved::{Resolved, SourceFrame};
pub use shared::module_loads;
pub use symbolizer::{AddressKind, DEFAULT_DEBUG_DIRECTORY, Symbolizer};
