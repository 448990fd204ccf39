//! Digests of contents.

use powerfail_protocol::random::mix;

/// 64 bits that depend on every byte and its place.
pub(crate) fn hash_bytes(bytes: &[u8]) -> u64 {
    fold(bytes, 0x243f_6a88_85a3_08d3)
}

/// 128 bits, because the bytes themselves are never compared.
pub(crate) fn digest_bytes(bytes: &[u8]) -> u128 {
    let high = fold(bytes, 0x1319_8a2e_0370_7344);
    u128::from(high) << 64 | u128::from(hash_bytes(bytes))
}

fn fold(bytes: &[u8], start: u64) -> u64 {
    let mut state = mix(start ^ bytes.len() as u64);
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        state = mix(state.rotate_left(5) ^ u64::from_le_bytes(word));
    }
    state
}
