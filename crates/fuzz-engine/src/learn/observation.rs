//! What a program did with something that may come from its input.

pub(super) use powerfail_protocol::fuzz::ObservedKind;

/// One thing that a program did with something that may come from its input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// What it did.
    pub kind: ObservedKind,
    /// What may come from the input.
    pub text: Vec<u8>,
    /// What the program has: the other operand, delimiters, or a format.
    pub other: Vec<u8>,
}

/// An operand up to its first zero.
pub(super) fn string_of(operand: &[u8]) -> &[u8] {
    let end = operand.iter().position(|byte| *byte == 0);
    &operand[..end.unwrap_or(operand.len())]
}

/// Where a part occurs in an input first.
pub(super) fn find(input: &[u8], part: &[u8]) -> Option<usize> {
    if part.is_empty() {
        return None;
    }
    input.windows(part.len()).position(|window| window == part)
}
