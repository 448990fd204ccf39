//! The buckets of counters, looked up eight at a time.

use powerfail_protocol::fuzz::bucket;

/// The bucket of each counter. A byte can hold all the buckets that were ever seen at a location: each is a bit.
const BUCKETS: [u8; 256] = {
    let mut buckets = [0; 256];
    let mut count = 0;
    while count < 256 {
        buckets[count] = bucket(count as u8);
        count += 1;
    }
    buckets
};

/// The buckets of eight counters.
pub(super) fn buckets(word: u64) -> u64 {
    u64::from_le_bytes(word.to_le_bytes().map(|count| BUCKETS[usize::from(count)]))
}
