//! Reproducible pseudorandom numbers: `SplitMix64`, fast and good enough for workloads.

/// A generator with a seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator that belongs to a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any 64 bits.
    pub const fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.word() % bound
    }

    /// True in `percent` of 100 cases.
    pub const fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
