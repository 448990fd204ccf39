//! The pages that explain findings: those of `docs/reference/findings`, embedded and formatted for a terminal.
//!
//! Only the Markdown that the pages use is understood: headings, paragraphs, lists, code, emphasis and
//! links. Paragraphs are wrapped for the terminal's width; code is left unchanged.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use powerfail_finding::{Code, Severity};

use crate::text::{BAD, FAINT, STRONG, WARNING, width as text_width};

const CODE: Style = AnsiColor::Cyan.on_default();

/// Longer lines are hard to read, however wide the terminal is.
const WIDTH_MAX: usize = 100;
const WIDTH_MIN: usize = 20;

/// The page of a code, in Markdown.
pub const fn page(code: Code) -> &'static str {
    macro_rules! page {
        ($name:literal) => {
            include_str!(concat!("../../../docs/reference/findings/", $name, ".md"))
        };
    }
    match code {
        Code::StoreNotFlushed => page!("PF0101"),
        Code::FlushNotFenced => page!("PF0102"),
        Code::AcknowledgedLost => page!("PF0103"),
        Code::ObjectNotPersisted => page!("PF0104"),
        Code::PublishedBeforeDurable => page!("PF0201"),
        Code::RecoveryRejects => page!("PF0301"),
        Code::ContentTorn => page!("PF0302"),
        Code::CheckerRejects => page!("PF0303"),
        Code::StoreNotAdded => page!("PF0304"),
        Code::RecoveryCrashes => page!("PF0401"),
        Code::RecoveryHangs => page!("PF0402"),
        Code::RedundantFlush => page!("PF0501"),
        Code::RedundantFence => page!("PF0502"),
        Code::VolatileFlush => page!("PF0503"),
        Code::TransientData => page!("PF0504"),
        Code::DirtyOverwrite => page!("PF0505"),
        Code::DuplicateAdd => page!("PF0506"),
        Code::AddWithoutStore => page!("PF0507"),
        Code::SharedFlush => page!("PF0601"),
        Code::UnorderedFlushes => page!("PF0602"),
        Code::NotRobust => page!("PF0603"),
        Code::NeighbourFlush => page!("PF0604"),
        Code::LateFlush => page!("PF0605"),
        Code::CrossFailureRace => page!("PF0701"),
        Code::CrossFailureSemantic => page!("PF0702"),
        Code::UninitialisedRead => page!("PF0703"),
        Code::ProgramCrashes => page!("PF0801"),
        Code::ProgramHangs => page!("PF0802"),
        Code::NamedBeforeSynced => page!("PF0901"),
        Code::DirectoryNotSynced => page!("PF0902"),
        Code::WriteNotSynced => page!("PF0903"),
        Code::WriteTorn => page!("PF0904"),
        Code::TruncatedInPlace => page!("PF0905"),
        Code::RemovedBeforeSynced => page!("PF0906"),
        Code::SyncRetried => page!("PF0907"),
        Code::WritesReordered => page!("PF0908"),
        Code::RedundantSync => page!("PF0911"),
        Code::TemporaryElsewhere => page!("PF0921"),
    }
}

/// All codes with their meaning, and the class name that flags and suppressions use.
pub fn list(out: &mut dyn Write) -> io::Result<()> {
    for (severity, heading) in [
        (Severity::Error, "correctness bugs"),
        (Severity::Performance, "performance bugs"),
        (Severity::Warning, "warnings"),
    ] {
        let style = if severity == Severity::Error {
            BAD
        } else {
            WARNING
        };
        writeln!(out, "{STRONG}{heading}{STRONG:#}")?;
        for code in Code::ALL.iter().filter(|code| code.severity() == severity) {
            let (title, class) = (code.title(), code.class());
            writeln!(
                out,
                "  {style}{code}{style:#}  {title:<49} {FAINT}{class}{FAINT:#}"
            )?;
        }
        writeln!(out)?;
    }
    writeln!(out, "run `powerfail explain CODE` for the page of a code")
}

/// The page of a code, set for a terminal of this width.
pub fn explain(out: &mut dyn Write, code: Code, width: Option<usize>) -> io::Result<()> {
    let width = width.unwrap_or(WIDTH_MAX).clamp(WIDTH_MIN, WIDTH_MAX);
    markdown(out, page(code), width)
}

fn markdown(out: &mut dyn Write, text: &str, width: usize) -> io::Result<()> {
    let mut block = Block::default();
    let mut in_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            block.finish(out, width)?;
            in_code = !in_code;
        } else if in_code && !line.is_empty() {
            // The width of a tab depends on the terminal.
            let line = line.replace('\t', "    ");
            writeln!(out, "    {CODE}{line}{CODE:#}")?;
        } else if line.trim().is_empty() {
            block.finish(out, width)?;
            writeln!(out)?;
        } else if let Some(heading) = heading(line) {
            block.finish(out, width)?;
            writeln!(out, "{STRONG}{}{STRONG:#}", plain(heading))?;
        } else if let Some((marker, item)) = list_item(line) {
            block.finish(out, width)?;
            block = Block::item(marker, item);
        } else {
            block.add(line);
        }
    }
    block.finish(out, width)
}

fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    (text.len() < line.len()).then(|| text.strip_prefix(' '))?
}

/// The indented marker of a list item, and its text.
fn list_item(line: &str) -> Option<(&str, &str)> {
    let indentation = line.len() - line.trim_start().len();
    let (marker, _) = line[indentation..].split_once(' ')?;
    let is_number = || {
        marker.strip_suffix('.').is_some_and(|digits| {
            !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit())
        })
    };
    (marker == "-" || is_number()).then(|| line.split_at(indentation + marker.len() + 1))
}

/// A paragraph or an item of a list, until it is complete.
#[derive(Default)]
struct Block {
    marker: String,
    text: String,
}

impl Block {
    fn item(marker: &str, text: &str) -> Self {
        let (marker, text) = (marker.to_owned(), text.to_owned());
        Self { marker, text }
    }

    fn add(&mut self, line: &str) {
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        self.text.push_str(line.trim());
    }

    /// Writes the paragraph, wrapped to the width.
    fn finish(&mut self, out: &mut dyn Write, width: usize) -> io::Result<()> {
        let Self { marker, text } = std::mem::take(self);
        if text.is_empty() {
            return Ok(());
        }
        let hanging = " ".repeat(text_width(&marker));
        let (mut line, mut columns) = (marker, text_width(&hanging));
        let mut is_first = true;
        for word in words(&text) {
            let len: usize = word.iter().map(|(piece, _)| text_width(piece)).sum();
            if !is_first && columns + 1 + len > width {
                writeln!(out, "{line}")?;
                line.clone_from(&hanging);
                columns = text_width(&hanging);
            } else if !is_first {
                line.push(' ');
                columns += 1;
            }
            is_first = false;
            columns += len;
            for (piece, style) in word {
                match style {
                    Some(style) => line = format!("{line}{style}{piece}{style:#}"),
                    None => line += &piece,
                }
            }
        }
        writeln!(out, "{line}")
    }
}

/// A word: pieces that follow each other without a blank, each with its style.
type Word = Vec<(String, Option<Style>)>;

/// Splits a text into words. Code is never broken.
fn words(text: &str) -> Vec<Word> {
    let mut words: Vec<Word> = vec![Vec::new()];
    for (piece, style) in pieces(text) {
        if style == Some(CODE) {
            words.last_mut().expect("never empty").push((piece, style));
            continue;
        }
        for (index, part) in piece.split(' ').enumerate() {
            if index > 0 {
                words.push(Vec::new());
            }
            if !part.is_empty() {
                let word = words.last_mut().expect("never empty");
                word.push((part.to_owned(), style));
            }
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Splits a text where its style changes. What is not closed is ordinary text.
fn pieces(text: &str) -> Vec<(String, Option<Style>)> {
    let mut pieces = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let special = inside(rest, "`", "`")
            .map(|(code, after)| (code, Some(CODE), after))
            .or_else(|| inside(rest, "**", "**").map(|(text, after)| (text, Some(STRONG), after)))
            .or_else(|| {
                // Of a link only the text is shown: its target is of no use on a terminal.
                let (text, after) = inside(rest, "[", "](")?;
                let (_, after) = after.split_once(')')?;
                Some((text, None, after))
            })
            .or_else(|| {
                let (text, after) = inside(rest, "*", "*")?;
                (!text.starts_with(' ')).then_some((text, Some(STRONG), after))
            });
        if let Some((text, style, after)) = special {
            pieces.push((std::mem::take(&mut plain), None));
            // The text of a link or of an emphasis can hold code.
            if style == Some(CODE) {
                pieces.push((text.to_owned(), style));
            } else {
                let inner = self::pieces(text).into_iter();
                pieces.extend(inner.map(|(text, inner)| (text, inner.or(style))));
            }
            rest = after;
        } else {
            plain.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    pieces.push((plain, None));
    pieces
}

/// What stands between two delimiters at the beginning of a text, and what follows.
fn inside<'a>(text: &'a str, open: &str, close: &str) -> Option<(&'a str, &'a str)> {
    let (inside, after) = text.strip_prefix(open)?.split_once(close)?;
    (!inside.is_empty()).then_some((inside, after))
}

fn plain(text: &str) -> String {
    text.replace(['`', '*'], "")
}

#[cfg(test)]
mod tests {
    use super::{markdown, page};
    use powerfail_finding::Code;

    fn rendered(text: &str, width: usize) -> String {
        let mut out = Vec::new();
        markdown(&mut out, text, width).expect("memory");
        let out = String::from_utf8(out).expect("text");
        anstream::adapter::strip_str(&out).to_string()
    }

    #[test]
    fn every_code_has_a_page_with_its_title() {
        for code in Code::ALL {
            let title = page(*code).lines().next().unwrap_or_default();
            assert!(
                title.starts_with(&format!("# {code}")) && title.ends_with(code.title()),
                "{code}: {title}"
            );
            assert!(
                page(*code).lines().count() > 3,
                "{code} has no more than a title"
            );
        }
    }

    #[test]
    fn pages_fit_a_terminal_but_for_code() {
        for code in Code::ALL {
            let prose = |line: &&str| !line.starts_with("    ");
            let text = rendered(page(*code), 60);
            let longest = text
                .lines()
                .filter(prose)
                .map(|line| line.chars().count())
                .max();
            assert!(longest <= Some(60), "{code}: {longest:?}\n{text}");
        }
    }

    #[test]
    fn paragraphs_are_filled_and_code_is_kept() {
        let text = "# A `title`\n\none two\nthree **four five** six\n\n- an item that\n  goes on\n1. one\n\n\
                    ```c\n\tif (a)   /* long line that is not broken */\n\n\tb;\n```\nend `a b c`.";
        assert_eq!(
            rendered(text, 20),
            "A title\n\none two three four\nfive six\n\n- an item that goes\n  on\n1. one\n\n    \
             \x20   if (a)   /* long line that is not broken */\n\n        b;\nend a b c.\n"
        );
    }

    #[test]
    fn marks_that_are_not_closed_are_text() {
        for text in ["2 * 3 * 4", "a `b", "a [b] c", "**", "a_b_c"] {
            assert_eq!(rendered(text, 80), format!("{text}\n"));
        }
        assert_eq!(
            rendered("see [the *model*](model.md), *now*", 80),
            "see the model, now\n"
        );
    }
}
