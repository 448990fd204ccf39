//! What an event block holds: records, in the order in which stores reached memory.

use powerfail_model::files::NodeId;
use powerfail_model::{Event, EventIndex, FlushKind, PoolIndex, Step, ThreadIndex};

use crate::annotation::Annotation;
use crate::definition::StackId;
use crate::file::FileOperation;

/// One thing that happened, with its place in the recorded order, its thread and its call stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its place in the recorded order: records are numbered densely from zero.
    pub index: EventIndex,
    /// The thread that caused it.
    pub thread: ThreadIndex,
    /// The call stack; its innermost frame is the site.
    pub stack: StackId,
    /// What happened.
    pub body: Body<'a>,
}

impl<'a> Record<'a> {
    /// The record as a step of the model, if it is an event on persistent memory.
    pub const fn step(&self) -> Option<Step<'a>> {
        match self.body {
            Body::Pm(event) => Some(Step {
                index: self.index,
                thread: self.thread,
                event,
            }),
            _ => None,
        }
    }
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// An event on persistent memory.
    Pm(Event<'a>),
    /// Something that the program said or did that is no PM event but has a place among them.
    Mark(Mark<'a>),
    /// A flush instruction whose address lies in no pool.
    VolatileFlush {
        /// The instruction.
        kind: FlushKind,
        /// The address in the target.
        address: u64,
    },
    /// An operation on the files of a tree.
    File(FileOperation<'a>),
    /// A file of a tree is mapped as a pool: from here on, what happens to the pool happens to the file.
    Mapped {
        /// The pool.
        pool: PoolIndex,
        /// The file.
        node: NodeId,
    },
    /// The record's thread began.
    ThreadStart,
    /// The record's thread ended.
    ThreadEnd,
}

/// A mark: a moment that the program or the recorder wants to be found again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark<'a> {
    /// What it marks.
    pub kind: MarkKind,
    /// A number whose meaning depends on the kind: an operation's number, an annotation's argument.
    pub value: u64,
    /// Bytes whose meaning depends on the kind. At most [`MAX_PAYLOAD_BYTES`].
    ///
    /// [`MAX_PAYLOAD_BYTES`]: crate::MAX_PAYLOAD_BYTES
    pub payload: &'a [u8],
}

/// What a mark marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MarkKind {
    /// The program wrote to a file descriptor that is not a pool; the payload is a prefix of it.
    Output {
        /// The file descriptor.
        fd: i32,
        /// How many bytes the program wrote.
        full_len_bytes: u64,
    },
    /// An annotation in the program.
    Annotation(Annotation),
    /// An operation of the workload begins.
    OperationBegin,
    /// An operation of the workload is complete.
    OperationEnd,
}
