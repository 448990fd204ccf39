//! Leaves out what happens while a pool is being created.
//!
//! Creating a pool is not failure-atomic in PMDK, by design: a crash in the middle of it leaves a
//! file that does not open, which is not a bug of the program under test. The recorder marks where a
//! thread enters and leaves such a function. While any thread is inside, the half-made pool is there
//! for a crash of whatever thread, so all failure points of that time are left out.
//!
//! A creation that never ends leaves out nothing. Since its end is only known when it comes, what
//! failure points change meanwhile is journalled and taken back then.

use powerfail_model::ThreadIndex;
use powerfail_trace::StackId;
use rustc_hash::FxHashMap;

use crate::samples::Samples;

/// Takes back the failure points that were found while a pool was being created.
#[derive(Debug, Default)]
pub(crate) struct Creation {
    /// How deep each thread is inside of functions that create pools; never zero.
    depths: FxHashMap<ThreadIndex, u32>,
    /// What the samples of a stack were when the creation began.
    journal: FxHashMap<StackId, Option<Samples>>,
    points: u64,
    excluded: u64,
}

impl Creation {
    /// How many failure points were left out.
    pub(crate) const fn excluded(&self) -> u64 {
        self.excluded
    }

    /// Whether a pool is being created.
    pub(crate) fn is_going_on(&self) -> bool {
        !self.depths.is_empty()
    }

    pub(crate) fn begin(&mut self, thread: ThreadIndex) {
        *self.depths.entry(thread).or_default() += 1;
    }

    /// Ends the innermost creation of a thread; if it was the last one, takes back what `stacks`
    /// learned since the first began.
    pub(crate) fn end(&mut self, thread: ThreadIndex, stacks: &mut FxHashMap<StackId, Samples>) {
        let Some(depth) = self.depths.get_mut(&thread) else {
            return;
        };
        *depth -= 1;
        if *depth == 0 {
            self.depths.remove(&thread);
        }
        if !self.depths.is_empty() {
            return;
        }
        for (stack, samples) in self.journal.drain() {
            match samples {
                Some(samples) => stacks.insert(stack, samples),
                None => stacks.remove(&stack),
            };
        }
        self.excluded += std::mem::take(&mut self.points);
    }

    /// The thread is gone: what it was creating stays half-made, and nothing is left out.
    pub(crate) fn abandon(&mut self, thread: ThreadIndex) {
        if self.depths.remove(&thread).is_some() && self.depths.is_empty() {
            self.journal.clear();
            self.points = 0;
        }
    }

    /// Everything that is known of stacks is dropped: nothing is to be restored.
    pub(crate) fn forget(&mut self) {
        self.journal.clear();
        self.points = 0;
        self.excluded = 0;
    }

    /// A failure point is about to change what is known about a stack.
    pub(crate) fn note(&mut self, stack: StackId, stacks: &FxHashMap<StackId, Samples>) {
        if self.depths.is_empty() {
            return;
        }
        self.points += 1;
        self.journal
            .entry(stack)
            .or_insert_with(|| stacks.get(&stack).cloned());
    }
}
