//! What the target did with its input in an execution that was observed.

use powerfail_protocol::fuzz::{OPERAND_MAX, Observation as SharedObservation, ObservedKind};
use rustc_hash::FxHashSet;

/// One thing that the target did with something that may come from its input.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Observation {
    /// What it did.
    pub kind: ObservedKind,
    /// What may come from the input.
    pub text: Vec<u8>,
    /// What the program has: the other operand, delimiters, or a format.
    pub other: Vec<u8>,
}

impl Observation {
    /// The length of an observation in shared memory.
    pub(super) const LEN: usize = size_of::<SharedObservation>();

    /// Reads what the target has noted. The target may have overwritten it with anything.
    pub(super) fn read_all(bytes: &[u8]) -> Vec<Self> {
        let mut known = FxHashSet::default();
        let notes = bytes.chunks_exact(Self::LEN).filter_map(Self::read);
        notes.filter(|note| known.insert(note.clone())).collect()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (head, operands) = bytes.split_at(Self::LEN - 2 * OPERAND_MAX);
        let (text, other) = operands.split_at(OPERAND_MAX);
        let operand = |bytes: &[u8], len: u8| bytes[..usize::from(len).min(OPERAND_MAX)].to_vec();
        Some(Self {
            kind: ObservedKind::from_number(head[0])?,
            text: operand(text, head[1]),
            other: operand(other, head[2]),
        })
    }
}
