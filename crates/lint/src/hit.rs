//! What the lint gives: not yet a finding, because it has no sources and no words.

use powerfail_finding::{Code, Role};
use powerfail_model::{EventIndex, Place, ThreadIndex};
use powerfail_trace::StackId;

/// One distinct bug: a kind of finding at certain places in the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// What it is.
    pub code: Code,
    /// Where. What is lost or useless comes first.
    pub sites: Vec<HitSite>,
    /// How often it was seen.
    pub count: u64,
    /// For a flush, a fence or an add: how often that line of code was executed at all.
    pub of: Option<u64>,
    /// The line to blame calls a function of the user's that flushes, fences or adds.
    pub is_caller: bool,
    /// What removing a useless flush or fence must not break.
    pub caution: Option<Caution>,
    /// Of a store that is never flushed: its line of code was executed before, and no flush has covered what it stored until the
    /// thread had fenced. The program does not wait for it to be durable, so that it may be volatile on purpose.
    pub is_left_dirty: bool,
    /// Whether the trace alone proves it. Otherwise it is a candidate, and a crash has to show it.
    pub confirmed: bool,
    /// Of a candidate or a store that is never durable: the events like the first one, as many as are kept, at which a
    /// crash may show it.
    pub more: Vec<EventIndex>,
}

/// What else a useless flush or fence may be needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caution {
    /// The line of the flush also has a fence, which completes other flushes.
    NeededFence,
    /// The fence is an mfence, or a locked operation that does its work, which also orders threads.
    OrdersThreads,
}

/// An event that has a part in a hit: its first occurrence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HitSite {
    /// Its part.
    pub role: Role,
    /// The whole call stack.
    pub stack: StackId,
    /// The node of that stack whose line is to blame: its innermost frame in no trusted module or,
    /// where a function of the user's flushes for several callers, the caller. None if no stack is
    /// known.
    pub user: StackId,
    /// How many lines of the user's at that node lie inside of the line to blame, by inlined calls.
    pub inlined: u32,
    /// The event.
    pub event: EventIndex,
    /// Its thread.
    pub thread: ThreadIndex,
    /// The byte where it begins, if it concerns a pool.
    pub place: Option<Place>,
    /// The address, if it is a flush of memory in no pool.
    pub address: Option<u64>,
    /// How many bytes it stores; zero for flushes and fences.
    pub len_bytes: u64,
    /// The first of the bytes stored, at most [`HitSite::MAX_BYTES`].
    pub bytes: Vec<u8>,
}

impl HitSite {
    /// How much of what was stored is kept.
    pub const MAX_BYTES: usize = 32;
}

/// What a pass over a trace has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Linted {
    /// Each distinct pattern once, in the order of codes and then of first events.
    pub hits: Vec<Hit>,
    /// How many stores, flushes and fences annotations of the program leave out.
    pub out_of_scope: u64,
    /// The flushes, fences and adds that did something at least once: another trace in which one of them did nothing does not
    /// show that it is useless.
    pub needed: Vec<NeededCall>,
    /// How many threads store, of all processes.
    pub threads: usize,
}

/// A flush, fence or add that did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NeededCall {
    /// What it would be if it had done nothing.
    pub code: Code,
    /// The node of the user's frame.
    pub user: StackId,
    /// The frame is the event itself, not a call.
    pub is_site: bool,
}
