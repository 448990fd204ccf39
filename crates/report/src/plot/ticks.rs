//! Where an axis has its numbers: at round ones.

use super::Scale;
use crate::text::count;

/// A place on an axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    pub(super) at: f64,
    /// Some are only there to show a logarithmic scale.
    pub(super) is_labelled: bool,
    pub(super) text: String,
}

/// From the lowest to the highest value that is shown.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    scale: Scale,
    pub(super) ticks: Vec<Tick>,
    pub(super) unit: &'static str,
}

const MINUTE: f64 = 60.0;
const HOUR: f64 = 3600.0;

/// Steps of time that people count in, in seconds.
const TIME_STEPS: [f64; 17] = [
    1.0,
    2.0,
    5.0,
    10.0,
    15.0,
    30.0,
    MINUTE,
    2.0 * MINUTE,
    5.0 * MINUTE,
    10.0 * MINUTE,
    15.0 * MINUTE,
    30.0 * MINUTE,
    HOUR,
    2.0 * HOUR,
    3.0 * HOUR,
    6.0 * HOUR,
    12.0 * HOUR,
];

/// How many steps an axis has about, at most.
const STEPS: f64 = 8.0;

impl Axis {
    /// An axis of seconds. It ends where the data end: a campaign has no round length.
    pub(super) fn time(seconds: impl Iterator<Item = f64>, scale: Scale) -> Self {
        let (low, high) = range(seconds, scale);
        let high = if high > low { high } else { low + 1.0 };
        let (unit, unit_s) = match high {
            _ if high < 3.0 * MINUTE => ("s", 1.0),
            _ if high < 3.0 * HOUR => ("min", MINUTE),
            _ => ("h", HOUR),
        };
        if scale == Scale::Logarithmic {
            let ticks = logarithmic(low, high, 1.0);
            return Self::new((low, high), scale, ticks, "s");
        }
        let mut steps = TIME_STEPS.into_iter();
        let step = match steps.find(|step| high / step <= STEPS) {
            _ if high <= STEPS => round_step(high),
            Some(step) => step,
            // Days have no common abbreviation, so hours are counted.
            None => round_step(high / HOUR) * HOUR,
        };
        let ticks = linear(low, high, step, unit_s);
        Self::new((low, high), scale, ticks, unit)
    }

    /// An axis of values. It ends at a round number.
    pub(super) fn values(values: impl Iterator<Item = f64>, scale: Scale) -> Self {
        let (low, high) = range(values, scale);
        let high = if high > low { high } else { low + 1.0 };
        if scale == Scale::Logarithmic {
            let low = 10f64.powf(low.log10().floor());
            return Self::new((low, high), scale, logarithmic(low, high, 1.0), "");
        }
        let step = round_step(high);
        let high = (high / step).ceil() * step;
        Self::new((low, high), scale, linear(low, high, step, 1.0), "")
    }

    fn new((low, high): (f64, f64), scale: Scale, ticks: Vec<Tick>, unit: &'static str) -> Self {
        Self {
            low,
            high,
            scale,
            ticks,
            unit,
        }
    }

    /// Those with a number.
    pub(super) fn labelled(&self) -> impl Iterator<Item = &Tick> {
        self.ticks.iter().filter(|tick| tick.is_labelled)
    }

    /// Whether there is a place for a value.
    pub(super) fn shows(&self, value: f64) -> bool {
        value.is_finite() && (self.scale == Scale::Linear || value > 0.0)
    }

    /// How far a value lies from the low end to the high one.
    pub(super) fn share(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Logarithmic => {
                let value = value.max(self.low);
                (value / self.low).ln() / (self.high / self.low).ln()
            }
        };
        share.clamp(0.0, 1.0)
    }
}

/// The lowest and the highest value that an axis has to show.
fn range(values: impl Iterator<Item = f64>, scale: Scale) -> (f64, f64) {
    let shown = values.filter(|value| value.is_finite());
    match scale {
        Scale::Linear => (0.0, shown.fold(0.0, f64::max)),
        Scale::Logarithmic => {
            let positive = shown.filter(|value| *value > 0.0);
            let (low, high) = positive.fold((f64::INFINITY, 0.0), |(low, high), value| {
                (f64::min(low, value), f64::max(high, value))
            });
            if low.is_finite() {
                (low, high)
            } else {
                (1.0, 10.0)
            }
        }
    }
}

/// 1, 2 or 5 times a power of ten, so that there are not too many steps up to `high`.
fn round_step(high: f64) -> f64 {
    let least = high / STEPS;
    let power = 10f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|it| it * power);
    // The last is always enough; rounding could say otherwise.
    step.into_iter()
        .find(|step| *step >= least * 0.999_999)
        .unwrap_or(10.0 * power)
}

fn linear(low: f64, high: f64, step: f64, unit: f64) -> Vec<Tick> {
    let mut ticks = Vec::new();
    let mut at = low;
    while at <= high * 1.000_001 {
        ticks.push(Tick {
            at,
            is_labelled: true,
            text: number(at / unit),
        });
        // From its number, so that errors do not add up.
        at = low + step * f64::from(u32::try_from(ticks.len()).unwrap_or(u32::MAX));
    }
    ticks
}

/// Powers of ten with their numbers, and what lies between without; if there are few powers, also 2 and 5.
fn logarithmic(low: f64, high: f64, unit: f64) -> Vec<Tick> {
    let few = high / low < 1000.0;
    let mut ticks = Vec::new();
    let mut power = 10f64.powf(low.log10().floor());
    while power <= high {
        for digit in 1..10u8 {
            let at = power * f64::from(digit);
            if at < low * 0.999_999 || at > high * 1.000_001 {
                continue;
            }
            ticks.push(Tick {
                at,
                is_labelled: digit == 1 || few && matches!(digit, 2 | 5),
                text: number(at / unit),
            });
        }
        power *= 10.0;
    }
    ticks
}

/// A number as people write it: thousands apart, and no more decimals than it has.
pub(super) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "?".into();
    }
    let is_whole = (value - value.round()).abs() < 1e-9 * value.abs().max(1.0);
    if is_whole || value >= 1000.0 {
        #[expect(
            clippy::cast_sign_loss,
            reason = "what is below zero saturates, and there is nothing such"
        )]
        return count(value.round() as u64);
    }
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.labelled().map(|tick| tick.text.as_str()).collect()
    }

    fn time(high: f64) -> Axis {
        Axis::time([0.0, high].into_iter(), Scale::Linear)
    }

    #[test]
    fn time_is_counted_as_people_do() {
        let axis = time(60.0);
        assert_eq!(axis.unit, "s");
        assert_eq!(labels(&axis), ["0", "10", "20", "30", "40", "50", "60"]);
        let axis = time(15.0 * MINUTE + 3.0);
        assert_eq!(axis.unit, "min");
        assert_eq!(labels(&axis), ["0", "2", "4", "6", "8", "10", "12", "14"]);
        let axis = time(24.0 * HOUR);
        assert_eq!(axis.unit, "h");
        assert_eq!(
            labels(&axis),
            ["0", "3", "6", "9", "12", "15", "18", "21", "24"]
        );
        let axis = time(1000.0 * HOUR);
        assert_eq!(labels(&axis), ["0", "200", "400", "600", "800", "1,000"]);
        assert_eq!(
            labels(&time(0.8)),
            ["0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8"]
        );
    }

    #[test]
    fn values_end_at_a_round_number() {
        let axis = Axis::values([3.0, 1234.0].into_iter(), Scale::Linear);
        assert_eq!(
            labels(&axis),
            ["0", "200", "400", "600", "800", "1,000", "1,200", "1,400"]
        );
        assert!((axis.share(700.0) - 0.5).abs() < 1e-9);
        let axis = Axis::values([8.0].into_iter(), Scale::Linear);
        assert_eq!(labels(&axis), ["0", "1", "2", "3", "4", "5", "6", "7", "8"]);
    }

    #[test]
    fn powers_of_ten_have_numbers() {
        let axis = Axis::values([7.0, 20_000.0].into_iter(), Scale::Logarithmic);
        assert_eq!(labels(&axis), ["1", "10", "100", "1,000", "10,000"]);
        let between = axis.ticks.iter().filter(|tick| !tick.is_labelled).count();
        assert_eq!(between, 4 * 8 + 1);
        assert!((axis.share(0.0)).abs() < 1e-9);
        let axis = Axis::values([20.0, 300.0].into_iter(), Scale::Logarithmic);
        assert_eq!(labels(&axis), ["10", "20", "50", "100", "200"]);
    }

    #[test]
    fn every_range_has_some_steps_and_not_too_many() {
        for exponent in -2..12 {
            for factor in [1.0, 1.3, 2.0, 3.7, 5.0, 9.99] {
                let high = factor * 10f64.powi(exponent);
                for axis in [time(high), Axis::values([high].into_iter(), Scale::Linear)] {
                    let number = axis.ticks.len();
                    assert!((2..=10).contains(&number), "{number} steps up to {high}");
                }
            }
        }
    }

    #[test]
    fn nothing_is_an_axis_too() {
        for scale in [Scale::Linear, Scale::Logarithmic] {
            for values in [&[][..], &[0.0], &[f64::NAN], &[5.0]] {
                let axis = Axis::values(values.iter().copied(), scale);
                assert!(axis.share(5.0).is_finite(), "{values:?}");
                assert!(!axis.ticks.is_empty(), "{values:?} {scale:?}");
            }
        }
    }
}
