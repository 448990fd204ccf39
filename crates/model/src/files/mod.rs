//! What a crash leaves of ordinary files: their names, lengths and data.
//!
//! Pure, as the rest of the crate. `docs/design/files.md` has the rules and their sources. The bytes
//! that a program writes never enter the model: a [`Write`](Operation::Write) says how many there are,
//! and a crash state says of which operation the bytes of a sector are ([`Source`]). Whoever makes a
//! directory of a crash state reads them from the recording.

mod ids;
mod operation;

pub use ids::{Entry, Name, NodeId, OperationIndex, PageIndex, SectorIndex, Source};
pub use ids::{PAGE_BYTES, SECTOR_BYTES, SECTORS_PER_PAGE};
pub use operation::{ByteRange, FileSystem, NodeKind, Operation};
