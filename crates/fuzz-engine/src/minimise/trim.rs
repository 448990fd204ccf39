//! Shortens an input while a condition holds: removes lines first, then bytes.

use std::ops::ControlFlow;

/// The result of shortening an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trimmed {
    /// The input.
    pub input: Vec<u8>,
    /// How often the condition was tested.
    pub runs: usize,
    /// Whether no single part can be removed any more. If not, there were not enough runs.
    pub is_minimal: bool,
}

/// Removes parts of an input while `keep` returns true for the rest. `keep` is called at most `most_runs` times, and never
/// for the input itself.
///
/// Removes halves, quarters and so on, first of the lines, then of the bytes, until no single one can be removed. This is
/// delta debugging without its tests of single parts alone, which are hardly ever enough for bugs that need a history.
pub fn trim(input: &[u8], most_runs: usize, keep: impl FnMut(&[u8]) -> bool) -> Trimmed {
    let mut runs = 0;
    let mut ask = asking(&mut runs, most_runs, keep);
    let (lines, lines_done) = reduce(lines_of(input), &mut ask);
    let bytes = lines.concat().into_iter().map(|byte| vec![byte]).collect();
    let (bytes, bytes_done) = if lines_done {
        reduce(bytes, &mut ask)
    } else {
        (bytes, false)
    };
    drop(ask);
    Trimmed {
        input: bytes.concat(),
        runs,
        is_minimal: bytes_done,
    }
}

/// Removes lines only, like the first part of [`trim`].
pub(crate) fn trim_lines(
    input: &[u8],
    most_runs: usize,
    keep: impl FnMut(&[u8]) -> bool,
) -> Vec<u8> {
    let mut runs = 0;
    let mut ask = asking(&mut runs, most_runs, keep);
    reduce(lines_of(input), &mut ask).0.concat()
}

/// Calls the condition, up to a maximum number of times.
fn asking(
    runs: &mut usize,
    most_runs: usize,
    mut keep: impl FnMut(&[u8]) -> bool,
) -> impl FnMut(&[u8]) -> ControlFlow<(), bool> {
    move |input| {
        if *runs == most_runs {
            return ControlFlow::Break(());
        }
        *runs += 1;
        ControlFlow::Continue(keep(input))
    }
}

fn lines_of(input: &[u8]) -> Vec<Vec<u8>> {
    let lines = input.split_inclusive(|byte| *byte == b'\n');
    lines.map(<[u8]>::to_vec).collect()
}

/// Removes units; returns whether it was completed.
fn reduce(
    mut units: Vec<Vec<u8>>,
    ask: &mut impl FnMut(&[u8]) -> ControlFlow<(), bool>,
) -> (Vec<Vec<u8>>, bool) {
    let mut size = units.len().div_ceil(2).max(1);
    loop {
        let mut shorter = false;
        // From the end, because later parts depend on earlier ones.
        let mut end = units.len();
        while end > 0 {
            let start = end.saturating_sub(size);
            let rest = [&units[..start], &units[end..]].concat();
            match ask(&rest.concat()) {
                ControlFlow::Break(()) => return (units, false),
                ControlFlow::Continue(true) => {
                    units = rest;
                    shorter = true;
                }
                ControlFlow::Continue(false) => {}
            }
            end = start;
        }
        if size > 1 {
            size = size.div_ceil(2);
        } else if !shorter {
            return (units, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_needed_stays() {
        let lines: Vec<String> = (0..100)
            .map(|key| format!("put {key} value{key}\n"))
            .collect();
        let input = lines.concat() + "del 17\n";
        let keep = |input: &[u8]| {
            let text = String::from_utf8_lossy(input);
            text.contains("put 17 ") && text.contains("del 17")
        };
        let trimmed = trim(input.as_bytes(), 10_000, keep);
        assert_eq!(String::from_utf8_lossy(&trimmed.input), "put 17 del 17");
        assert!(trimmed.is_minimal && trimmed.runs < 250, "{trimmed:?}");
    }

    #[test]
    fn runs_are_limited_and_the_result_is_kept() {
        let mut asked = 0;
        let trimmed = trim(&[b'x'; 1000], 5, |input| {
            asked += 1;
            input.len() >= 600
        });
        assert_eq!((trimmed.runs, asked, trimmed.is_minimal), (5, 5, false));
        assert!(trimmed.input.len() >= 600);
    }

    #[test]
    fn nothing_can_be_all_that_is_needed() {
        assert_eq!(trim(b"a\nb\n", 100, |_| true).input, b"");
        assert_eq!(trim(b"", 100, |_| true).input, b"");
        assert_eq!(trim(b"a\nb\n", 100, |_| false).input, b"a\nb\n");
    }
}
