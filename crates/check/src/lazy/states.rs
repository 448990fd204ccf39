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

/// The decimal logarithm of such a text.
pub(crate) fn log10_of(decimal: &str) -> f64 {
    let (mantissa, exponent) = decimal.split_once('e').unwrap_or((decimal, "0"));
    let number = |text: &str| text.parse::<f64>().unwrap_or(0.0);
    number(mantissa).log10() + number(exponent)
}

#[cfg(test)]
mod tests {
    use super::{decimal, log10_of, log10_of_sum};

    #[test]
    fn texts_are_numbers() {
        for text in ["0", "1", "141", "2.51e43", "2.00e1000"] {
            assert_eq!(decimal(log10_of(text)), text);
        }
    }

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
