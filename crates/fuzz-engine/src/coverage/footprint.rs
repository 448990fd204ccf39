//! The coverage of one run, small enough to be kept for each test case and sent to other workers.

use powerfail_fuzz_store::varint::{put, take};
use thiserror::Error;

/// A location and the bucket of its counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Touched {
    /// Index in the map.
    pub location: u32,
    /// Its bucket: one bit.
    pub bucket: u8,
}

/// The coverage of a run, in ascending order of locations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Footprint {
    /// PM path locations.
    pub pm: Vec<Touched>,
    /// Branches.
    pub branches: Vec<Touched>,
}

/// Bytes are not a footprint.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("not a footprint of a run")]
pub struct FootprintError;

impl Footprint {
    /// Packs it into bytes: one or two for each location.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(8 + 2 * (self.pm.len() + self.branches.len()));
        for map in [&self.pm, &self.branches] {
            put(&mut bytes, map.len() as u64);
            let mut next = 0;
            for touched in map {
                let gap = u64::from(touched.location) - next;
                put(
                    &mut bytes,
                    gap << 3 | u64::from(touched.bucket.trailing_zeros() & 7),
                );
                next = u64::from(touched.location) + 1;
            }
        }
        bytes
    }

    /// What [`Footprint::to_bytes`] has packed.
    ///
    /// # Errors
    /// The bytes are something else.
    pub fn from_bytes(mut bytes: &[u8]) -> Result<Self, FootprintError> {
        let footprint = Self {
            pm: unpack(&mut bytes)?,
            branches: unpack(&mut bytes)?,
        };
        if bytes.is_empty() {
            Ok(footprint)
        } else {
            Err(FootprintError)
        }
    }
}

fn unpack(bytes: &mut &[u8]) -> Result<Vec<Touched>, FootprintError> {
    let count = take(bytes).ok_or(FootprintError)?;
    // Each takes at least one byte; a higher count is invalid.
    if count > bytes.len() as u64 {
        return Err(FootprintError);
    }
    let mut next = 0_u64;
    (0..count)
        .map(|_| {
            let packed = take(bytes).ok_or(FootprintError)?;
            let location = u32::try_from(next + (packed >> 3)).map_err(|_| FootprintError)?;
            next = u64::from(location) + 1;
            Ok(Touched {
                location,
                bucket: 1 << (packed & 7),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touched(list: &[(u32, u8)]) -> Vec<Touched> {
        list.iter()
            .map(|&(location, bucket)| Touched { location, bucket })
            .collect()
    }

    #[test]
    fn packed_footprints_come_back() {
        let footprint = Footprint {
            pm: touched(&[(0, 1), (1, 128), (17, 4), (300, 2), (65_535, 64)]),
            branches: touched(&[(u32::MAX, 32)]),
        };
        let bytes = footprint.to_bytes();
        assert_eq!(Footprint::from_bytes(&bytes), Ok(footprint));
        for cut in 0..bytes.len() {
            assert_eq!(
                Footprint::from_bytes(&bytes[..cut]),
                Err(FootprintError),
                "cut at {cut}"
            );
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        assert_eq!(Footprint::from_bytes(&longer), Err(FootprintError));
    }
}
