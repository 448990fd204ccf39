//! `[[suppress]]`: findings that were reviewed and are acceptable.

use powerfail_finding::{Code, Finding};
use serde::Deserialize;

use crate::error::{ConfigError, Problem};
use crate::file::FILE_NAME;
use crate::table::Table;
use crate::value::NamePattern;

/// An entry. A finding matches if it meets all conditions of the entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suppression {
    /// Only this kind of finding.
    pub code: Option<Code>,
    /// Only in functions with a name like this.
    pub function: Option<NamePattern>,
    /// Only in files with a path like this.
    pub file: Option<NamePattern>,
    /// Why the findings are acceptable.
    pub reason: String,
    /// Line of the entry in the file.
    pub line: usize,
}

/// An entry as it is written.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    #[serde(deserialize_with = "crate::value::read")]
    code: Option<Code>,
    #[serde(deserialize_with = "crate::value::read")]
    function: Option<NamePattern>,
    #[serde(deserialize_with = "crate::value::read")]
    file: Option<NamePattern>,
    reason: Option<String>,
}

/// The remaining findings, and what each suppression did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sifted {
    /// The findings that no suppression matches, in their order.
    pub kept: Vec<Finding>,
    /// Suppressions that match, and how many findings each removed. A finding is counted for the first suppression
    /// that matches it.
    pub matched: Vec<(Suppression, u64)>,
    /// Suppressions that match nothing: the bug is gone, or a name is wrong.
    pub unused: Vec<Suppression>,
}

impl Suppression {
    pub(crate) fn read(table: &Table<'_>) -> Result<Self, ConfigError> {
        table.allow(&["code", "function", "file", "reason"])?;
        let missing = |key, why| table.error_at(table.start, Problem::Missing(key, why));
        let entry: Entry = table.deserialize()?;
        let reason = entry
            .reason
            .filter(|reason| !reason.trim().is_empty())
            .ok_or_else(|| missing("reason", "a sentence that says why"))?;
        if entry.code.is_none() && entry.function.is_none() && entry.file.is_none() {
            return Err(missing(
                "code",
                "`function` or `file`, or it would hide everything",
            ));
        }
        Ok(Self {
            code: entry.code,
            function: entry.function,
            file: entry.file,
            reason,
            line: table.line(),
        })
    }

    /// The note that it matches no finding.
    pub fn unused_note(&self) -> String {
        let mut about: Vec<String> = self.code.iter().map(Code::to_string).collect();
        for (name, value) in [("function", &self.function), ("file", &self.file)] {
            about.extend(value.iter().map(|value| format!("{name} `{value}`")));
        }
        format!(
            "the suppression of {} in line {} of {FILE_NAME} matches no finding; remove it or correct the name",
            about.join(", "),
            self.line,
        )
    }

    /// Whether it removes a finding.
    ///
    /// Function and file are those of the finding's first place, or of one of the calls that led
    /// there: a suppression of `cache_*` also covers what the library does for `cache_put`. Both must
    /// match the same call.
    pub fn matches(&self, finding: &Finding) -> bool {
        if self.code.is_some_and(|code| code != finding.code) {
            return false;
        }
        if self.function.is_none() && self.file.is_none() {
            return true;
        }
        let Some(place) = finding.places.first() else {
            return false;
        };
        let frames = place
            .stack
            .iter()
            .map(|frame| (&frame.function, &frame.file));
        std::iter::once((&place.function, &place.file))
            .chain(frames)
            .any(|(function, file)| {
                holds(
                    self.function.as_ref(),
                    function.as_ref(),
                    NamePattern::matches,
                ) && holds(self.file.as_ref(), file.as_ref(), NamePattern::matches_path)
            })
    }
}

/// A missing pattern matches everything; a pattern never matches an unknown name.
fn holds(
    pattern: Option<&NamePattern>,
    name: Option<&String>,
    matches: impl Fn(&NamePattern, &str) -> bool,
) -> bool {
    pattern.is_none_or(|pattern| name.is_some_and(|name| matches(pattern, name)))
}

/// Removes the findings that suppressions match.
pub fn sift(suppressions: &[Suppression], findings: Vec<Finding>) -> Sifted {
    let mut counts = vec![0; suppressions.len()];
    let mut kept = Vec::new();
    for finding in findings {
        let matching = suppressions
            .iter()
            .position(|suppression| suppression.matches(&finding));
        match matching {
            Some(index) => counts[index] += 1,
            None => kept.push(finding),
        }
    }
    let (matched, unused): (Vec<_>, Vec<_>) = suppressions
        .iter()
        .cloned()
        .zip(counts)
        .partition(|(_, count)| *count > 0);
    Sifted {
        kept,
        matched,
        unused: unused.into_iter().map(|(unused, _)| unused).collect(),
    }
}
