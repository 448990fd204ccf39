//! The engine on simulated programs.

mod common;
mod found;
mod toy;
