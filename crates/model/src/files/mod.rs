//! What a crash leaves of ordinary files: their names, lengths and data.
//!
//! Pure, as the rest of the crate. `docs/design/files.md` has the rules and their sources. The bytes
//! that a program writes never enter the model: a [`Write`](Operation::Write) says how many there are,
//! and a crash state says which operation wrote the bytes of a sector ([`Source`]). Code that turns a
//! crash state into a directory reads them from the recording.
//!
//! - [`Operation`]: what the program does. [`InitialTree`]: what it starts with.
//! - [`Frontier`]: a pass over operations. At each position it lists, counts, samples and judges
//!   [`CrashState`]s, and says how their trees differ from the newest one ([`Difference`]).
//!
//! Inside, `Machine` is the frontier of one set of `Rules`. It keeps the names (`names`) and the
//! files (`file`, whose pages are in `content`); `choices` makes crash states of it and `aim`
//! those with a purpose.

mod aim;
mod choices;
mod content;
mod file;
mod frontier;
mod ids;
mod machine;
mod names;
mod operation;
mod rules;
mod state;

pub use frontier::Frontier;
pub use ids::{Entry, Name, NodeId, OperationIndex, PageIndex, SectorIndex, Source};
pub use ids::{PAGE_BYTES, SECTOR_BYTES, SECTORS_PER_PAGE};
pub use operation::{ByteRange, FileSystem, NodeKind, Operation};
pub use state::{
    CrashState, Difference, Fate, FileDifference, InitialNode, InitialTree, LostLength, LostPage,
    Piece,
};
