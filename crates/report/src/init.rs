//! What `powerfail init` proposes: the file that it writes, and what it says about it.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

use powerfail_finding::{Proposal, RecoveryTrial};

use crate::findings::not_checked_text;
use crate::text::{BAD, GOOD, STRONG, WARNING, count, plural, printable};

/// How many files are named in one line.
const NAMED_MAX: usize = 5;

/// The content of `powerfail.toml`.
pub fn file(proposal: &Proposal) -> String {
    let mut text = format!(
        "# Proposed by powerfail init after a trial of: {}\n\
         # `powerfail check` in this directory uses it, without any argument. `powerfail help check` lists all options.\n\
         \n\
         [check]\n\
         # The program that is run and recorded, as a list of words. {{pool}} stands for the path of a fresh file,\n\
         # {{dir}} for that of a fresh directory: each run begins without data.\n",
        comment(&proposal.given.join(" "))
    );
    let words = &proposal.command;
    let is_pool = proposal.domain.is_some();
    let data = if is_pool { "{pool}" } else { "{dir}" };
    let _ = writeln!(text, "command = {}", list(words));
    for (verb, names) in [("maps", &proposal.mapped), ("writes", &proposal.written)] {
        if !names.is_empty() {
            let _ = writeln!(text, "# In the trial it {verb} {}.", comment(&some(names)));
        }
    }
    if !proposal.trees.is_empty() {
        text.push_str(
            "\n# The directories whose files are recorded, with everything below them.\n",
        );
        let _ = writeln!(text, "tree = {}", list(&proposal.trees));
    }
    match &proposal.domain {
        Some(domain) => {
            let _ = write!(
                text,
                "\n# What makes a store durable: adr (a flush and a fence), eadr (a fence at most), pagecache (msync or fsync).\n\
                 # {}.\n\
                 domain = {}\n",
                comment(&domain.reason),
                quoted(domain.name)
            );
        }
        None => text.push_str(
            "\n# Whose rules say what a crash leaves of files: linux is at least one of ext4, xfs and btrfs.\n\
             fs = \"linux\"\n",
        ),
    }
    text.push_str(
        "\n# The command that opens the data after a crash. It must exit with a code other than 0, or crash, if the data is\n\
         # damaged.\n",
    );
    match &proposal.recover {
        Some(recover) => {
            let _ = writeln!(text, "recover = {}", quoted(recover));
        }
        None => {
            let program = words.first().map_or("./program", String::as_str);
            let example = format!("{program} --check {data}");
            text.push_str("# Without it the workload runs again.\n");
            let _ = writeln!(text, "# recover = {}", quoted(&example));
        }
    }
    match &proposal.recovery {
        RecoveryTrial::Succeeds => {}
        RecoveryTrial::ShowsNothing(reason) => {
            let (why, help) = not_checked_text(*reason);
            let _ = writeln!(text, "# In the trial, {why}: {help}.");
        }
        RecoveryTrial::Fails(sentence) => {
            let _ = writeln!(
                text,
                "# In the trial, {}.",
                comment(sentence.trim_end_matches('.'))
            );
        }
    }
    let _ = write!(
        text,
        "\n# Also run after each recovery: a command that checks the data, and one that prints it. With `dump`, the loss of data\n\
         # is found that recovery does not notice.\n\
         # checker = \"./fsck {data}\"\n\
         # dump = \"./dump {data}\"\n\
         \n\
         # How long a check may take; the most valuable crashes come first. In the trial one recovery took about {}.\n\
         budget = {}\n",
        short(proposal.recovery_time),
        quoted(&short(proposal.budget))
    );
    if let Some(schedules) = proposal.schedules {
        let is_fresh = words.iter().any(|word| word.contains("{pool}"));
        let _ = write!(
            text,
            "\n# The program has several threads: record this many orders of them, and check each that differs.\n\
             {}schedules = {schedules}\n",
            // Each recording has to begin with the same content.
            if is_fresh { "" } else { "# " }
        );
    }
    text.push_str(
        "\n# Findings that were reviewed and are not to be reported again:\n\
         # [[suppress]]\n\
         # code = \"PF0504\"\n\
         # function = \"lru_*\"\n\
         # reason = \"the order of eviction may be lost\"\n",
    );
    text
}

/// What was seen, what was chosen, and what cannot be seen.
pub fn text(out: &mut dyn Write, proposal: &Proposal, path: &str) -> io::Result<()> {
    let mut field =
        |name: &str, value: &str| writeln!(out, "{STRONG}{name:<9}{STRONG:#} {}", printable(value));
    field("command", &proposal.command.join(" "))?;
    for (name, names) in [("maps", &proposal.mapped), ("writes", &proposal.written)] {
        if !names.is_empty() {
            field(name, &some(names))?;
        }
    }
    if !proposal.trees.is_empty() {
        field("tree", &proposal.trees.join(", "))?;
    }
    if let Some(domain) = &proposal.domain {
        field("domain", &format!("{}: {}", domain.name, domain.reason))?;
    }
    let recover = proposal.recover.as_deref().unwrap_or("the workload again");
    let events = plural(proposal.events, "event");
    match &proposal.recovery {
        RecoveryTrial::Succeeds => {
            field("recovery", &format!("{recover}: succeeds without a crash"))?;
            let points = plural(proposal.failure_points, "failure point");
            field(
                "budget",
                &format!(
                    "{}: {events}, {points}, about {} for a recovery",
                    short(proposal.budget),
                    short(proposal.recovery_time)
                ),
            )?;
        }
        RecoveryTrial::ShowsNothing(reason) => {
            let (why, _) = not_checked_text(*reason);
            field("recovery", &format!("{recover}: {why}"))?;
        }
        RecoveryTrial::Fails(_) => field("recovery", &format!("{recover}: fails without a crash"))?,
    }
    for sentence in &proposal.unseen {
        writeln!(out, "{STRONG}not seen:{STRONG:#} {}", printable(sentence))?;
    }
    if proposal.bugs > 0 {
        let found = match proposal.bugs {
            1 => "a bug".to_owned(),
            number => format!("{} bugs", count(number)),
        };
        writeln!(
            out,
            "{WARNING}note:{WARNING:#} the trial has found {found} already"
        )?;
    }
    writeln!(out)?;
    match &proposal.recovery {
        RecoveryTrial::Succeeds => {
            writeln!(out, "{GOOD}wrote{GOOD:#} {path}; next: powerfail check")
        }
        RecoveryTrial::ShowsNothing(reason) => {
            let (_, help) = not_checked_text(*reason);
            writeln!(
                out,
                "{WARNING}wrote{WARNING:#} {path}, which is not complete"
            )?;
            writeln!(out, "{STRONG}help:{STRONG:#} {help}")
        }
        RecoveryTrial::Fails(sentence) => {
            writeln!(
                out,
                "{BAD}wrote{BAD:#} {path}, which is not complete: {}",
                printable(sentence)
            )?;
            writeln!(
                out,
                "{STRONG}help:{STRONG:#} give a command that opens the data: powerfail init --force --recover CMD -- {}",
                printable(&proposal.given.join(" "))
            )
        }
    }
}

/// The first names of a list.
fn some(names: &[String]) -> String {
    let shown = names.iter().take(NAMED_MAX).map(String::as_str);
    let shown = shown.collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED_MAX) as u64 {
        0 => shown,
        more => format!("{shown} and {} more", count(more)),
    }
}

/// A duration as options are written: `2m`, `250ms`.
fn short(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 => format!("{}ms", time.as_millis().max(1)),
        _ if seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        _ => format!("{seconds}s"),
    }
}

/// Text that stays in its comment.
fn comment(text: &str) -> String {
    let shown = |letter: char| if letter.is_control() { ' ' } else { letter };
    text.chars().map(shown).collect()
}

fn list(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    format!("[{}]", words.join(", "))
}

/// A string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            letter if letter.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(letter));
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_quoted() {
        assert_eq!(quoted("a\"b\\c\n{dir}"), r#""a\"b\\c\u000A{dir}""#);
        assert_eq!(list(&["a".to_owned(), "b c".to_owned()]), r#"["a", "b c"]"#);
    }

    #[test]
    fn durations_are_those_of_options() {
        assert_eq!(short(Duration::from_mins(4)), "4m");
        assert_eq!(short(Duration::from_secs(90)), "90s");
        assert_eq!(short(Duration::from_micros(3)), "1ms");
    }
}
