//! Numbers with limits, and what is made of them: counts, bytes, ranges of segments.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use serde::de::{Deserializer, Error, Unexpected, Visitor};

use super::{Value, value_from_text};

/// A whole number from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole<const MIN: u64, const MAX: u64>(u64);

/// A number of things, at least one.
pub type Count = Whole<1, { u64::MAX }>;
/// A number of threads.
pub type Threads = Whole<1, 1024>;
/// How many priorities a scheduled run uses.
pub type ScheduleDepth = Whole<1, 32>;
/// A size in MiB.
pub type Mebibytes = Whole<1, { 1 << 30 }>;

impl<const MIN: u64, const MAX: u64> Whole<MIN, MAX> {
    /// The nearest number within the limits.
    pub const fn clamped(number: u64) -> Self {
        Self(if number < MIN {
            MIN
        } else if number > MAX {
            MAX
        } else {
            number
        })
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number, or the largest possible one.
    pub fn to_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    /// The number, or the largest possible one.
    pub fn to_u32(self) -> u32 {
        u32::try_from(self.0).unwrap_or(u32::MAX)
    }
}

impl Mebibytes {
    /// The size in bytes.
    pub const fn bytes(self) -> u64 {
        self.0 << 20
    }
}

struct Limits(u64, u64);

impl fmt::Display for Limits {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(0, u64::MAX) => to.write_str("a whole number"),
            Self(min, u64::MAX) => write!(to, "a whole number, at least {min}"),
            Self(min, max) => write!(to, "a whole number from {min} to {max}"),
        }
    }
}

impl<const MIN: u64, const MAX: u64> FromStr for Whole<MIN, MAX> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.parse().ok();
        number
            .filter(|number| (MIN..=MAX).contains(number))
            .map(Self)
            .ok_or_else(|| format!("expected {}", Limits(MIN, MAX)))
    }
}

impl<const MIN: u64, const MAX: u64> Value for Whole<MIN, MAX> {
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Number<const MIN: u64, const MAX: u64>;

        impl<const MIN: u64, const MAX: u64> Visitor<'_> for Number<MIN, MAX> {
            type Value = Whole<MIN, MAX>;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(to, "{}", Limits(MIN, MAX))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
                let wrong = || E::invalid_value(Unexpected::Signed(number), &self);
                let number = u64::try_from(number).map_err(|_| wrong())?;
                self.visit_u64(number)
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
                if !(MIN..=MAX).contains(&number) {
                    return Err(E::invalid_value(Unexpected::Unsigned(number), &self));
                }
                Ok(Whole(number))
            }
        }

        from.deserialize_any(Number::<MIN, MAX>)
    }
}

/// A byte, decimal or hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Byte(pub u8);

impl FromStr for Byte {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = match text.strip_prefix("0x") {
            Some(digits) => u8::from_str_radix(digits, 16),
            None => text.parse(),
        };
        number
            .map(Self)
            .map_err(|_| "not a byte: expected a number such as 165 or 0xff")
    }
}

value_from_text!(Byte, "a byte such as 165 or \"0xff\"");

/// How many of something there are on average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate(pub f64);

impl Rate {
    fn new(rate: f64) -> Option<Self> {
        (0.0..=1000.0).contains(&rate).then_some(Self(rate))
    }
}

impl FromStr for Rate {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rate = text.parse().ok().and_then(Self::new);
        rate.ok_or("expected a number from 0 to 1000, such as 0.5")
    }
}

impl Value for Rate {
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number: f64 = serde::Deserialize::deserialize(from)?;
        Self::new(number).ok_or_else(|| {
            D::Error::invalid_value(
                Unexpected::Float(number),
                &"a number from 0 to 1000, such as 0.5",
            )
        })
    }
}

/// A range of segments, without its end: `10..20`, `..5`, `7..`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segments(pub Range<usize>);

impl FromStr for Segments {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = "expected a range of segments such as 10..20, ..5 or 7..";
        let (from, to) = text.split_once("..").ok_or(wrong)?;
        let number = |text: &str, absent| match text {
            "" => Ok(absent),
            digits => digits.parse().map_err(|_| wrong),
        };
        let (from, to) = (number(from, 0)?, number(to, usize::MAX)?);
        if to <= from {
            return Err("the range is empty: its end is not part of it");
        }
        Ok(Self(from..to))
    }
}

value_from_text!(Segments, "a range of segments such as \"10..20\"");

#[cfg(test)]
mod tests {
    use super::{Byte, Count, Rate, ScheduleDepth, Segments};

    #[test]
    fn whole_numbers_have_limits() {
        assert_eq!("7".parse::<Count>().unwrap().get(), 7);
        for wrong in ["0", "-1", "", "many", "18446744073709551616"] {
            assert!(wrong.parse::<Count>().is_err(), "{wrong}");
        }
        assert!("33".parse::<ScheduleDepth>().is_err());
    }

    #[test]
    fn bytes_are_decimal_or_hexadecimal() {
        assert_eq!("0xA5".parse(), Ok(Byte(0xa5)));
        assert_eq!("255".parse(), Ok(Byte(255)));
        for wrong in ["256", "0x100", "-1", "white", "", "0x"] {
            assert!(wrong.parse::<Byte>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates_are_finite_and_not_negative() {
        assert_eq!("0.25".parse(), Ok(Rate(0.25)));
        for wrong in ["-1", "NaN", "inf", "much", ""] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn segments_are_a_range_without_its_end() {
        assert_eq!("10..20".parse(), Ok(Segments(10..20)));
        assert_eq!("..5".parse(), Ok(Segments(0..5)));
        assert_eq!("7..".parse(), Ok(Segments(7..usize::MAX)));
        for wrong in ["", "7", "5..5", "5..4", "a..b", "-1..2"] {
            assert!(wrong.parse::<Segments>().is_err(), "{wrong}");
        }
    }
}
