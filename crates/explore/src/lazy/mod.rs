//! Lazy exploration, the part that needs no process: what a crash can leave, and what follows from what a
//! recovery has observed of it.
//!
//! - [`CrashTable`]: the different contents of each open line at a failure point. An execution of
//!   recovery chooses among them where it loads.
//! - [`Seen`]: follows the choices of an execution: what is still possible, and crash states that show
//!   the same to recovery.
//! - [`robust`]: whether one moment of the run explains all that was read, and if not, which flush is missing.
//! - [`ChangeLog`] and [`ReadSets`]: which failure points need no run, because recovery read nothing that
//!   has changed.
//! - [`tree`] and [`Segments`]: everything that recovery has observed in the whole run, so that a failure point costs only
//!   what no other one has shown.
//! - [`nested`]: the power fails again while recovery runs.

mod digest;
mod distinct;
mod history;
mod initial_image;
pub mod nested;
mod reuse;
mod robust;
mod seen;
mod segments;
mod table;
pub mod tree;

pub use history::History;
pub use initial_image::initial_image;
pub use reuse::{
    ChangeLog, ChangeLogBuilder, Decision, LineChange, PageLines, ReadSets, Remarks, ReuseCounts,
    ReuseLimits,
};
pub use robust::{Moment, ReadLine, RunStore, Span, Unexplained, robust};
pub use seen::{Impossible, Observed, Seen, SeenStates};
pub use segments::{Segment, SegmentLimits, Segments, SegmentsBuilder};
pub use table::{Content, CrashLine, CrashTable, TableLimits, Truncated};
