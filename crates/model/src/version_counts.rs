//! The number of crash states, kept as its factors: how many lines have how many versions.

use num_bigint::BigUint;

/// A histogram of the version counts of all open lines.
///
/// Following one line from one count to the next is an addition and a subtraction; the product,
/// a number with hundreds of digits, is computed only when someone asks.
#[derive(Clone, Debug, Default)]
pub(crate) struct VersionCounts {
    /// How many lines have this many versions. Lines with one version are closed and not counted.
    lines: Vec<u32>,
}

impl VersionCounts {
    /// One line had `before` versions and has `after` now.
    pub(crate) fn change(&mut self, before: usize, after: usize) {
        if before > 1 {
            self.lines[before] -= 1;
        }
        if after > 1 {
            if after >= self.lines.len() {
                self.lines.resize(after + 1, 0);
            }
            self.lines[after] += 1;
        }
    }

    /// The number of combinations.
    pub(crate) fn product(&self) -> BigUint {
        self.lines
            .iter()
            .enumerate()
            .filter(|&(_, &lines)| lines > 0)
            .map(|(versions, &lines)| BigUint::from(versions).pow(lines))
            .product()
    }
}

impl FromIterator<usize> for VersionCounts {
    fn from_iter<I: IntoIterator<Item = usize>>(counts: I) -> Self {
        let mut all = Self::default();
        counts.into_iter().for_each(|count| all.change(1, count));
        all
    }
}
