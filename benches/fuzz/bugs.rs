//! The bugs that are planted in the key-value shell, read from the comments in its sources, and which findings
//! show them. Used by the benchmark and by the test of the shell.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use powerfail_finding::{Finding, Role, Severity, SourcePlace};

/// A line at which a finding with one of some codes shows the bug.
#[derive(Debug)]
pub(crate) struct PlantedLine {
    pub(crate) file: String,
    pub(crate) line: u32,
    pub(crate) codes: Vec<String>,
}

/// A planted bug.
#[derive(Debug, Default)]
pub(crate) struct Bug {
    /// What is wrong, in a sentence.
    pub(crate) what: String,
    pub(crate) lines: Vec<PlantedLine>,
}

impl Bug {
    /// Whether a finding is about this bug. Where a crash showed it, the survivor may be at the line as well.
    pub(crate) fn is_shown_by(&self, finding: &Finding) -> bool {
        finding.severity != Severity::Warning
            && self.lines.iter().any(|planted| {
                let codes = &planted.codes;
                codes.iter().any(|code| code == finding.code.as_str())
                    && places(finding).any(|place| planted.is_at(place))
            })
    }
}

impl PlantedLine {
    fn is_at(&self, place: &SourcePlace) -> bool {
        let file = place
            .file
            .as_deref()
            .map(Path::new)
            .and_then(Path::file_name);
        place.line == Some(self.line) && file.is_some_and(|file| file == self.file.as_str())
    }
}

/// The places that say which bug it is: the first one, and what survives.
fn places(finding: &Finding) -> impl Iterator<Item = &SourcePlace> {
    let survivors = finding.places.iter().skip(1);
    let survivors = survivors.filter(|place| place.role == Role::Survivor);
    finding.places.first().into_iter().chain(survivors)
}

/// All bugs in the sources of a directory, by number.
pub(crate) fn planted(sources: &Path) -> BTreeMap<u32, Bug> {
    let mut bugs: BTreeMap<u32, Bug> = BTreeMap::new();
    let mut files: Vec<_> = fs::read_dir(sources)
        .expect("a directory with sources")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|it| it == "c"))
        .collect();
    files.sort();
    for path in files {
        let file = path.file_name().and_then(|it| it.to_str()).expect("a name");
        let text = fs::read_to_string(&path).expect("a source");
        for (line, number) in text.lines().zip(1..) {
            if let Some((_, comment)) = line.split_once("// bug ") {
                add(&mut bugs, file, number, comment);
            }
        }
    }
    bugs
}

/// Reads `7: PF0506, PF0507 what`.
fn add(bugs: &mut BTreeMap<u32, Bug>, file: &str, line: u32, comment: &str) {
    let (number, rest) = comment.split_once(':').expect("a number and a colon");
    let bug = bugs.entry(number.parse().expect("a number")).or_default();
    let is_code = |word: &&str| word.starts_with("PF");
    let words = rest.split_whitespace();
    let codes = words.clone().take_while(is_code);
    let codes: Vec<_> = codes
        .map(|it| it.trim_end_matches(',').to_owned())
        .collect();
    assert!(!codes.is_empty(), "{file}:{line}: no code");
    let what: Vec<_> = words.skip_while(is_code).collect();
    if !what.is_empty() {
        bug.what = what.join(" ");
    }
    bug.lines.push(PlantedLine {
        file: file.to_owned(),
        line,
        codes,
    });
}
