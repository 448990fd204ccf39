//! What a fuzzing campaign keeps on disk: images of pools in a tree whose edges are (input, failure
//! point), and test cases. Everything is appended, so that a kill at any moment loses nothing that was
//! reported.

mod cache;
mod campaign;
mod case;
mod cut;
mod difference;
mod error;
mod images;
mod journal;
mod lock;
mod pack;
mod queue;
mod stats;
mod store;
mod sync;
mod text;
mod tree;
mod varint;

pub use campaign::{Campaign, Record, read_record};
pub use case::{CaseNumber, Edge, Priority, Rebuild, TestCase};
pub use cut::Cut;
pub use error::{CorpusError, Result};
pub use images::{ImageNode, Images};
pub use journal::{Journal, JournalReader, Line};
pub use lock::Lock;
pub use powerfail_image::{Contents, ImageId};
pub use queue::{Entry, Queue, QueuedCase, read_cases};
pub use stats::{Stats, StatsLine, read_stats};
pub use sync::{Imported, Pulled, Sync};
