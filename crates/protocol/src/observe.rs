//! What a recovery can observe of an open line, and what each observation rules out.
//!
//! After a crash an open line holds one of several contents. Which one is decided only when recovery
//! loads from it, and only as far as the loaded bytes tell: contents that agree on these bytes stay
//! possible together. So the number of executions is the number of distinct things that recovery
//! can observe, not the number of crash states.
//!
//! A [`Line`] borrows its contents, which never change, and its [`Knowledge`], which does: the contents
//! that are still possible, and the bytes that recovery has overwritten and whose old value cannot
//! be observed any more.
//!
//! Used in the recovering process, in its signal handlers, and by the host, which follows the choices
//! that were made there. Pure: no allocation, no I/O, no panic on what it is documented to take.

mod bytes;
mod line;

pub use bytes::{ByteSet, LINE_BYTES_MAX};
pub use line::{Classes, Knowledge, Line, TooMany, words_for};
