//! What `powerfail fuzz` shows: the panel of a running campaign, its summary, and lists of what it has stored.
//!
//! Everything here turns numbers into text or JSON. When and where that is shown is decided by the command line.

mod history;
mod listing;
mod panel;
mod summary;

pub use history::History;
pub use listing::{case_json, image_json, write_cases, write_images};
pub use panel::{finding_line, panel, status_line};
pub use summary::{
    minimised_sentence, stored_json, summary_json, write_findings, write_numbers, write_summary,
};
