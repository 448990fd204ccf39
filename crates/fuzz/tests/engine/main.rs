//! The engine on programs that exist only here.

mod found;
mod toy;
