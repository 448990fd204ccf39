//! The trace format: what is written is read again, and damage is noticed.

mod common;
mod damage;
mod format;
mod interrupted;
mod replay;
mod round_trip;
mod trees;
