//! Numbers of combinations: products that soon have too many digits to read.

use std::collections::BTreeMap;
use std::fmt;

use powerfail_model::BigUint;

/// Beyond this many digits only the logarithm is kept.
const DIGITS_EXACT: f64 = 400.0;

/// More digits are of no use in a report.
const DIGITS_READ: f64 = 15.0;

/// A number that is exact while that is worth anything, and has a decimal logarithm in any case.
#[derive(Clone, Debug, PartialEq)]
pub struct Magnitude {
    exact: Option<BigUint>,
    log10: f64,
}

impl Default for Magnitude {
    fn default() -> Self {
        Self {
            exact: Some(BigUint::ZERO),
            log10: f64::NEG_INFINITY,
        }
    }
}

impl Magnitude {
    /// A number of which the logarithm is known; `exact` is asked if it has not too many digits.
    pub fn new(log10: f64, exact: impl FnOnce() -> BigUint) -> Self {
        Self {
            exact: (log10 <= DIGITS_EXACT).then(exact),
            log10,
        }
    }

    /// The number, unless it has hundreds of digits.
    pub const fn exact(&self) -> Option<&BigUint> {
        self.exact.as_ref()
    }

    /// Its decimal logarithm; that of zero is negative infinity.
    pub const fn log10(&self) -> f64 {
        self.log10
    }

    /// Adds another number.
    pub fn add(&mut self, other: &Self) {
        self.exact = match (self.exact.take(), &other.exact) {
            (Some(mut sum), Some(other)) => {
                sum += other;
                Some(sum)
            }
            _ => None,
        };
        let (large, small) = if self.log10 > other.log10 {
            (self.log10, other.log10)
        } else {
            (other.log10, self.log10)
        };
        self.log10 = if large == f64::NEG_INFINITY {
            large
        } else {
            large + 10f64.powf(small - large).ln_1p() / std::f64::consts::LN_10
        };
    }
}

/// In full while it can be read, then as a power of ten: `123456` or `3.70e78`.
impl fmt::Display for Magnitude {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.exact {
            Some(exact) if self.log10 < DIGITS_READ => exact.fmt(f),
            _ => {
                let exponent = self.log10.floor();
                let (digits, exponent) = match 10f64.powf(self.log10 - exponent) {
                    // It would be shown as 10.00.
                    digits if digits >= 9.995 => (1.0, exponent + 1.0),
                    digits => (digits, exponent),
                };
                write!(f, "{digits:.2}e{exponent}")
            }
        }
    }
}

/// A product of small factors, kept as a histogram of them: one line more or less is two additions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Factors(BTreeMap<usize, u32>);

impl Factors {
    /// A factor changes. One is not a factor.
    pub(crate) fn change(&mut self, before: usize, after: usize) {
        if before == after {
            return;
        }
        if before > 1
            && let Some(count) = self.0.get_mut(&before)
        {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&before);
            }
        }
        if after > 1 {
            *self.0.entry(after).or_default() += 1;
        }
    }

    /// How many factors there are.
    pub(crate) fn lines(&self) -> u64 {
        self.0.values().map(|count| u64::from(*count)).sum()
    }

    /// The product, or the largest number there is.
    pub(crate) fn saturating_product(&self) -> u64 {
        let mut product = 1_u64;
        for (&factor, &count) in &self.0 {
            product = product.saturating_mul((factor as u64).saturating_pow(count));
        }
        product
    }

    #[allow(
        clippy::cast_precision_loss,
        reason = "a logarithm needs no more than 52 bits"
    )]
    pub(crate) fn product(&self) -> Magnitude {
        let factors = self.0.iter();
        let log10 = factors
            .map(|(&factor, &count)| f64::from(count) * (factor as f64).log10())
            .sum();
        Magnitude::new(log10, || {
            let factors = self.0.iter();
            factors
                .map(|(&factor, &count)| BigUint::from(factor).pow(count))
                .product()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_follows_its_factors() {
        let mut factors = Factors::default();
        assert_eq!(factors.saturating_product(), 1);
        for (before, after) in [(1, 2), (1, 2), (2, 3), (1, 5)] {
            factors.change(before, after);
        }
        assert_eq!(factors.saturating_product(), 30);
        assert_eq!(factors.product().exact(), Some(&BigUint::from(30_u32)));
        factors.change(5, 1);
        assert_eq!(factors.saturating_product(), 6);
        for _ in 0..100 {
            factors.change(1, 9);
        }
        assert_eq!(factors.saturating_product(), u64::MAX);
    }

    #[test]
    fn sums_are_exact_while_they_can_be_and_logarithms_in_any_case() {
        let power = |exponent: u32| {
            Magnitude::new(f64::from(exponent), || BigUint::from(10_u32).pow(exponent))
        };
        let mut sum = Magnitude::default();
        sum.add(&power(2));
        sum.add(&power(2));
        assert_eq!(sum.exact(), Some(&BigUint::from(200_u32)));
        assert!((sum.log10() - 200f64.log10()).abs() < 1e-9);
        sum.add(&power(1000));
        assert_eq!(sum.exact(), None);
        assert_eq!(sum.to_string(), "1.00e1000");
        assert_eq!(
            Magnitude::new(78.5682, || BigUint::ZERO).to_string(),
            "3.70e78"
        );
        assert_eq!(Magnitude::default().to_string(), "0");
        assert!((sum.log10() - 1000.0).abs() < 1e-9);
    }
}
