//! Guesses the next call stack and address, so that a record that repeats a pattern costs one byte.
//!
//! A program's stores follow its code: after site A comes site B, usually at the same distance from
//! what A wrote. Writer and reader keep the same table and update it with every record; the tag of
//! a record says which guesses were right. The table starts empty in each block.

use rustc_hash::FxHashMap;

/// What came last time.
#[derive(Clone, Copy, Default)]
pub(crate) struct Guess {
    pub(crate) stack: u32,
    /// The distance from the end of the previous access of this thread to this pool.
    pub(crate) delta: u64,
}

const SLOT_BITS: u32 = 12;
const SLOTS: usize = 1 << SLOT_BITS;

/// What differs between threads.
#[derive(Clone, Copy, Default)]
pub(crate) struct ThreadState {
    /// The stack of the thread's last record.
    previous_stack: u32,
    /// The stack of the record before that.
    earlier_stack: u32,
    /// The pool that the thread uses now.
    pub(crate) pool: u32,
    /// Where its last access ended, for up to four pools.
    ends: [u64; 4],
}

impl ThreadState {
    /// Where the last access to the current pool ended.
    #[inline]
    pub(crate) fn end(&mut self) -> &mut u64 {
        &mut self.ends[(self.pool & 3) as usize]
    }
}

/// The state of both sides of the coding of one block.
pub(crate) struct Predictor {
    slots: Box<[Guess; SLOTS]>,
    /// The thread of the last record.
    pub(crate) thread: u32,
    /// Its state.
    pub(crate) state: ThreadState,
    /// The states of the other threads.
    others: FxHashMap<u32, ThreadState>,
    /// The last address of a flush outside of all pools.
    pub(crate) volatile_address: u64,
}

impl Predictor {
    #[allow(
        clippy::large_stack_arrays,
        reason = "64 KiB, and only in builds that do not optimise it away"
    )]
    pub(crate) fn new() -> Self {
        Self {
            slots: Box::new([Guess::default(); SLOTS]),
            thread: 0,
            state: ThreadState::default(),
            others: FxHashMap::default(),
            volatile_address: 0,
        }
    }

    /// Back to the state at the beginning of a block.
    pub(crate) fn reset(&mut self) {
        self.slots.fill(Guess::default());
        self.thread = 0;
        self.state = ThreadState::default();
        self.others.clear();
        self.volatile_address = 0;
    }

    /// What came last time after what this thread did last. The caller compares, then updates it.
    #[inline]
    pub(crate) fn guess(&mut self) -> &mut Guess {
        let context = self
            .state
            .previous_stack
            .wrapping_add(self.state.earlier_stack.wrapping_mul(0x85eb_ca6b));
        let slot = context.wrapping_mul(0x9e37_79b1) >> (32 - SLOT_BITS);
        &mut self.slots[slot as usize]
    }

    /// Remembers the stack of a record, after [`Self::guess`] was used for it.
    #[inline]
    pub(crate) fn advance(&mut self, stack: u32) {
        self.state.earlier_stack = self.state.previous_stack;
        self.state.previous_stack = stack;
    }

    /// The stack of the last record.
    #[inline]
    pub(crate) const fn previous_stack(&self) -> u32 {
        self.state.previous_stack
    }

    #[cold]
    pub(crate) fn switch_thread(&mut self, thread: u32) {
        self.others.insert(self.thread, self.state);
        self.thread = thread;
        self.state = self.others.get(&thread).copied().unwrap_or_default();
    }
}
