//! Durations, with their unit.

use std::fmt;
use std::time::Duration;

use serde::de::{Deserializer, Error, Visitor};

use super::Value;

const EXPECTED: &str = "a duration such as 250ms, 30s, 5m or 2h";

/// Reads `250ms`, `30s`, `5m` or `2h`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("expected {EXPECTED}");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    let ms = number.checked_mul(unit_ms).ok_or_else(wrong)?;
    Ok(Duration::from_millis(ms))
}

impl Value for Duration {
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Duration;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str(EXPECTED)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
                let parsed = parse_duration(text);
                parsed.map_err(|error| E::custom(format!("invalid value `{text}`: {error}")))
            }
        }

        from.deserialize_any(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::parse_duration;
    use std::time::Duration;

    #[test]
    fn durations_have_a_unit() {
        for (text, ms) in [
            ("250ms", 250),
            ("30s", 30_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_millis(ms)),
                "{text}"
            );
        }
        for wrong in [
            "",
            "30",
            "s",
            "1.5s",
            "-1s",
            "30 s",
            "30sec",
            "99999999999999999999s",
            "18446744073709551615h",
            "é",
        ] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }
}
