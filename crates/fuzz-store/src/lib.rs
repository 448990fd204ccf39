//! The files of a fuzzing campaign: images of pools, in a tree whose edges are (input, failure point), and test cases.
//! Files are appended to, so a kill at any moment loses nothing that was reported.
//!
//! - [`Campaign`]: the directory of a campaign, opened by the one process that may change it, with all below.
//! - [`Images`]: each is stored once, as a difference to a similar one, loaded through a cache, and can be made again
//!   from the tree alone with an implementation of [`Rebuild`].
//! - [`Queue`]: test cases, each an image and an input, with the inputs as files.
//! - [`StatsFile`]: progress over time, for plots and for resuming.
//! - [`Sync`]: test cases of other instances, with the images that they need.
//! - [`Journal`]: lines of JSON with checksums, for everything else.
//!
//! When a function that stores something returns `Ok`, it is stored. When it returns an error, nothing has changed, and it
//! can be called again: [`StoreError::is_full`] tells whether the disk was full.
//!
//! This crate runs nothing and judges nothing. The bytes are described in `docs/reference/campaign-format.md`.
//!
//! ```
//! use powerfail_fuzz_store::{Campaign, DirectoryContents, Edge, Entry, Images, Priority, TestCase};
//!
//! let out = tempfile::tempdir()?;
//! let options = serde_json::json!({ "jobs": 2 });
//! let campaign = Campaign::create(out.path(), vec!["kv".into(), "{pool}".into()], options)?;
//!
//! // A run without a pool has created one.
//! let mut contents = DirectoryContents::default();
//! contents.files.entry("pool".into()).or_default().len_bytes = 8 << 20;
//! let edge = Edge { input: b"create\n".to_vec(), failure_point: None };
//! let (image, new) = campaign.images.insert(Images::empty(), &edge, &contents)?;
//! assert!(new);
//!
//! let case = TestCase { image, input: b"set 1\n".to_vec() };
//! let entry = Entry {
//!     priority: Priority::High,
//!     time_s: 0.2,
//!     execs: 17,
//!     new_locations: 3,
//!     found_by: "seed".into(),
//!     minimised_from: None,
//! };
//! let (number, _) = campaign.queue.append(&case, &entry)?;
//! drop(campaign);
//!
//! let campaign = Campaign::resume(out.path())?;
//! assert_eq!(campaign.queue.load(number)?, case);
//! assert_eq!(*campaign.images.load(image)?, contents);
//! assert_eq!(campaign.images.path(image)?, [edge]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cache;
mod campaign;
mod case;
mod cut;
mod difference;
mod error;
mod finding;
mod images;
mod journal;
mod lock;
mod pack;
mod queue;
mod repair;
mod stats;
mod store;
mod sync;
mod text;
mod tree;
mod unchecked;

pub use campaign::{Campaign, CampaignRecord, discard_unused, origin, read_record};
pub use case::{CaseNumber, Edge, Priority, Rebuild, TestCase};
pub use cut::Cut;
pub use error::{Result, StoreError};
pub use finding::{MINIMISED_FILE, MinimisedInput, MinimisedState, StoredFinding, read_minimised};
pub use images::{ImageNode, Images};
pub use journal::{Journal, JournalLine, JournalReader};
pub use lock::Lock;
pub use powerfail_image::{DirectoryContents, ImageId};
pub use powerfail_trace::varint;
pub use queue::{Entry, Queue, QueuedCase, Retirement, read_cases};
pub use repair::{InputRepair, PackDamage, Repair};
pub use stats::{Stats, StatsFile, read_stats};
pub use sync::{Imported, Pulled, Sync};
pub use unchecked::Unchecked;
