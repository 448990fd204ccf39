//! Reports for other programs: SARIF, `JUnit`, annotations of GitHub, code quality of GitLab.
//!
//! All of them have the findings that the text has. A fingerprint is the code and the id of a finding, so it survives
//! edits that only move lines. Nothing depends on the time, the machine or the order of hash tables. `json` of
//! [`crate::findings`] has more: everything.

mod github;
mod gitlab;
mod junit;
mod location;
mod sarif;

pub use github::github;
pub use gitlab::gitlab;
pub use junit::junit;
pub use sarif::sarif;
