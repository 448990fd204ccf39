//! How much eager exploration has to do: the table that Yat prints.

use std::io::{self, Write};
use std::time::Duration;

use powerfail_finding::Eager;

use crate::text::{STRONG, count, width};

/// The table, before anything runs. `states` is how many run at most, and `estimate` how long that takes.
pub fn combinations(
    out: &mut dyn Write,
    eager: &Eager,
    states: u64,
    estimate: Duration,
) -> io::Result<()> {
    let all = large(&eager.combinations);
    let rows: [(&str, String, String); 6] = [
        ("writes", count(eager.writes), String::new()),
        ("flushes", count(eager.flushes), String::new()),
        ("fences", count(eager.fences), String::new()),
        (
            "segments",
            count(eager.segments),
            format!(
                "{} with at most {} combinations",
                count(eager.exhaustive_segments),
                count(eager.threshold.max(eager.sample))
            ),
        ),
        (
            "combinations",
            all.clone(),
            [
                format!("{} in these", count(eager.exhaustive_combinations)),
                match large(&eager.raw_combinations) {
                    raw if raw == all => String::new(),
                    raw => format!("; {raw} with stores that change nothing"),
                },
            ]
            .concat(),
        ),
        (
            "states to run",
            count(states),
            format!("at most, about {}", time(estimate)),
        ),
    ];
    let widest = rows.iter().map(|row| width(&row.1)).max().unwrap_or(0);
    for (name, number, more) in rows {
        let line = format!("{STRONG}{name:<13}{STRONG:#}  {number:>widest$}  {more}");
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// A number that may be a power of ten already.
fn large(number: &str) -> String {
    number.parse().map_or_else(|_| number.to_owned(), count)
}

/// A time that is only about right.
fn time(estimate: Duration) -> String {
    const UNITS: [(&str, f64); 4] = [
        ("years", 365.25 * 86_400.0),
        ("days", 86_400.0),
        ("hours", 3_600.0),
        ("minutes", 60.0),
    ];
    let seconds = estimate.as_secs_f64();
    let unit = UNITS.iter().find(|(_, length)| seconds >= 2.0 * length);
    unit.map_or_else(
        || format!("{seconds:.1} s"),
        |(name, length)| format!("{:.1} {name}", seconds / length),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_below_each_other() {
        let eager = Eager {
            writes: 158_000,
            flushes: 53_000,
            fences: 15_000,
            segments: 14_000,
            combinations: "3.70e78".into(),
            raw_combinations: "4.10e79".into(),
            threshold: 250,
            sample: 250,
            exhaustive_segments: 8_000,
            exhaustive_combinations: 500_123,
            ..Eager::default()
        };
        let mut out = Vec::new();
        combinations(&mut out, &eager, 2_000_123, Duration::from_hours(5 * 24)).unwrap();
        let text = anstream::adapter::strip_bytes(&out).into_vec();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "\
writes           158,000
flushes           53,000
fences            15,000
segments          14,000  8,000 with at most 250 combinations
combinations     3.70e78  500,123 in these; 4.10e79 with stores that change nothing
states to run  2,000,123  at most, about 5.0 days
"
        );
    }

    #[test]
    fn times_have_the_unit_that_fits() {
        let of = |seconds: u64| time(Duration::from_secs(seconds));
        assert_eq!(of(3), "3.0 s");
        assert_eq!(of(119), "119.0 s");
        assert_eq!(of(300), "5.0 minutes");
        assert_eq!(of(5 * 31_557_600), "5.0 years");
    }
}
