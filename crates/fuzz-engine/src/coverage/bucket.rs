//! Buckets of counters, those of AFL: 1, 2, 3, 4 to 7, 8 to 15, 16 to 31, 32 to 127, 128 and more. Each is
//! a bit, so that a byte holds all the buckets that were ever seen at a location.

const BUCKETS: [u8; 256] = {
    let mut buckets = [0; 256];
    let mut count = 1;
    while count < 256 {
        buckets[count] = match count {
            1 => 1,
            2 => 2,
            3 => 4,
            4..=7 => 8,
            8..=15 => 16,
            16..=31 => 32,
            32..=127 => 64,
            _ => 128,
        };
        count += 1;
    }
    buckets
};

/// The bucket of a counter: one bit, or none for zero.
#[must_use]
pub const fn bucket(count: u8) -> u8 {
    BUCKETS[count as usize]
}

/// The buckets of eight counters.
pub(super) fn buckets(word: u64) -> u64 {
    u64::from_le_bytes(word.to_le_bytes().map(bucket))
}
