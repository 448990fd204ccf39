//! Where a jump can lead whose bytes are partly given.

/// First byte of a jump with a 32-bit displacement.
pub(super) const JUMP: u8 = 0xe9;
/// First byte of a jump with an 8-bit displacement.
pub(super) const SHORT_JUMP: u8 = 0xeb;
/// Length of the displacement.
pub(super) const DISPLACEMENT_LEN: usize = 4;

/// Lowest and highest address of a trampoline.
const LOWEST: i128 = 0x1_0000;
const HIGHEST: i128 = 0x7fff_ffff_0000;

/// Addresses where a trampoline may begin: `first`, `first + stride`, ... up to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Targets {
    /// The lowest.
    pub first: u64,
    /// No address is higher.
    pub last: u64,
    /// From one to the next. A power of two.
    pub stride: u64,
}

impl Targets {
    /// Whether an address is one of them.
    pub fn contains(&self, address: u64) -> bool {
        self.first <= address
            && address <= self.last
            && (address - self.first).is_multiple_of(self.stride)
    }

    /// The lowest of them that is not below an address.
    pub fn at_or_above(&self, address: u64) -> Option<u64> {
        let steps = address.saturating_sub(self.first).div_ceil(self.stride);
        let target = self.first.checked_add(steps.checked_mul(self.stride)?)?;
        (target <= self.last).then_some(target)
    }
}

/// A displacement of which some bytes are given, lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Displacement(pub(super) [Option<u8>; DISPLACEMENT_LEN]);

impl Displacement {
    /// Where a jump that ends at `end` can lead. The free bytes must be adjacent, with given ones
    /// below and above or none; if they are not, the highest run of them is used and the others are
    /// zero.
    pub(super) fn targets(self, end: u64) -> Option<Targets> {
        let mut bytes = self.0;
        let highest_free = bytes.iter().rposition(Option::is_none);
        let mut lowest_free = highest_free;
        while let Some(below) = lowest_free.and_then(|lowest| lowest.checked_sub(1)) {
            if bytes[below].is_some() {
                break;
            }
            lowest_free = Some(below);
        }
        if let Some(lowest) = lowest_free {
            for byte in &mut bytes[..lowest] {
                byte.get_or_insert(0);
            }
        }
        let with = |free: u8| i32::from_le_bytes(bytes.map(|byte| byte.unwrap_or(free)));
        let stride = 1u64 << (8 * lowest_free.unwrap_or(0));
        let end = i128::from(end);
        // A free highest byte is the sign too: then the values run from the most negative one.
        let (low, high) = if bytes[3].is_none() {
            let sign = 0x8000_0000u32.cast_signed();
            (with(0) | sign, with(0xff) & !sign)
        } else {
            (with(0), with(0xff))
        };
        let stride_wide = i128::from(stride);
        let mut first = end + i128::from(low);
        if first < LOWEST {
            first += (LOWEST - first + stride_wide - 1) / stride_wide * stride_wide;
        }
        let last = (end + i128::from(high)).min(HIGHEST);
        let (first, last) = (u64::try_from(first).ok()?, u64::try_from(last).ok()?);
        (first <= last).then_some(Targets {
            first,
            last,
            stride,
        })
    }
}

/// The displacement bytes of a jump that ends at `end`.
pub(super) fn displacement(end: u64, target: u64) -> [u8; DISPLACEMENT_LEN] {
    (target.wrapping_sub(end) as u32).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::{Displacement, Targets};

    #[test]
    fn all_free() {
        let targets = Displacement([None; 4]).targets(0x5555_0000_0000).unwrap();
        let reach = 0x8000_0000;
        assert_eq!(
            targets,
            Targets {
                first: 0x5555_0000_0000 - reach,
                last: 0x5555_0000_0000 + reach - 1,
                stride: 1
            }
        );
        // Below the lowest address there is nothing.
        let low = Displacement([None; 4]).targets(0x40_0000).unwrap();
        assert_eq!(low.first, 0x1_0000);
    }

    #[test]
    fn top_given() {
        let targets = Displacement([None, None, Some(0x12), Some(0xff)])
            .targets(0x5555_0000_0000)
            .unwrap();
        assert_eq!(targets.first, 0x5555_0000_0000 - 0xee_0000);
        assert_eq!(targets.last, targets.first + 0xffff);
        assert_eq!(targets.stride, 1);
        assert_eq!(
            Displacement([None, None, None, Some(0x80)]).targets(0x40_0000),
            None
        );
    }

    #[test]
    fn bottom_given() {
        let targets = Displacement([Some(0x34), None, None, Some(0)])
            .targets(0x1_0000_0000)
            .unwrap();
        assert_eq!(
            targets,
            Targets {
                first: 0x1_0000_0034,
                last: 0x1_00ff_ff34,
                stride: 256
            }
        );
        assert_eq!(targets.at_or_above(0x1_0000_0035), Some(0x1_0000_0134));
        assert_eq!(targets.at_or_above(0x1_00ff_ff35), None);
        assert!(targets.contains(0x1_0000_0134) && !targets.contains(0x1_0000_0135));
        let top_free = Displacement([Some(1), Some(0), Some(0), None])
            .targets(0x1_0000_0000)
            .unwrap();
        assert_eq!(
            top_free,
            Targets {
                first: 0x8000_0001,
                last: 0x1_7f00_0001,
                stride: 1 << 24
            }
        );
    }

    #[test]
    fn all_given() {
        let targets = Displacement([Some(1), Some(2), Some(3), Some(4)])
            .targets(0x1000_0000)
            .unwrap();
        assert_eq!(
            targets,
            Targets {
                first: 0x1403_0201,
                last: 0x1403_0201,
                stride: 1
            }
        );
    }
}
