//! An unsafe read of recovery: what it reads, where that was seen, and why it is not durable.

use powerfail_finding::{Code, DurableBy, Finding, NotDurable, UnsafeRead};

use crate::text::{count, plural, printable};

/// Other values that are named; JSON has all that were kept.
const VALUES_SHOWN: usize = 3;

/// The read in words.
pub(super) fn text(read: &UnsafeRead, finding: &Finding) -> String {
    let mut lines = Vec::new();
    let mut value = format!("{} reads {}", read.command, printable(&read.bytes));
    if !read.instead.is_empty() {
        let shown: Vec<_> = read.instead.iter().take(VALUES_SHOWN).collect();
        let shown: Vec<_> = shown.into_iter().map(|it| printable(it)).collect();
        value = format!("{value} but could read {}", shown.join(" or "));
        let left = read.instead.len().saturating_sub(VALUES_SHOWN);
        if left > 0 {
            value = format!("{value} or {}", plural(left as u64, "other value"));
        }
    } else if read.strict {
        value = format!("{value}, the same in every crash state (strict rule)");
    }
    lines.push(value);
    if let Some(reason) = read.not_durable {
        lines.push(
            match (reason, finding.durable_by) {
                (NotDurable::FlushedBefore, DurableBy::Sync) => {
                    "not durable: it was written back before the store, but not since"
                }
                (_, DurableBy::Sync) => {
                    "not durable: no msync or fdatasync has written it back since the store"
                }
                (NotDurable::NeverFlushed, DurableBy::Flush) => {
                    "not durable: its line has not been flushed since the store"
                }
                (NotDurable::NotFenced, DurableBy::Flush) => {
                    "not durable: its line was flushed, but no fence followed"
                }
                (NotDurable::FlushedBefore, DurableBy::Flush) => {
                    "not durable: its line was flushed before the store, but not since"
                }
            }
            .to_owned(),
        );
    }
    let first = count(read.event);
    lines.push(match read.failure_points {
        1 => format!("if the power fails before event {first}"),
        points => format!(
            "at {}, first if the power fails before event {first}",
            plural(points, "failure point")
        ),
    });
    if finding.evidence.is_none() && finding.code != Code::CrossFailureSemantic {
        lines.extend(tried(read, finding.code));
    }
    lines.join("\n")
}

/// What was tried to make recovery fail, one line for each way.
fn tried(read: &UnsafeRead, code: Code) -> Vec<String> {
    let tried = read.tried.unwrap_or_default();
    if tried.executions == 0 {
        return vec![if read.strict {
            "nothing to try: it reads the same value in every crash state".to_owned()
        } else {
            "it was not tried whether recovery fails because of it".to_owned()
        }];
    }
    let all = plural(read.failure_points, "failure point");
    let mut lines = Vec::new();
    let mut say = |points: u64, what: &str| {
        if points > 0 {
            lines.push(format!("tried at {} of {all}: {what}", count(points)));
        }
    };
    if code == Code::UninitialisedRead {
        say(tried.other_value, "other bytes in that memory");
    } else {
        say(tried.other_value, "the store lost, all others there");
        say(tried.survivor, "the store there, others lost");
    }
    let executions = plural(tried.executions, "execution");
    lines.push(match tried.undecided {
        0 => format!("recovery succeeded each time ({executions})"),
        1 => format!("recovery failed once, but with either value ({executions})"),
        times => format!(
            "recovery failed {} times, but with either value ({executions})",
            count(times)
        ),
    });
    lines
}
