//! A finding as a bug report for the maintainers of the program, in Markdown.
//!
//! It explains itself: a reader need not know powerfail. What it claims is what the evidence has, and it says how to see
//! that again with the image and a command alone.

use std::io::{self, Write};

use powerfail_finding::{
    Class, DurableBy, Finding, KeptSources, RecoveryOutcome, Report, SourcePlace, TreeCrash,
};

use crate::findings::{label, lost_of_tree};
use crate::text::{plural, printable};

/// Lines of source before and after a place.
const CONTEXT_LINES: usize = 4;
/// Frames of a call stack.
const FRAMES_MAX: usize = 16;
/// Lines of output.
const OUTPUT_LINES: usize = 40;

/// What a bug report says besides the finding.
#[derive(Clone, Debug, Default)]
pub struct IssueFacts {
    /// Names and versions: the program with its build-id, the kernel, the processor.
    pub versions: Vec<(String, String)>,
    /// The persistence domain.
    pub domain: String,
    /// The commands of recovery, with their names, as they were run.
    pub recovery: Vec<(String, String)>,
    /// What recovery was given as its input, if that is text.
    pub input: Option<String>,
    /// The directory with the crash image, if it was written, and the commands to run on it.
    pub image: Option<(String, Vec<String>)>,
    /// The commands need a library of powerfail, because the persistent memory is no file.
    pub needs_runtime: bool,
    /// The command that shows the finding again with powerfail.
    pub replay: Option<String>,
}

/// Writes the report.
pub fn issue(
    out: &mut dyn Write,
    report: &Report,
    finding: &Finding,
    sources: Option<&KeptSources>,
    facts: &IssueFacts,
) -> io::Result<()> {
    writeln!(out, "# {}\n", capital(&inline(&finding.message)))?;
    writeln!(out, "{}\n", introduction(finding, facts))?;
    writeln!(out, "## What happens\n")?;
    what_happens(out, finding)?;
    writeln!(out, "## What was expected\n\n{}\n", expected(finding))?;
    writeln!(out, "## Where\n")?;
    for (number, place) in finding.places.iter().enumerate() {
        where_it_is(out, number + 1, finding, place, sources)?;
    }
    if let Some(suggestion) = &finding.suggestion {
        writeln!(
            out,
            "A change that makes this crash state impossible, verified on the recorded run: {}.\n",
            inline(suggestion)
        )?;
    }
    if let Some(explanation) = &finding.explanation {
        writeln!(out, "Also known: {}.\n", inline(explanation))?;
    }
    see_again(out, finding, facts)?;
    writeln!(out, "## Versions and commands\n")?;
    writeln!(out, "| | |\n| --- | --- |")?;
    for (name, value) in &facts.versions {
        writeln!(out, "| {} | `{}` |", cell(name), cell(value))?;
    }
    writeln!(out, "| powerfail | `{}` |", cell(&report.powerfail))?;
    match (&finding.tree, is_about_files(finding)) {
        (Some(crash), _) => writeln!(out, "| file system | `{}` |", cell(&crash.file_system))?,
        (None, true) => {}
        (None, false) => {
            writeln!(out, "| persistence domain | `{}` |", cell(&facts.domain))?;
        }
    }
    writeln!(out, "| workload | `{}` |", cell(&report.command.join(" ")))?;
    for (name, command) in &facts.recovery {
        writeln!(out, "| {} | `{}` |", cell(name), cell(command))?;
    }
    writeln!(out)?;
    if let Some(input) = &facts.input {
        writeln!(out, "The input of recovery:\n")?;
        block(out, "", input)?;
    }
    writeln!(
        out,
        "Finding {}-{} of powerfail, seen {}.",
        finding.code,
        finding.id,
        plural(finding.count, "time")
    )
}

/// Whether it is about ordinary files, and not about persistent memory.
fn is_about_files(finding: &Finding) -> bool {
    finding.tree.is_some() || finding.code.as_str().starts_with("PF09")
}

fn introduction(finding: &Finding, facts: &IssueFacts) -> String {
    let durable = match finding.durable_by {
        _ if is_about_files(finding) => {
            "What is written to a file is surely durable only after fsync or fdatasync of the file, and its name only after \
             fsync of the directory"
        }
        DurableBy::Flush => "a store is durable only after a flush of its cache line and a fence",
        DurableBy::Sync => {
            "a store to a mapped file is durable only after msync, fsync or fdatasync"
        }
    };
    let how = match (&finding.evidence, &finding.read) {
        (Some(_), _) => {
            "The run was recorded, a power failure was simulated in it, and recovery ran on the content that the failure \
             leaves."
        }
        (None, Some(_)) => {
            "The run was recorded, a power failure was simulated in it, and the reads of recovery were watched."
        }
        (None, None) if is_about_files(finding) => {
            "The run was recorded, and its operations on files were examined."
        }
        (None, None) => "The run was recorded, and its stores, flushes and fences were examined.",
    };
    let found = "This was found with powerfail, a tool that tests programs with persistent data for crash consistency.";
    if is_about_files(finding) {
        return format!("{found} {how} {durable}.");
    }
    format!(
        "{found} {how} In the persistence domain `{}`, {durable}.",
        facts.domain
    )
}

fn what_happens(out: &mut dyn Write, finding: &Finding) -> io::Result<()> {
    if let Some(evidence) = &finding.evidence {
        let lost = &evidence.failure.lost_lines;
        let failure = finding
            .places
            .iter()
            .find(|place| place.event == Some(evidence.failure.event));
        let at = failure.map_or_else(String::new, |place| format!(", at {}", location(place)));
        writeln!(
            out,
            "1. The power fails just before event {} of the run{at}.",
            evidence.failure.event
        )?;
        if let Some(crash) = &finding.tree {
            lost_files(out, crash)?;
        } else if lost.is_empty() {
            writeln!(
                out,
                "2. Every store before that moment is durable, nothing after it."
            )?;
        } else {
            let lines: Vec<String> = lost
                .iter()
                .map(|line| format!("`{:#x}` of pool {}", line.pool_offset, line.pool))
                .collect();
            writeln!(
                out,
                "2. Stores to {} are not durable and are lost: {}. Everything else before that moment survives.",
                plural(lost.len() as u64, "line"),
                lines.join(", ")
            )?;
        }
        if let Some(again) = &evidence.failure.again {
            writeln!(
                out,
                "   The power fails again during recovery, after {} of it.",
                plural(again.events, "event")
            )?;
        }
        let outcome = &evidence.recovery;
        writeln!(
            out,
            "3. The {} {}.\n",
            outcome.command(),
            inline(&outcome.to_string())
        )?;
        if !outcome.output().trim().is_empty() {
            let what = match outcome {
                RecoveryOutcome::Content { .. } => "The recovered content",
                _ => "Its output",
            };
            writeln!(out, "{what}:\n")?;
            block(out, "text", outcome.output())?;
        }
        if let Some(difference) = &evidence.difference {
            writeln!(out, "The difference to what should have been recovered:\n")?;
            block(out, "diff", difference)?;
        }
        return Ok(());
    }
    if let Some(read) = &finding.read {
        return writeln!(
            out,
            "If the power fails just before event {}, {} reads bytes that may not be durable: `{}`{}.\n",
            read.event,
            inline(&read.command),
            inline(&read.bytes),
            match read.instead.first() {
                Some(other) => format!(", or `{}` if a store is lost", inline(other)),
                None => String::new(),
            }
        );
    }
    writeln!(out, "{}.\n", capital(&inline(&finding.message)))
}

/// What a crash takes of ordinary files, and where it can happen.
fn lost_files(out: &mut dyn Write, crash: &TreeCrash) -> io::Result<()> {
    if crash.is_prefix() {
        return writeln!(
            out,
            "2. Everything that was done to files before that moment is durable, nothing after it."
        );
    }
    writeln!(
        out,
        "2. What is not durable at that moment is lost in part: {}. Everything else before it survives.",
        lost_of_tree(crash)
    )?;
    let systems = |shows: bool| {
        let of = crash.shows_on.iter().filter(move |it| it.shows == shows);
        let names: Vec<&str> = of.map(|it| it.file_system.as_str()).collect();
        names.join(", ")
    };
    match (systems(true), systems(false)) {
        (yes, _) if yes.is_empty() => Ok(()),
        (yes, no) if no.is_empty() => writeln!(out, "   This can happen on {yes}."),
        (yes, no) => writeln!(out, "   This can happen on {yes}, and not on {no}."),
    }
}

fn expected(finding: &Finding) -> &'static str {
    if let Some(evidence) = &finding.evidence {
        return match &evidence.recovery {
            RecoveryOutcome::Exit { .. } => {
                "Whenever the power fails, recovery finds data that it accepts, and succeeds."
            }
            RecoveryOutcome::Signal { .. } => "Whenever the power fails, recovery does not crash.",
            RecoveryOutcome::Timeout { .. } => "Whenever the power fails, recovery ends.",
            RecoveryOutcome::Output { .. } => {
                "Whenever the power fails, recovery reports no failure."
            }
            RecoveryOutcome::Content { .. } => {
                "Whenever the power fails, what is recovered is the content before the interrupted operation or after it, \
                 and nothing that was acknowledged is lost."
            }
        };
    }
    match finding.class {
        Class::CrossFailureRace | Class::CrossFailureSemantic | Class::UninitialisedRead => {
            "Recovery depends only on data that is surely durable and valid."
        }
        Class::RedundantFlush
        | Class::RedundantFence
        | Class::VolatileFlush
        | Class::UnneededAdd
        | Class::DirtyOverwrite => "The program does not pay for an operation that has no effect.",
        _ => "Data that the program keeps is made durable.",
    }
}

fn where_it_is(
    out: &mut dyn Write,
    number: usize,
    finding: &Finding,
    place: &SourcePlace,
    sources: Option<&KeptSources>,
) -> io::Result<()> {
    writeln!(
        out,
        "{number}. {}: {}.\n",
        location(place),
        inline(&label(finding, place))
    )?;
    let text = place.file.as_ref();
    let text = text.and_then(|file| sources?.files.get(file));
    if let (Some(text), Some(line)) = (text, place.line) {
        let line = line as usize;
        let first = line.saturating_sub(CONTEXT_LINES).max(1);
        let shown = text
            .lines()
            .enumerate()
            .map(|(index, text)| (index + 1, text));
        let shown = shown.filter(|(at, _)| (first..=line + CONTEXT_LINES).contains(at));
        let shown = shown.map(|(at, text)| {
            let mark = if at == line { '>' } else { ' ' };
            format!("{mark}{at:5}  {text}")
        });
        block(out, "", &shown.collect::<Vec<_>>().join("\n"))?;
    }
    if place.stack.len() > 1 {
        writeln!(out, "<details><summary>call stack</summary>\n")?;
        let frames = place.stack.iter().take(FRAMES_MAX).map(|frame| {
            let function = frame.function.as_deref().unwrap_or("?");
            let at = match (&frame.file, frame.line, &frame.module) {
                (Some(file), Some(line), _) => format!("{file}:{line}"),
                (_, _, Some(module)) => format!("{module}+{:#x}", frame.offset),
                _ => format!("{:#x}", frame.offset),
            };
            format!("{function}  {at}")
        });
        block(out, "", &frames.collect::<Vec<_>>().join("\n"))?;
        writeln!(out, "</details>\n")?;
    }
    Ok(())
}

fn see_again(out: &mut dyn Write, finding: &Finding, facts: &IssueFacts) -> io::Result<()> {
    writeln!(out, "## How to see it again\n")?;
    match &facts.image {
        Some((directory, commands)) => {
            let has = if is_about_files(finding) {
                "has the files"
            } else {
                "is the content of the persistent memory"
            };
            writeln!(
                out,
                "The attached directory `{}` {has} after the failure. powerfail is not needed to see the failure:\n",
                inline(directory)
            )?;
            block(out, "sh", &commands.join("\n"))?;
            writeln!(
                out,
                "The commands may change the image: run them on a copy to see the failure more than once.\n"
            )?;
            if facts.needs_runtime {
                writeln!(
                    out,
                    "This persistent memory is no file, so the commands need powerfail's library: use `powerfail replay`.\n"
                )?;
            }
        }
        None if finding.evidence.is_some() || finding.read.is_some() => writeln!(
            out,
            "The crash image is not attached; `powerfail report --issue {} --image DIR` writes it, with the commands to run \
             on it.\n",
            finding.id
        )?,
        None => writeln!(
            out,
            "No failure is needed: the record of the run shows it, and so does reading the lines above.\n"
        )?,
    }
    if let Some(replay) = &facts.replay {
        writeln!(out, "With powerfail and its output directory:\n")?;
        block(out, "sh", replay)?;
    }
    Ok(())
}

fn location(place: &SourcePlace) -> String {
    let mut text = match (&place.file, place.line, &place.module) {
        (Some(file), Some(line), _) => format!("`{}:{line}`", inline(file)),
        (Some(file), None, _) => format!("`{}`", inline(file)),
        (None, _, Some(module)) => format!("`{}`", inline(module)),
        (None, _, None) => "an unknown place".to_owned(),
    };
    if let Some(function) = &place.function {
        text = format!("{text} in `{}`", inline(function));
    }
    text
}

/// Text inside of a line: safe to print, and no end of the line.
fn inline(text: &str) -> String {
    printable(text).replace('`', "'")
}

/// Text inside of a table.
fn cell(text: &str) -> String {
    inline(text).replace('|', "\\|")
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters
        .next()
        .map(|letter| letter.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}

/// A block of code, whatever the text has in it.
fn block(out: &mut dyn Write, language: &str, text: &str) -> io::Result<()> {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let left = lines.len().saturating_sub(OUTPUT_LINES);
    let longest = text.split(|letter| letter != '`').map(str::len).max();
    let fence = "`".repeat(longest.unwrap_or(0).max(2) + 1);
    writeln!(out, "{fence}{language}")?;
    for line in &lines[..lines.len() - left] {
        writeln!(
            out,
            "{}",
            line.split('\t')
                .map(printable)
                .collect::<Vec<_>>()
                .join("\t")
        )?;
    }
    if left > 0 {
        writeln!(out, "... {}", plural(left as u64, "more line"))?;
    }
    writeln!(out, "{fence}\n")
}
