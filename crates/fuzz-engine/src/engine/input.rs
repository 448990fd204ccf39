//! The input type for `LibAFL`: bytes that are mutated, and an image that stays.

use std::ops::RangeBounds;
use std::vec::{Drain, Splice};

use libafl::inputs::{HasMutatorBytes, Input, ResizableMutator};
use libafl_bolts::HasLen;
use serde::{Deserialize, Serialize};

/// Number of an image in the engine.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub(crate) struct ImageNumber(pub(crate) u32);

/// An input on an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct CaseInput {
    pub(crate) image: ImageNumber,
    pub(crate) bytes: Vec<u8>,
}

impl Input for CaseInput {}

impl HasLen for CaseInput {
    fn len(&self) -> usize {
        self.bytes.len()
    }
}

impl HasMutatorBytes for CaseInput {
    fn mutator_bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn mutator_bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl ResizableMutator<u8> for CaseInput {
    fn resize(&mut self, new_len: usize, value: u8) {
        self.bytes.resize(new_len, value);
    }

    fn extend<'a, I: IntoIterator<Item = &'a u8>>(&mut self, iter: I) {
        Extend::extend(&mut self.bytes, iter);
    }

    fn splice<R, I>(&mut self, range: R, replace_with: I) -> Splice<'_, I::IntoIter>
    where
        R: RangeBounds<usize>,
        I: IntoIterator<Item = u8>,
    {
        self.bytes.splice(range, replace_with)
    }

    fn drain<R>(&mut self, range: R) -> Drain<'_, u8>
    where
        R: RangeBounds<usize>,
    {
        self.bytes.drain(range)
    }
}
