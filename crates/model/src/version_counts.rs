//! The number of crash states, kept as its factors: how many lines have how many versions.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use num_bigint::BigUint;

/// A histogram of the version counts of all open lines.
///
/// Following one line from one count to the next is an addition and a subtraction; the product,
/// a number with hundreds of digits, is computed only on demand.
#[derive(Clone, Debug, Default)]
pub(crate) struct VersionCounts {
    /// How many lines have this many versions, for the small numbers that nearly all lines have.
    /// Lines with one version are closed and not counted.
    few: [u32; FEW],
    /// The same for large numbers: a line that is never flushed can have millions.
    many: BTreeMap<usize, u32>,
}

const FEW: usize = 32;

impl VersionCounts {
    /// One line had `before` versions and has `after` now.
    pub(crate) fn change(&mut self, before: usize, after: usize) {
        if before >= FEW {
            if let Entry::Occupied(mut lines) = self.many.entry(before) {
                *lines.get_mut() -= 1;
                if *lines.get() == 0 {
                    lines.remove();
                }
            }
        } else if before > 1 {
            self.few[before] -= 1;
        }
        if after >= FEW {
            *self.many.entry(after).or_insert(0) += 1;
        } else if after > 1 {
            self.few[after] += 1;
        }
    }

    /// The numbers of versions that occur, with the number of lines that have them.
    fn factors(&self) -> impl Iterator<Item = (usize, u32)> {
        let few = self.few.iter().copied().enumerate();
        few.chain(
            self.many
                .iter()
                .map(|(&versions, &lines)| (versions, lines)),
        )
        .filter(|&(_, lines)| lines > 0)
    }

    /// The number of combinations.
    pub(crate) fn product(&self) -> BigUint {
        self.factors()
            .map(|(versions, lines)| BigUint::from(versions).pow(lines))
            .product()
    }

    /// Its decimal logarithm.
    #[allow(
        clippy::cast_precision_loss,
        reason = "a logarithm needs no more than 52 bits"
    )]
    pub(crate) fn log10(&self) -> f64 {
        self.factors()
            .map(|(versions, lines)| f64::from(lines) * (versions as f64).log10())
            .sum()
    }
}

impl FromIterator<usize> for VersionCounts {
    fn from_iter<I: IntoIterator<Item = usize>>(counts: I) -> Self {
        let mut all = Self::default();
        counts.into_iter().for_each(|count| all.change(1, count));
        all
    }
}
