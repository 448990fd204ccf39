//! The engine on programs that exist only here.

mod common;
mod found;
mod toy;
