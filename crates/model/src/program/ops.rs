//! What a litmus program consists of.

use crate::event::{FenceKind, FlushKind};

/// A variable of the program: an index into [`Program::lines`] and [`Program::initial`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VariableId(pub usize);

/// A register of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegisterId(pub usize);

/// A value that an operation uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A constant.
    Number(i64),
    /// What a load or a locked operation of the same thread has read before.
    Register(RegisterId),
}

/// One operation of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// An ordinary store.
    Store(VariableId, Operand),
    /// A non-temporal store.
    NonTemporalStore(VariableId, Operand),
    /// A load into a register.
    Load(VariableId, RegisterId),
    /// A flush of the variable's line.
    Flush(FlushKind, VariableId),
    /// sfence or mfence. [`FenceKind::Locked`] is a full fence, too.
    Fence(FenceKind),
    /// A locked fetch-and-add; the register gets the old value.
    Add(VariableId, Operand, RegisterId),
    /// A locked compare-and-swap: variable, expected, new value; the register gets the old value.
    CompareAndSwap(VariableId, Operand, Operand, RegisterId),
}

impl Op {
    /// The variable it reads from the cache or from its own buffer.
    pub(super) fn reads(self) -> Option<VariableId> {
        match self {
            Self::Load(variable, _)
            | Self::Add(variable, ..)
            | Self::CompareAndSwap(variable, ..) => Some(variable),
            _ => None,
        }
    }

    /// The variable it may write.
    pub(super) fn writes(self) -> Option<VariableId> {
        match self {
            Self::Store(variable, _)
            | Self::NonTemporalStore(variable, _)
            | Self::Add(variable, ..)
            | Self::CompareAndSwap(variable, ..) => Some(variable),
            _ => None,
        }
    }

    /// The variable whose line it concerns.
    pub(super) fn touches(self) -> Option<VariableId> {
        match self {
            Self::Flush(_, variable) => Some(variable),
            _ => self.reads().or(self.writes()),
        }
    }

    /// The registers it uses.
    pub(super) fn uses(self) -> impl Iterator<Item = RegisterId> {
        let (first, second) = match self {
            Self::Store(_, value) | Self::NonTemporalStore(_, value) | Self::Add(_, value, _) => {
                (Some(value), None)
            }
            Self::CompareAndSwap(_, expected, new, _) => (Some(expected), Some(new)),
            Self::Load(..) | Self::Flush(..) | Self::Fence(_) => (None, None),
        };
        [first, second]
            .into_iter()
            .flatten()
            .filter_map(|operand| match operand {
                Operand::Register(register) => Some(register),
                Operand::Number(_) => None,
            })
    }

    /// Whether it waits in the thread's buffer, rather than taking effect when it executes.
    pub(super) fn is_buffered(self) -> bool {
        matches!(
            self,
            Self::Store(..)
                | Self::NonTemporalStore(..)
                | Self::Flush(..)
                | Self::Fence(FenceKind::Sfence)
        )
    }

    /// Whether everything before it in its thread leaves the buffer before it is complete.
    pub(super) fn is_fence(self) -> bool {
        matches!(
            self,
            Self::Fence(_) | Self::Add(..) | Self::CompareAndSwap(..)
        )
    }
}

/// The operations of one thread and how many registers it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadCode {
    /// At most [`Program::OPS_PER_THREAD_MAX`] of them.
    pub ops: Vec<Op>,
    /// Registers are numbered from 0; each is assigned at most once.
    pub register_count: usize,
}

/// A litmus program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// For each variable, the line it lies in. Lines are numbered from 0 without gaps.
    pub lines: Vec<usize>,
    /// For each variable, its value before the program starts; it is durable.
    pub initial: Vec<i64>,
    /// The threads.
    pub threads: Vec<ThreadCode>,
}

impl Program {
    /// A thread's buffer is a word of bits.
    pub const OPS_PER_THREAD_MAX: usize = 64;

    pub(super) fn line_of(&self, variable: VariableId) -> usize {
        self.lines[variable.0]
    }
}

/// When the power may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CrashMoment {
    /// At any moment, from before the first operation to after the last.
    Any,
    /// When every operation has executed and every store, clflush and sfence has left its buffer.
    End,
}

/// How non-temporal stores behave; the manuals leave room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NonTemporal {
    /// Visible and durable in one step; may overtake older stores to other lines.
    #[default]
    Weak,
    /// Never overtakes an older store or clflush, as in known implementations.
    InOrder,
    /// Visible first, surely durable only after the thread's next fence.
    DurableAtFence,
}

/// Whether `older` must leave the buffer before `newer` of the same thread.
pub(super) fn keeps_order(
    older: Op,
    newer: Op,
    same_line: bool,
    non_temporal: NonTemporal,
) -> bool {
    use FlushKind::Clflush;
    use Op::{Fence, Flush, NonTemporalStore, Store};
    let in_order = non_temporal == NonTemporal::InOrder;
    match (older, newer) {
        (Fence(_), _)
        | (_, Fence(_))
        | (Store(..) | Flush(Clflush, _), Store(..) | Flush(Clflush, _)) => true,
        (Store(..) | Flush(Clflush, _), NonTemporalStore(..)) => in_order || same_line,
        // A weakly ordered flush waits for its line; nothing but fences and clflush waits for it.
        (Flush(..), Store(..) | NonTemporalStore(..)) => false,
        (Flush(kind, _), Flush(newer, _)) => (kind == Clflush || newer == Clflush) && same_line,
        (Store(..) | NonTemporalStore(..), _) => same_line,
        // What is not buffered executes in order and never meets an entry behind it.
        _ => true,
    }
}
