//! Messages between campaigns on several machines: `LibAFL`'s LLMP over TCP.
//!
//! One campaign is the *broker* and the others *join* it; what one sends all others receive, and who joins late
//! receives everything that was sent before. A message is bytes that mean nothing here.
//!
//! LLMP has no passwords: every process that reaches the port can send. Use it only in networks that you trust. Messages are
//! lost when the connection is lost; synchronised directories lose nothing.

mod llmp;
mod memory;

pub use llmp::{Exchange, ExchangeError};
