//! `--changed-since`: which call stacks are new, because the last run has not tried them, or because they pass through
//! source lines that were changed. They are tried first, so that a short budget is spent on them. The order changes nothing
//! else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use powerfail_finding::{Coverage, KeptSources, StackFrame};
use powerfail_trace::StackId;

use crate::places::Places;

/// A longer source file is not read.
const SOURCE_BYTES_MAX: u64 = 1 << 20;

/// What a call stack is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedSince {
    /// What the user has written.
    name: String,
    reference: Reference,
}

/// What the run is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reference {
    /// The call stacks that a run has tried.
    Tried(BTreeSet<Vec<String>>),
    /// The lines that were changed, by file. Paths are relative.
    Lines(BTreeMap<PathBuf, Vec<Range<u32>>>),
}

impl ChangedSince {
    /// New is what a run has not tried. A frame is known by its function and the text of its source line, so that edits
    /// elsewhere, which move lines, change nothing.
    pub fn run(name: &str, coverage: &Coverage, sources: Option<&KeptSources>) -> Self {
        let text_of = |frame: &StackFrame| {
            let text = sources?.files.get(frame.file.as_deref()?)?;
            line_of(text, frame.line?)
        };
        let keys: Vec<String> = coverage
            .frames
            .iter()
            .map(|frame| key(frame, text_of(frame).as_deref()))
            .collect();
        let tried = coverage.stacks.iter();
        let tried = tried.filter(|it| it.prefix.tried > 0 || it.lost_lines.tried > 0);
        let stacks = tried.map(|it| {
            let frames = it.stack.iter();
            frames
                .filter_map(|number| keys.get(*number).cloned())
                .collect()
        });
        Self {
            name: name.to_owned(),
            reference: Reference::Tried(stacks.collect()),
        }
    }

    /// New is what passes through changed lines: ranges of line numbers, by relative path.
    pub fn lines(name: &str, lines: BTreeMap<PathBuf, Vec<Range<u32>>>) -> Self {
        Self {
            name: name.to_owned(),
            reference: Reference::Lines(lines),
        }
    }

    /// The call stacks that are new.
    pub(crate) fn new_stacks(
        &self,
        stacks: impl Iterator<Item = StackId>,
        places: &mut Places<'_>,
    ) -> BTreeSet<StackId> {
        let mut files = SourceLines::default();
        let stacks: BTreeSet<StackId> = stacks.collect();
        let is_new = |stack: &StackId| self.is_new(&places.stack(*stack), &mut files);
        stacks.into_iter().filter(is_new).collect()
    }

    fn is_new(&self, frames: &[StackFrame], files: &mut SourceLines) -> bool {
        match &self.reference {
            Reference::Tried(tried) => {
                let keys = frames.iter();
                let keys = keys.map(|frame| key(frame, files.line(frame)));
                !tried.contains(&keys.collect::<Vec<String>>())
            }
            Reference::Lines(lines) => frames.iter().any(|frame| {
                let (Some(file), Some(line)) = (&frame.file, frame.line) else {
                    return false;
                };
                // The program may have been built elsewhere, so the end of a path counts.
                let mut changed = lines.iter().filter(|it| Path::new(file).ends_with(it.0));
                changed.any(|(_, ranges)| ranges.iter().any(|range| range.contains(&line)))
            }),
        }
    }

    /// What the report says about it.
    pub(crate) fn note(&self, new: usize, all: usize) -> String {
        let name = &self.name;
        let plural = if all == 1 { "" } else { "s" };
        let first = if new == 0 { "" } else { ", tried first" };
        format!("new since {name}: {new} of {all} call stack{plural}{first}")
    }
}

fn line_of(text: &str, line: u32) -> Option<String> {
    let line = text.lines().nth(line.checked_sub(1)? as usize)?;
    Some(line.trim().to_owned())
}

fn key(frame: &StackFrame, text: Option<&str>) -> String {
    let place = match (text, frame.line) {
        (Some(text), _) => text.to_owned(),
        (None, Some(line)) => line.to_string(),
        (None, None) => match (&frame.module, &frame.function) {
            // In a library without line numbers the function has to do: an address changes with every build.
            (_, Some(_)) => String::new(),
            (module, None) => format!("{}+{:#x}", module.as_deref().unwrap_or("?"), frame.offset),
        },
    };
    format!("{}\n{place}", frame.function.as_deref().unwrap_or("?"))
}

/// Source files as they are now.
#[derive(Default)]
struct SourceLines(BTreeMap<String, Vec<String>>);

impl SourceLines {
    fn line(&mut self, frame: &StackFrame) -> Option<&str> {
        // Those of libraries are not kept with a run either.
        let file = frame.file.as_ref().filter(|_| !frame.trusted)?;
        let lines = self.0.entry(file.clone()).or_insert_with(|| {
            let metadata = fs::metadata(file).ok().filter(fs::Metadata::is_file);
            let is_small = metadata.is_some_and(|it| it.len() <= SOURCE_BYTES_MAX);
            let bytes = is_small.then(|| fs::read(file).ok()).flatten();
            let text = String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned();
            text.lines().map(|line| line.trim().to_owned()).collect()
        });
        let number = frame.line?.checked_sub(1)? as usize;
        lines.get(number).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use powerfail_finding::{CoverageBuilder, Tries};

    use super::*;

    fn frame(function: &str, file: &str, line: u32) -> StackFrame {
        StackFrame {
            function: Some(function.to_owned()),
            file: Some(file.to_owned()),
            line: Some(line),
            module: Some("store".to_owned()),
            offset: 0x1000,
            trusted: false,
        }
    }

    fn tries(tried: u64) -> Tries {
        Tries {
            points: 1,
            tried,
            ..Tries::default()
        }
    }

    fn is_new(since: &ChangedSince, frames: &[StackFrame]) -> bool {
        since.is_new(frames, &mut SourceLines::default())
    }

    #[test]
    fn lines_that_moved_are_known_and_lines_that_changed_are_new() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("store.c");
        let path = file.to_str().expect("a path");
        let mut builder = CoverageBuilder::default();
        builder.add(vec![frame("put", path, 2)], tries(1), Tries::default());
        builder.add(vec![frame("get", path, 3)], tries(0), Tries::default());
        let sources = KeptSources {
            schema: 1,
            files: BTreeMap::from([(path.to_owned(), "\n persist(a);\n persist(b);\n".to_owned())]),
            left_out: Vec::new(),
        };
        let since = ChangedSince::run("old", &builder.finish(), Some(&sources));
        fs::write(
            &file,
            "// moved\n\n\tpersist(a);\n persist(b);\n persist(c);\n",
        )
        .expect("a file");
        assert!(!is_new(&since, &[frame("put", path, 3)]), "only moved");
        assert!(is_new(&since, &[frame("put", path, 5)]), "another line");
        assert!(is_new(&since, &[frame("set", path, 3)]), "another function");
        assert!(is_new(&since, &[frame("get", path, 4)]), "was not tried");
    }

    #[test]
    fn any_numbers_can_be_in_the_file_of_a_run() {
        let mut builder = CoverageBuilder::default();
        let most = Tries {
            points: u64::MAX,
            tried: u64::MAX,
            sampled: u64::MAX,
            failed: u64::MAX,
        };
        builder.add(vec![frame("put", "a.c", 2)], most, most);
        builder.add(vec![frame("put", "a.c", 2)], most, most);
        let mut coverage = builder.finish();
        coverage.stacks[0].stack.push(usize::MAX);
        let since = ChangedSince::run("old", &coverage, None);
        assert!(!is_new(&since, &[frame("put", "a.c", 2)]));
    }

    #[test]
    fn a_call_stack_through_a_changed_line_is_new() {
        let ranges = std::iter::once(10..20).collect();
        let lines = BTreeMap::from([(PathBuf::from("src/store.c"), ranges)]);
        let since = ChangedSince::lines("main", lines);
        let of = |file, line| {
            is_new(
                &since,
                &[frame("f", "/b/src/main.c", 1), frame("g", file, line)],
            )
        };
        assert!(of("/build/src/store.c", 10));
        assert!(!of("/build/src/store.c", 20));
        assert!(!of("/build/src/restore.c", 10), "names match as a whole");
        assert_eq!(since.note(0, 1), "new since main: 0 of 1 call stack");
        assert_eq!(
            since.note(2, 3),
            "new since main: 2 of 3 call stacks, tried first"
        );
    }
}
