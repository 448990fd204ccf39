//! The bugs planted in the key-value shell, read from the comments in its sources, and which findings show them. Used
//! by the benchmark and by the test of the shell.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use powerfail_finding::{Code, Finding, Role, Severity, SourcePlace};

/// A line at which findings show the bug: findings with these codes and, for a correctness bug, all errors. Which of
/// several symptoms is reported depends on the workload.
#[derive(Debug)]
pub(crate) struct PlantedLine {
    pub(crate) file: String,
    pub(crate) line: u32,
    pub(crate) codes: Vec<Code>,
}

/// A planted bug.
#[derive(Debug, Default)]
pub(crate) struct Bug {
    /// What is wrong, in a sentence.
    pub(crate) what: String,
    pub(crate) lines: Vec<PlantedLine>,
}

impl Bug {
    /// Whether a finding is about this bug.
    pub(crate) fn is_shown_by(&self, finding: &Finding) -> bool {
        self.lines.iter().any(|planted| planted.shows(finding))
    }
}

impl PlantedLine {
    /// A finding is located at its first place. If the usual symptom is a failed recovery, the store that should not
    /// have survived is accepted as well.
    fn shows(&self, finding: &Finding) -> bool {
        let is_usual = self.codes.contains(&finding.code);
        let is_error = |code: &Code| code.severity() == Severity::Error;
        let accepted = match finding.severity {
            Severity::Error => self.codes.iter().any(is_error),
            Severity::Performance => is_usual,
            Severity::Warning => false,
        };
        let mut places = finding.places.iter();
        let is_first = places.next().is_some_and(|place| self.is_at(place));
        let mut survivors = places.filter(|place| place.role == Role::Survivor);
        let is_survivor = is_usual && survivors.any(|place| self.is_at(place));
        accepted && (is_first || is_survivor)
    }

    fn is_at(&self, place: &SourcePlace) -> bool {
        let file = place
            .file
            .as_deref()
            .map(Path::new)
            .and_then(Path::file_name);
        place.line == Some(self.line) && file.is_some_and(|file| file == self.file.as_str())
    }
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
    let codes = codes.map(|it| it.trim_end_matches(',').parse().expect("a code"));
    let codes: Vec<_> = codes.collect();
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
