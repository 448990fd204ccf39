//! Mutations of inputs.

use xtask::random::Random;

/// Pieces that readers of text and of numbers find hard.
const PIECES: [&[u8]; 16] = [
    b"../",
    b"/",
    b"/etc/passwd",
    b"..",
    b"\0",
    b"-1",
    b"18446744073709551615",
    b"1e999",
    b"0x",
    b"{",
    b"]",
    b"\"",
    b"null",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x80\x80\x80\x80\x80\x01",
    b"\xf0\x9f",
];

/// One to eight changes of an input.
pub(crate) fn mutated(input: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=random.below(7) {
        change(&mut bytes, random);
    }
    bytes
}

fn change(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len() as u64 + 1) as usize;
    let end = (at + random.below(17) as usize).min(bytes.len());
    match random.below(8) {
        0..=2 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
        3 if at < bytes.len() => bytes[at] = random.next() as u8,
        4 => drop(bytes.drain(at..end)),
        5 => {
            let copy = bytes[at..end].to_vec();
            let to = random.below(bytes.len() as u64 + 1) as usize;
            bytes.splice(to..to, copy);
        }
        6 if random.below(8) == 0 => bytes.truncate(at),
        _ => {
            let end = *random.one_of(&[at, end]);
            bytes.splice(at..end, random.one_of(&PIECES).iter().copied());
        }
    }
}
