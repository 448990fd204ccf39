//! Numbers that are worth trying.

use super::dice::Dice;

/// The ends of common ranges.
const EDGES: [u64; 16] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x7fff,
    0x8000,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0x7fff_ffff_ffff_ffff,
    u64::MAX,
];

/// Steps between keys: neighbours, buckets of hash tables, bits of radix trees.
const STRIDES: [u64; 12] = [2, 3, 4, 7, 8, 10, 16, 64, 100, 256, 1000, 65_536];

/// A replacement for a number in an input with these numbers.
pub(crate) fn change(value: u64, others: &[u64], dice: &mut Dice<'_>) -> u64 {
    match dice.weighted(&[20, 10, 5, 15, 15, 8, 4, 20, 3]) {
        0 if dice.one_in(2) => value.wrapping_add(1),
        0 => value.saturating_sub(1),
        1 => {
            let distance = dice.between(1, 16) as u64;
            if dice.one_in(2) {
                value.wrapping_add(distance)
            } else {
                value.saturating_sub(distance)
            }
        }
        2 if dice.one_in(2) => value.wrapping_mul(2),
        2 => value / 2,
        3 => dice.below(33) as u64,
        4 => dice.below(1000) as u64,
        5 => (1_u64 << dice.below(24))
            .wrapping_add(dice.below(3) as u64)
            .saturating_sub(1),
        6 => dice.pick(&EDGES).copied().unwrap_or(value),
        7 => dice.pick(others).copied().unwrap_or(value),
        _ => dice.bits() >> dice.below(64),
    }
}

/// An argument of a command: often a number that was used before, because most commands do something only to keys that
/// exist; else a small number, and sometimes the end of a range.
pub(crate) fn argument(keys: &[u64], dice: &mut Dice<'_>) -> u64 {
    if dice.percent(60)
        && let Some(key) = dice.pick(keys)
    {
        return *key;
    }
    if dice.one_in(32) {
        return dice.pick(&EDGES).copied().unwrap_or(0);
    }
    let most = [8, 64, 300][dice.below(3)];
    dice.below(most) as u64
}

/// Numbers for the lines of a block.
pub(crate) fn series(first: u64, count: usize, dice: &mut Dice<'_>) -> Vec<u64> {
    let len = count as u64;
    let start = match dice.below(5) {
        0 => 0,
        1 => 1,
        2 => dice.below(100) as u64,
        _ => first,
    };
    match dice.weighted(&[45, 15, 10, 15, 15]) {
        0 => (0..len).map(|at| start.wrapping_add(at)).collect(),
        1 => (0..len).rev().map(|at| start.wrapping_add(at)).collect(),
        2 => {
            let mut numbers: Vec<u64> = (0..len).map(|at| start.wrapping_add(at)).collect();
            dice.shuffle(&mut numbers);
            numbers
        }
        3 => {
            let stride = dice.pick(&STRIDES).copied().unwrap_or(1);
            (0..len)
                .map(|at| start.wrapping_add(at.wrapping_mul(stride)))
                .collect()
        }
        _ => {
            let range = count << dice.between(1, 12);
            (0..count).map(|_| dice.below(range) as u64).collect()
        }
    }
}

/// The number of lines of a block: often few, sometimes enough to fill nodes and tables.
pub(crate) fn block_len(dice: &mut Dice<'_>) -> usize {
    match dice.weighted(&[60, 32, 8]) {
        0 => dice.between(2, 9),
        1 => dice.between(8, 40),
        _ => dice.between(40, 300),
    }
}
