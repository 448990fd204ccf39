//! Grammars of inputs.

/// A grammar.
#[derive(Debug)]
pub struct Grammar {}
