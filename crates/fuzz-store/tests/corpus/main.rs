//! The store of a campaign, used as a campaign uses it.

mod campaign;
mod common;
mod cut;
mod format;
mod full;
mod images;
mod killed;
mod queue;
mod repaired;
mod size;
mod sync;
