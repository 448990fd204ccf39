//! What a campaign keeps, used as a campaign uses it.

mod common;
mod images;
