//! The lint: patterns of misuse of persistent memory that a trace shows without any crash.
//!
//! [`lint`] passes over a trace once, forwards, and gives one [`Hit`] for each distinct bug. It reads
//! the trace and nothing else: it runs nothing, finds no sources for addresses and does not print.
//! `docs/reference/findings/` has a page for each [`Code`](powerfail_finding::Code) that says how it is decided.
//!
//! The patterns are those of Mumak's trace analysis (section 4.2 of its paper of 2023), with these deviations:
//!
//! 1. The unit of a flush is the call that made it, not the line: a call that covers one line with
//!    something new is good practice, whatever its other lines hold. A call is not redundant either if its
//!    line was flushed only along with what other code stored beside it.
//! 2. Flushing what another thread has flushed but not fenced is not redundant: this thread has no
//!    other way to be sure.
//! 3. A locked operation completes flushes but does not make the next sfence redundant: it was
//!    executed for another reason.
//! 4. A store to a line that is never flushed is transient data, unless the same code stores to lines
//!    that are flushed: then the flush was forgotten.
//! 5. Words that locked operations write are locks and counters unless they hold pointers, and are
//!    not missed when they are lost.
//! 6. A fence that also orders threads, such as an mfence, is judged only where it can be meant for nothing else.
//! 7. What trusted libraries do among themselves is not reported; see [`Trust`].
//!
//! Two warnings go beyond it: a store that only the flush of a neighbour makes durable (`pass/neighbour.rs`), and one that
//! stays dirty over many fences, which section 5 of Yat's paper proposes.
//!
//! When something is durable is decided as `powerfail-model` does, by another machine: this one keeps
//! no versions, only the newest store to each byte, which is what makes it fast.
//!
//! Ordinary files, which are changed by system calls, have a pass of their own: [`files`].
//!
//! The reads of a recovery are judged in another pass: see the crate `races`.
//!
//! Where to start reading: `pass.rs` is the pass, with a file for each kind of event
//! in `pass/`; `finish.rs` is what is known only at its end.

mod attribution;
mod blame;
pub mod files;
mod finish;
mod hit;
mod lines;
mod options;
mod owners;
mod pass;
mod publish;
pub mod ranges;
mod stores;
mod tally;
mod threads;
mod transactions;
mod trust;

pub use attribution::{Business, LineNumber, NoSymbols, Symbols, attributed_frame};
pub use hit::{Caution, Hit, HitSite, Linted, NeededCall};
pub use options::LintOptions;
pub use owners::Owners;
pub use pass::{lint, lint_while};
pub use trust::{Standing, Trust};
