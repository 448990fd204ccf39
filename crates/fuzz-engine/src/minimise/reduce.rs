//! Removes units of an input: lines, words or bytes.
//!
//! This is delta debugging (Zeller and Hildebrandt, 2002) without its tests of single parts alone, which are hardly ever
//! enough for bugs that need a history.

use std::ops::ControlFlow;

use super::trials::Trials;

/// Removes halves, quarters and so on of the units, until no single one can be removed. `ask` says whether the rest
/// still has the wanted effect. The result is in `units`, also if `ask` breaks off.
pub(super) fn reduce<T: Clone>(
    units: &mut Vec<T>,
    ask: &mut dyn FnMut(&[T]) -> ControlFlow<(), bool>,
) -> ControlFlow<()> {
    let mut size = units.len().div_ceil(2).max(1);
    loop {
        let mut is_shorter = false;
        // From the end, because later parts depend on earlier ones.
        let mut end = units.len();
        while end > 0 {
            let start = end.saturating_sub(size);
            let rest = [&units[..start], &units[end..]].concat();
            if ask(&rest)? {
                *units = rest;
                is_shorter = true;
            }
            end = start;
        }
        if size > 1 {
            size = size.div_ceil(2);
        } else if !is_shorter {
            return ControlFlow::Continue(());
        }
    }
}

/// The lines of an input, with their ends.
pub(super) fn lines_of(input: &[u8]) -> Vec<&[u8]> {
    input.split_inclusive(|byte| *byte == b'\n').collect()
}

/// Removes lines of an input while `keep` returns true for the rest. `keep` is called at most `most_runs` times.
pub(crate) fn trim_lines(
    input: &[u8],
    most_runs: u64,
    mut keep: impl FnMut(&[u8]) -> bool,
) -> Vec<u8> {
    let mut trials = Trials::at_most(most_runs);
    let mut lines = lines_of(input);
    let _ = reduce(&mut lines, &mut |rest| {
        trials.ask(&rest.concat(), &mut |input| {
            ControlFlow::Continue(keep(input))
        })
    });
    lines.concat()
}
