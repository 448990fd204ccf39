//! Sizes of state spaces: sums of numbers of which only the logarithms are known.

/// The decimal logarithm of a sum.
pub(crate) fn log10_of_sum(logs: impl IntoIterator<Item = f64>) -> f64 {
    let logs: Vec<f64> = logs.into_iter().collect();
    let largest = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if !largest.is_finite() {
        return largest;
    }
    let scaled: f64 = logs.iter().map(|log| 10f64.powf(log - largest)).sum();
    largest + scaled.log10()
}

/// A number by its decimal logarithm, as text: in full while a logarithm tells it exactly enough.
pub(crate) fn decimal(log10: f64) -> String {
    const EXACT_DIGITS: f64 = 9.0;
    if log10 == f64::NEG_INFINITY {
        return "0".to_owned();
    }
    if log10 < EXACT_DIGITS {
        return format!("{:.0}", 10f64.powf(log10));
    }
    let exponent = log10.floor();
    format!("{:.2}e{exponent}", 10f64.powf(log10 - exponent))
}

#[cfg(test)]
mod tests {
    use super::{decimal, log10_of_sum};

    #[test]
    fn sums_of_small_and_of_huge_numbers() {
        let sum = |numbers: &[f64]| decimal(log10_of_sum(numbers.iter().map(|n| n.log10())));
        assert_eq!(sum(&[]), "0");
        assert_eq!(sum(&[1.0]), "1");
        assert_eq!(sum(&[81.0, 59.0, 1.0]), "141");
        assert_eq!(sum(&[123_456_789.0, 1.0]), "123456790");
        assert_eq!(decimal(log10_of_sum([1000.0, 1000.0])), "2.00e1000");
    }
}
