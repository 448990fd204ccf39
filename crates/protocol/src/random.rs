//! Reproducible numbers that look random: `SplitMix64`. Sampling needs no more, and the same seed must give the same
//! schedules and failure points on every machine and in every version.

/// A generator with a seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator that belongs to a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The generator of one of many independent streams of a seed.
    pub const fn stream(seed: u64, stream: u64) -> Self {
        Self(mix(seed ^ mix(stream.wrapping_add(GOLDEN))))
    }

    /// Any 64 bits.
    pub const fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// A number below `bound`, which is not zero. By multiplication, whose bias is below one in
    /// `2^64 / bound`.
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.word() as u128 * bound as u128) >> 64) as u64
    }
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A bijection of 64 bits in which every bit of the input changes half of the output.
pub const fn mix(word: u64) -> u64 {
    let mut z = word;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_published_generator() {
        // The first three outputs of SplitMix64 for seed 1234567, as published with it.
        let mut random = Random::new(1_234_567);
        assert_eq!(random.word(), 6_457_827_717_110_365_317);
        assert_eq!(random.word(), 3_203_168_211_198_807_973);
        assert_eq!(random.word(), 9_817_491_932_198_370_423);
    }

    #[test]
    fn numbers_below_a_bound_reach_all_of_them() {
        let mut random = Random::stream(1, 2);
        let mut seen = [0; 7];
        for _ in 0..700 {
            seen[random.below(7) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| count > 50), "{seen:?}");
    }
}
