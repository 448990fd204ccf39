//! A share of the failure points.

use std::fmt;
use std::str::FromStr;

use super::value_from_text;

/// One of several shares of the failure points, numbered from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    number: u64,
    of: u64,
}

impl Partition {
    /// The largest number of shares.
    pub const MAX: u64 = 1 << 16;

    /// A share, if there can be one with this number.
    pub const fn new(number: u64, of: u64) -> Option<Self> {
        if number >= 1 && number <= of && of <= Self::MAX {
            Some(Self { number, of })
        } else {
            None
        }
    }

    /// Which share it is, from 1.
    pub const fn number(self) -> u64 {
        self.number
    }

    /// How many there are.
    pub const fn of(self) -> u64 {
        self.of
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Partition {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong =
            "expected a share such as 3/8: its number, from 1, and how many there are, up to 65536";
        let (number, of) = text.split_once('/').ok_or(wrong)?;
        let number = number.parse().map_err(|_| wrong)?;
        let of = of.parse().map_err(|_| wrong)?;
        Self::new(number, of).ok_or(wrong)
    }
}

value_from_text!(Partition, "a share such as \"3/8\"");

#[cfg(test)]
mod tests {
    use super::Partition;

    #[test]
    fn a_share_has_a_number_among_the_others() {
        let share: Partition = "3/8".parse().unwrap();
        assert_eq!((share.number(), share.of()), (3, 8));
        assert_eq!(share.to_string(), "3/8");
        for wrong in [
            "0/8", "9/8", "3", "3/0", "a/b", "-1/8", "1/65537", "/", "1/8/8",
        ] {
            assert!(wrong.parse::<Partition>().is_err(), "{wrong}");
        }
    }
}
