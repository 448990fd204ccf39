//! A small random number generator, so that a failure can be reproduced from its seed.

/// The generator, and what the tests draw with it.
#[derive(Clone, Debug)]
pub(crate) struct Random(powerfail_protocol::random::Random);

impl Random {
    /// The generator that belongs to a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(powerfail_protocol::random::Random::new(seed))
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0.word()
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0.below(limit)
    }

    /// True once in `times`.
    pub(crate) fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of these.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// Fills with random bytes.
    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for piece in bytes.chunks_mut(8) {
            let value = self.next().to_le_bytes();
            piece.copy_from_slice(&value[..piece.len()]);
        }
    }
}
