//! What a crash showed: when the power failed, what was lost, what recovery did, what differs.

use powerfail_finding::{DurableBy, Evidence, RecoveryOutcome};

use crate::text::{BAD, FAINT, GOOD, count, plural, printable, width};

/// Lines of output and of a difference that are shown; JSON has all that was kept.
const OUTPUT_LINES: usize = 10;
/// How many lines at the beginning of the output are shown besides, if it is longer. Standard error comes first.
const FIRST_LINES: usize = 3;
const DIFFERENCE_LINES: usize = 20;
/// Columns of such a line.
const LINE_COLUMNS: usize = 160;
/// Lines of pools that are named.
const LOST_LINES: usize = 4;

pub(super) fn texts(evidence: &Evidence, durable_by: DurableBy) -> Vec<(&'static str, String)> {
    let unit = match durable_by {
        DurableBy::Flush => "line",
        DurableBy::Sync => "sector",
    };
    let mut texts = vec![("failure", failure(evidence))];
    let lost = &evidence.failure.lost_lines;
    if !lost.is_empty() {
        let mut lines: Vec<String> = lost
            .iter()
            .take(LOST_LINES)
            .map(|line| {
                // A store that is torn is one of those that become durable in pieces.
                let is_in_pieces = evidence.torn && line.stores.is_none();
                let keeps = match line.stores.unwrap_or(line.version) {
                    0 => "none of its stores survives".to_owned(),
                    1 if is_in_pieces => "1 piece of its stores survives".to_owned(),
                    more if is_in_pieces => {
                        format!("{} pieces of its stores survive", count(more as u64))
                    }
                    1 => "1 of its stores survives".to_owned(),
                    more => format!("{} of its stores survive", count(more as u64)),
                };
                format!(
                    "{unit} {:#x} of pool {}: {keeps}",
                    line.pool_offset, line.pool
                )
            })
            .collect();
        if lost.len() > LOST_LINES {
            let more = plural((lost.len() - LOST_LINES) as u64, &format!("more {unit}"));
            lines.push(format!("and {more}"));
        }
        texts.push(("lost", lines.join("\n")));
    }
    let filled = &evidence.failure.filled;
    if !filled.is_empty() {
        let all: u64 = filled.iter().map(|it| it.bytes.len() as u64 / 2).sum();
        let first = &filled[0];
        let value = printable(first.bytes.get(..2).unwrap_or_default());
        texts.push((
            "filled",
            format!(
                "{} that were never written hold {value} each, from offset {:#x} of pool {}",
                plural(all, "byte"),
                first.pool_offset,
                first.pool
            ),
        ));
    }
    texts.push(outcome(&evidence.recovery));
    texts.extend(difference(evidence));
    texts
}

/// What differs from what should have been recovered.
pub(super) fn difference(evidence: &Evidence) -> Option<(&'static str, String)> {
    let difference = evidence.difference.as_ref()?;
    Some(("difference", first_lines(difference)))
}

fn failure(evidence: &Evidence) -> String {
    // The number of an event is a name: it is written as `--at` takes it.
    let mut text = format!("power fails before event {}", evidence.failure.event);
    if evidence.failure.lost_lines.is_empty() {
        text += ", with every store before it durable";
    }
    if let Some(again) = &evidence.failure.again {
        let times = match again.failures {
            2 => "again".to_owned(),
            more => format!("again, {} times in all", count(more.into())),
        };
        text = format!(
            "{text}\nand {times} during recovery, after {} of it",
            plural(again.events, "event")
        );
    }
    let good = |event: u64| format!("before event {event}");
    match (evidence.last_good_event, evidence.next_good_event) {
        (Some(last), Some(next)) => {
            text = format!(
                "{text}\nrecovery succeeds {}, and again {}",
                good(last),
                good(next)
            );
        }
        (Some(last), None) => text = format!("{text}\nrecovery succeeds {}", good(last)),
        (None, Some(next)) => text = format!("{text}\nrecovery succeeds again {}", good(next)),
        (None, None) => {}
    }
    text
}

pub(super) fn outcome(outcome: &RecoveryOutcome) -> (&'static str, String) {
    let name = if outcome.command() == "checker" {
        "checker"
    } else {
        "recovery"
    };
    let what = outcome.to_string();
    let what = printable(&what);
    let lines: Vec<&str> = outcome.output().lines().collect();
    if lines.is_empty() && matches!(outcome, RecoveryOutcome::Content { .. }) {
        return (name, format!("{what}; it is empty"));
    }
    if lines.is_empty() {
        return (name, format!("{what} and wrote nothing"));
    }
    let room = match outcome {
        RecoveryOutcome::Content { .. } => OUTPUT_LINES,
        _ => OUTPUT_LINES + FIRST_LINES,
    };
    let skipped = match lines.len() {
        count if count <= room => 0,
        count => count - OUTPUT_LINES,
    };
    let (said, first) = match (skipped, &outcome) {
        (0, RecoveryOutcome::Content { .. }) => ("the content:".to_owned(), 0),
        (_, RecoveryOutcome::Content { .. }) => ("the end of the content:".to_owned(), 0),
        (0, _) => ("its output:".to_owned(), 0),
        // Errors are often reported first, and followed by much else.
        _ => (
            format!("the first {FIRST_LINES} and the last {OUTPUT_LINES} lines of its output:"),
            FIRST_LINES.min(skipped),
        ),
    };
    let indented = |line: &&str| format!("    {}", cut(line));
    let mut shown: Vec<String> = lines[..first].iter().map(indented).collect();
    if first > 0 && first < skipped {
        shown.push("    ...".to_owned());
    }
    shown.extend(lines[skipped..].iter().map(indented));
    (name, format!("{what}; {said}\n{}", shown.join("\n")))
}

fn first_lines(difference: &str) -> String {
    let mut lines: Vec<String> = difference
        .lines()
        .take(DIFFERENCE_LINES)
        .map(|line| match (line.bytes().next(), cut(line)) {
            (Some(b'-'), line) => format!("{BAD}{line}{BAD:#}"),
            (Some(b'+'), line) => format!("{GOOD}{line}{GOOD:#}"),
            (_, line) => line,
        })
        .collect();
    let left = difference.lines().count().saturating_sub(DIFFERENCE_LINES);
    if left > 0 {
        lines.push(format!(
            "{FAINT}{}{FAINT:#}",
            plural(left as u64, "more line")
        ));
    }
    lines.join("\n")
}

/// A line of the target's output: safe to print, and cut if it is long.
fn cut(line: &str) -> String {
    let line = printable(line);
    if width(&line) <= LINE_COLUMNS {
        return line.into_owned();
    }
    let mut cut: String = line.chars().take(LINE_COLUMNS - 3).collect();
    cut.push_str("...");
    cut
}
