//! The block of memory at a thread's GS base.

use core::mem::offset_of;

/// Number of scratch slots of a thread.
pub const SCRATCH_SLOTS: usize = 43;

/// The state of one recorded thread. Emitted code reaches it as `gs:[offset]`; so it needs no free
/// register to begin with and never touches the target's stack or its red zone.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct ThreadBlock {
    /// Address of this block.
    pub self_address: u64,
    /// Where the next record of this thread begins. Only ever moved by `xadd` or, with signals
    /// blocked, by the refill function. Behind the end of its chunk if a reservation failed: only
    /// then the refill function has anything to do.
    pub cursor: u64,
    /// Where emitted code jumps (not calls) if the chunk is full: the stub that saves the machine
    /// state, changes to the slow stack and calls `refill_function`.
    pub refill_entry: u64,
    /// `extern "C" fn(block: *mut ThreadBlock)`, called by the stub.
    pub refill_function: u64,
    /// Top of the stack that the stub changes to. Aligned to 64 bytes.
    pub slow_stack_top: u64,
    /// [`crate::PROTOCOL_VERSION`] of the code that created the block.
    pub protocol_version: u32,
    /// Number of the thread in its trace.
    pub thread_index: u32,
    /// How many handlers of the target are active on this thread.
    pub signal_depth: u32,
    /// Not zero if the thread has flushed or stored non-temporally since its last recorded fence:
    /// only then a locked operation on volatile memory means anything. Emitted code keeps it; the
    /// runtime sets it when it emulates such an operation.
    pub pending: u32,
    /// Where the table of known call stacks begins: see [`crate::stack`].
    pub stack_table: u64,
    /// Where the table of [`crate::store_lock`] begins.
    pub store_locks: u64,
    /// Not zero: other threads or processes may store to the same pools, so stores take a [`crate::store_lock`].
    pub is_shared: u32,
    /// The stamp that the thread has taken last from the [`crate::clock`]. While `is_shared` is zero, it is that of all
    /// records: those of a thread that is alone have the order of their places. The runtime takes a new one whenever it works for
    /// the thread: so stamps never decrease, and what the host does for the thread has its place among them. Zero: the
    /// thread takes one for each record.
    pub stamp: u64,
    /// Where the [`crate::clock`] is.
    pub clock: u64,
    /// What emitted code saves: see [`ScratchSlot`]. Saved and restored around handlers of the target.
    pub scratch: [u64; SCRATCH_SLOTS],
}

/// The scratch slots. The general-purpose registers come first, in the order of their numbers in
/// machine code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScratchSlot {
    /// The target's value of the general-purpose register of this number (0 to 15).
    Register(u8),
    /// The target's flags before the operation: AH as of `lahf`, AL as of `seto`.
    Flags,
    /// The target's flags after the operation.
    FlagsOut,
    /// RAX after the operation.
    RaxOut,
    /// RDX after the operation.
    RdxOut,
    /// The stamp of the record being made.
    Stamp,
    /// Where the refill stub continues.
    Resume,
    /// What an atomic operation found in memory: low part.
    Old,
    /// High part.
    OldHigh,
    /// First of three that string operations use.
    String(u8),
    /// The call stack of the record being made.
    Stack,
    /// Not zero: a call stack that is not in the table is requested; the site, plus one.
    StackSite,
    /// The address of the site whose call stack is requested.
    StackPc,
    /// What the runtime makes a record for, outside of emitted code: first of three.
    Origin(u8),
    /// Not zero: the thread asks whether it is its turn, before what [`turn`] names.
    Turn,
    /// Not zero: the thread makes a client request; its site, plus one. Its words are where the slot of
    /// RAX says, its default is in the slot of RDX, its address in [`ScratchSlot::StackPc`], its call stack, if
    /// wanted, in [`ScratchSlot::Stack`]; the runtime writes the result to [`ScratchSlot::RdxOut`].
    Request,
    /// The lock that the store of the record being made takes: see [`crate::store_lock`].
    Lock,
    /// Not zero: the second one that it takes.
    SecondLock,
    /// Not zero: the thread waits for the lock.
    LockWait,
}

/// What a thread asks for its turn for: values of [`ScratchSlot::Turn`].
pub mod turn {
    /// It is about to make a record.
    pub const RECORD: u64 = 1;
    /// It is about to read from a pool.
    pub const READ: u64 = 2;
}

impl ScratchSlot {
    /// Its index in [`ThreadBlock::scratch`].
    pub const fn index(self) -> usize {
        match self {
            Self::Register(number) => (number & 15) as usize,
            Self::Flags => 16,
            Self::FlagsOut => 17,
            Self::RaxOut => 18,
            Self::RdxOut => 19,
            Self::Stamp => 20,
            Self::Resume => 21,
            Self::Old => 22,
            Self::OldHigh => 23,
            Self::String(number) => 24 + (number & 7) as usize,
            Self::Stack => 32,
            Self::StackSite => 33,
            Self::StackPc => 34,
            Self::Origin(number) => 35 + (number % 3) as usize,
            Self::Turn => 38,
            Self::Request => 39,
            Self::Lock => 40,
            Self::SecondLock => 41,
            Self::LockWait => 42,
        }
    }

    /// Its offset from the GS base.
    pub const fn offset(self) -> u32 {
        (offset_of!(ThreadBlock, scratch) + 8 * self.index()) as u32
    }
}

/// Offsets of the fields of [`ThreadBlock`] from the GS base.
pub mod offset {
    use super::{ThreadBlock, offset_of};

    /// Of [`ThreadBlock::self_address`].
    pub const SELF_ADDRESS: u32 = offset_of!(ThreadBlock, self_address) as u32;
    /// Of [`ThreadBlock::cursor`].
    pub const CURSOR: u32 = offset_of!(ThreadBlock, cursor) as u32;
    /// Of [`ThreadBlock::refill_entry`].
    pub const REFILL_ENTRY: u32 = offset_of!(ThreadBlock, refill_entry) as u32;
    /// Of [`ThreadBlock::refill_function`].
    pub const REFILL_FUNCTION: u32 = offset_of!(ThreadBlock, refill_function) as u32;
    /// Of [`ThreadBlock::slow_stack_top`].
    pub const SLOW_STACK_TOP: u32 = offset_of!(ThreadBlock, slow_stack_top) as u32;
    /// Of [`ThreadBlock::stack_table`].
    pub const STACK_TABLE: u32 = offset_of!(ThreadBlock, stack_table) as u32;
    /// Of [`ThreadBlock::store_locks`].
    pub const STORE_LOCKS: u32 = offset_of!(ThreadBlock, store_locks) as u32;
    /// Of [`ThreadBlock::is_shared`].
    pub const IS_SHARED: u32 = offset_of!(ThreadBlock, is_shared) as u32;
    /// Of [`ThreadBlock::stamp`].
    pub const STAMP: u32 = offset_of!(ThreadBlock, stamp) as u32;
    /// Of [`ThreadBlock::clock`].
    pub const CLOCK: u32 = offset_of!(ThreadBlock, clock) as u32;
    /// Of [`ThreadBlock::pending`].
    pub const PENDING: u32 = offset_of!(ThreadBlock, pending) as u32;
}

#[cfg(test)]
mod tests {
    use super::{SCRATCH_SLOTS, ScratchSlot, ThreadBlock};

    #[test]
    fn slots_are_distinct_and_inside() {
        let others = [
            ScratchSlot::Flags,
            ScratchSlot::FlagsOut,
            ScratchSlot::RaxOut,
            ScratchSlot::RdxOut,
            ScratchSlot::Stamp,
            ScratchSlot::Resume,
            ScratchSlot::Old,
            ScratchSlot::OldHigh,
            ScratchSlot::Stack,
            ScratchSlot::StackSite,
            ScratchSlot::StackPc,
            ScratchSlot::Origin(0),
            ScratchSlot::Origin(1),
            ScratchSlot::Origin(2),
            ScratchSlot::Turn,
            ScratchSlot::Request,
            ScratchSlot::Lock,
            ScratchSlot::SecondLock,
            ScratchSlot::LockWait,
        ];
        let mut seen = [false; SCRATCH_SLOTS];
        let all = (0..16)
            .map(ScratchSlot::Register)
            .chain(others)
            .chain((0..8).map(ScratchSlot::String));
        for slot in all {
            assert!(!seen[slot.index()], "{slot:?}");
            seen[slot.index()] = true;
            assert!((slot.offset() as usize) < size_of::<ThreadBlock>());
        }
        assert_eq!(seen.iter().filter(|used| **used).count(), SCRATCH_SLOTS);
    }
}
