//! What is known of each thread: what it has flushed and not fenced, and in what call it is.

use powerfail_model::PoolIndex;
use powerfail_trace::StackId;

use crate::attribution::User;
use crate::lines::LineSlot;
use crate::ranges::PoolRange;
use crate::tally::Seen;

/// A promise of a thread's next fence: what the line holds up to an event becomes durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promise {
    pub(crate) line: LineSlot,
    pub(crate) up_to: u64,
    /// The flush, or the non-temporal store.
    pub(crate) stack: StackId,
}

/// Flushes of consecutive lines by one call of the user.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlushCall {
    pub(crate) user: User,
    pub(crate) pool: PoolIndex,
    /// The line after the last one.
    pub(crate) next_line: u64,
    /// Some line had something new.
    pub(crate) useful: bool,
    pub(crate) first_event: u64,
    pub(crate) first_stack: StackId,
}

/// A fence that orders threads as well, with nothing to wait for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdleFence {
    pub(crate) seen: Seen,
    /// The same function has fenced right before, and there is only one thread.
    pub(crate) repeats: bool,
}

/// Lines that a client request flushes: flushes of them follow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requested {
    pub(crate) pool: PoolIndex,
    pub(crate) next_line: u64,
    pub(crate) last_line: u64,
}

/// One thread.
#[derive(Debug, Default)]
pub(crate) struct Thread {
    pub(crate) promises: Vec<Promise>,
    pub(crate) call: Option<FlushCall>,
    /// A flush or a non-temporal store since the last fence instruction.
    pub(crate) worked: bool,
    /// Fence instructions of the user's that had something to wait for.
    pub(crate) fences: u32,
    /// The range that the next flushes are made for, as a library says.
    pub(crate) flush_range: Option<PoolRange>,
    /// The last event was an mfence, and there was nothing to wait for.
    pub(crate) idle_fence: Option<IdleFence>,
    /// The last event was a fence instruction of this user's frame.
    pub(crate) last_fence: Option<User>,
    pub(crate) in_transaction: bool,
    pub(crate) in_creation: bool,
    pub(crate) requested: Option<Requested>,
    /// How many stores it has made.
    pub(crate) stores: u64,
}

/// All threads; they appear when they are first asked for.
#[derive(Debug, Default)]
pub(crate) struct Threads(Vec<Thread>);

impl Threads {
    #[inline]
    pub(crate) fn get(&mut self, thread: u32) -> &mut Thread {
        let slot = thread as usize;
        if slot >= self.0.len() {
            self.0.resize_with(slot + 1, Thread::default);
        }
        &mut self.0[slot]
    }

    pub(crate) fn count(&self) -> u32 {
        self.0.len() as u32
    }

    /// How many store.
    pub(crate) fn storing(&self) -> usize {
        self.0.iter().filter(|it| it.stores > 0).count()
    }
}

/// The bit of a thread in a set of threads; there is none for the many that a set has no room for.
pub(crate) const fn bit(thread: u32) -> u64 {
    if thread < 64 { 1 << thread } else { 0 }
}
