//! Source lines with what happens on them.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use annotate_snippets::{Annotation, AnnotationKind, Group, Origin, Snippet};
use powerfail_finding::{Finding, SourcePlace};

use super::label::{helper_label, label};
use crate::text::printable;

/// Larger files are not written by hand.
const SOURCE_BYTES_MAX: u64 = 32 << 20;

/// Source files that were read, or could not be.
pub(super) struct Sources<'a> {
    base: &'a Path,
    files: HashMap<String, Option<String>>,
}

impl<'a> Sources<'a> {
    pub(super) fn new(base: &'a Path) -> Self {
        let files = HashMap::new();
        Self { base, files }
    }

    /// How a path is shown: below the working directory without it, and safe to print.
    pub(super) fn shown(&self, path: &str) -> String {
        let short = Path::new(path).strip_prefix(self.base).ok();
        let short = short.and_then(Path::to_str).unwrap_or(path);
        printable(short).into_owned()
    }

    fn text(&mut self, path: &str) -> Option<&str> {
        let base = self.base;
        let read = || read_source(&base.join(path));
        let text = self.files.entry(path.to_owned()).or_insert_with(read);
        text.as_deref()
    }
}

/// The text of a source file. Bytes that are not UTF-8 are replaced: they are usually in comments.
fn read_source(path: &PathBuf) -> Option<String> {
    // Asked before opening: opening a FIFO would wait for its other end.
    let metadata = std::fs::metadata(path).ok()?;
    if !metadata.is_file() || metadata.len() > SOURCE_BYTES_MAX {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(path).ok()?.read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Where the code of a line is in its file: without indentation and without a comment at its end.
fn code_span(text: &str, line: u32) -> Option<Range<usize>> {
    let number = usize::try_from(line).ok()?.checked_sub(1)?;
    let mut start = 0;
    let content = text
        .split_inclusive('\n')
        .enumerate()
        .find_map(|(index, content)| {
            let found = (index == number).then_some(content);
            start += if found.is_none() { content.len() } else { 0 };
            found
        })?;
    let code = [" //", "\t//", " /*", "\t/*"]
        .into_iter()
        .filter_map(|comment| content.find(comment))
        .map(|at| &content[..at])
        .filter(|code| !code.trim().is_empty())
        .min_by_key(|code| code.len())
        .unwrap_or(content);
    let indentation = code.len() - code.trim_start().len();
    let len = code.trim().len();
    (len > 0).then(|| start + indentation..start + indentation + len)
}

/// Adds the places of a finding: those with sources as annotated lines, one snippet for each file,
/// then the others by name.
pub(super) fn add_places<'f>(
    mut group: Group<'f>,
    finding: &Finding,
    sources: &mut Sources<'_>,
) -> Group<'f> {
    // In the order of their first place, so that the store to blame comes first.
    let mut snippets: Vec<(String, Vec<Mark>)> = Vec::new();
    let mut elsewhere: Vec<String> = Vec::new();
    let mut primary_is_marked = false;
    for (index, place) in finding.places.iter().enumerate() {
        let words = label(finding, place);
        match marked(place.file.as_deref(), place.line, sources) {
            Some((file, span)) => {
                let is_primary = index == 0;
                primary_is_marked |= is_primary;
                add_mark(
                    &mut snippets,
                    file,
                    Mark {
                        span,
                        words,
                        is_primary,
                    },
                );
            }
            None => elsewhere.push(format!("{}: {words}", location(place, sources))),
        }
        if let Some(helper) = &place.helper
            && let Some((file, span)) = marked(helper.file.as_deref(), helper.line, sources)
        {
            let mark = Mark {
                span,
                words: helper_label(place, helper),
                is_primary: false,
            };
            add_mark(&mut snippets, file, mark);
        }
    }
    let mut elsewhere = elsewhere.into_iter();
    if !primary_is_marked && let Some(first) = elsewhere.next() {
        group = group.element(Origin::path(first));
    }
    for (file, marks) in snippets {
        let text = sources.text(&file).unwrap_or_default().to_owned();
        group = group.element(
            Snippet::source(text)
                .path(sources.shown(&file))
                .annotations(marks.into_iter().map(Mark::into_annotation)),
        );
    }
    for other in elsewhere {
        group = group.element(Origin::path(other));
    }
    group
}

/// A part of a source that has a label.
struct Mark {
    span: Range<usize>,
    words: String,
    is_primary: bool,
}

impl Mark {
    fn into_annotation<'a>(self) -> Annotation<'a> {
        let kind = if self.is_primary {
            AnnotationKind::Primary
        } else {
            AnnotationKind::Context
        };
        kind.span(self.span).label(self.words)
    }
}

/// Adds a mark to those of its file.
fn add_mark(snippets: &mut Vec<(String, Vec<Mark>)>, file: String, mark: Mark) {
    let position = snippets.iter().position(|(other, _)| *other == file);
    let position = position.unwrap_or_else(|| {
        snippets.push((file, Vec::new()));
        snippets.len() - 1
    });
    let marks = &mut snippets[position].1;
    match marks.iter_mut().find(|known| known.span == mark.span) {
        // Two labels at the same code would be drawn over each other.
        Some(known) if known.words == mark.words => {}
        Some(known) => known.words = format!("{}; {}", known.words, mark.words),
        None => marks.push(mark),
    }
}

/// Where the code of a line is, if its source can be read.
fn marked(
    file: Option<&str>,
    line: Option<u32>,
    sources: &mut Sources<'_>,
) -> Option<(String, Range<usize>)> {
    let (file, line) = (file?, line?);
    let span = code_span(sources.text(file)?, line)?;
    Some((file.to_owned(), span))
}

/// A place in words: `map.c:17 in insert`, `map.c in insert`, `server+0x1234 in insert`.
fn location(place: &SourcePlace, sources: &Sources<'_>) -> String {
    let mut text = match (&place.file, place.line) {
        (Some(file), Some(line)) => format!("{}:{line}", sources.shown(file)),
        (Some(file), None) => sources.shown(file),
        (None, _) => match (&place.module, place.code()) {
            (Some(module), Some((_, offset))) => {
                let name = module.rsplit('/').next().unwrap_or(module);
                format!("{}+{offset:#x}", printable(name))
            }
            (Some(module), None) => printable(module).into_owned(),
            (None, Some((_, offset))) => format!("{offset:#x}"),
            (None, None) => "unknown place".to_owned(),
        },
    };
    if let Some(function) = &place.function {
        text = format!("{text} in {}", printable(function));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::code_span;

    #[test]
    fn the_code_of_a_line_is_marked() {
        let text = "first\n\tx = 1; /* why */\r\n\n  // only a comment\nlast \"//\"";
        let code = |line| code_span(text, line).map(|span| &text[span]);
        assert_eq!(code(1), Some("first"));
        assert_eq!(code(2), Some("x = 1;"));
        assert_eq!(code(3), None);
        assert_eq!(code(4), Some("// only a comment"));
        assert_eq!(code(5), Some("last \"//\""));
        assert_eq!(code(6), None);
        assert_eq!(code(0), None);
    }
}
