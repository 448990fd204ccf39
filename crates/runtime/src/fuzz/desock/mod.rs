//! Servers without a network: their connections come from the input.
//!
//! Switched on by an environment variable. A socket of the target is then a local one, which no other process
//! can reach: so descriptors, readiness and all that is done with them is what the kernel makes of it. The
//! runtime plays the client: when the target first waits for a client (`accept`, `poll`, `select`,
//! `epoll_wait`), it reads the input from descriptor 0, connects, sends it, and closes its side for writing.
//! What the target sends goes nowhere. When the target has closed that connection and waits again, the next
//! one comes, or, if the input has no more, the process ends by `exit(0)`.
//!
//! An input is several connections, one after the other, if there are lines in it that consist of a zero byte.
//!
//! `client.rs` is the client, `wait.rs` are the functions that wait, and `sockets.rs` the others. Datagrams are not
//! delivered: such sockets can be made and stay silent. Where the target makes processes, the first one that
//! waits for connections gets them.

mod client;
mod sockets;
mod wait;

pub(crate) use client::feed;
pub(crate) use sockets::{is_connection, reset_after_fork, start};
