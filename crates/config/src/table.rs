//! Reading a TOML table key by key: every key is taken once, and what is left is unknown.

use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::duration::parse_duration;
use crate::error::{ConfigError, Problem};

/// Names less like each other than this are not offered as what was meant.
const LIKENESS: f64 = 0.75;

/// A table, its name for messages, and the text in which lines are counted.
#[derive(Clone, Copy)]
pub(crate) struct Table<'a> {
    pub(crate) name: &'static str,
    pub(crate) text: &'a str,
    pub(crate) start: usize,
    pub(crate) content: &'a DeTable<'a>,
}

impl<'a> Table<'a> {
    /// An error unless every key is one of these.
    pub(crate) fn allow(&self, known: &[&'static str]) -> Result<(), ConfigError> {
        // The first one in the file, whatever the order of the map is.
        let unknown = self
            .content
            .keys()
            .filter(|key| !known.contains(&key.get_ref().as_ref()))
            .min_by_key(|key| key.span().start);
        let Some(key) = unknown else { return Ok(()) };
        let written = key.get_ref().as_ref();
        Err(self.error_at(
            key.span().start,
            Problem::UnknownKey {
                key: written.to_owned(),
                table: if self.name.is_empty() {
                    String::new()
                } else {
                    format!(" in {}", self.name)
                },
                nearest: nearest(written, known),
                known: known.to_vec(),
            },
        ))
    }

    pub(crate) fn get(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.content.get(key)
    }

    pub(crate) fn string(&self, key: &str) -> Result<Option<String>, ConfigError> {
        self.read(key, "a text in quotes", |value| {
            value.as_str().map(str::to_owned)
        })
    }

    /// A list of texts; a single text is a list of one.
    pub(crate) fn strings(&self, key: &str) -> Result<Option<Vec<String>>, ConfigError> {
        self.read(key, "a text in quotes or a list of them", |value| {
            if let Some(text) = value.as_str() {
                return Some(vec![text.to_owned()]);
            }
            let items = value.as_array()?.iter();
            items
                .map(|item| item.get_ref().as_str().map(str::to_owned))
                .collect()
        })
    }

    pub(crate) fn boolean(&self, key: &str) -> Result<Option<bool>, ConfigError> {
        self.read(key, "true or false", DeValue::as_bool)
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<u64>, ConfigError> {
        self.read(key, "a whole number, not below 0", whole)
    }

    /// A list of exit codes; a single number is a list of one.
    pub(crate) fn exit_codes(&self, key: &str) -> Result<Option<Vec<u8>>, ConfigError> {
        let code = |value: &DeValue<'_>| whole(value).and_then(|code| code.try_into().ok());
        self.read(key, "an exit code (0 to 255) or a list of them", |value| {
            if let Some(code) = code(value) {
                return Some(vec![code]);
            }
            let items = value.as_array()?.iter();
            items.map(|item| code(item.get_ref())).collect()
        })
    }

    pub(crate) fn duration(&self, key: &str) -> Result<Option<Duration>, ConfigError> {
        self.read(
            key,
            "a duration such as \"250ms\", \"30s\" or \"5m\"",
            |value| parse_duration(value.as_str()?).ok(),
        )
    }

    /// One of some words.
    pub(crate) fn word<T>(
        &self,
        key: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        self.read(key, expected, |value| parse(value.as_str()?))
    }

    fn read<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&DeValue<'a>) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match read(value.get_ref()) {
            Some(read) => Ok(Some(read)),
            None => Err(self.wrong(key, expected)),
        }
    }

    /// The error for a value that is not what it should be.
    pub(crate) fn wrong(&self, key: &str, expected: &str) -> ConfigError {
        let at = self.get(key).map_or(self.start, |value| value.span().start);
        let (key, expected) = (key.to_owned(), expected.to_owned());
        self.error_at(at, Problem::Value { key, expected })
    }

    pub(crate) fn error_at(&self, at: usize, problem: Problem) -> ConfigError {
        let line = line_of(self.text, at);
        ConfigError { line, problem }
    }
}

pub(crate) fn line_of(text: &str, at: usize) -> usize {
    let before = &text.as_bytes()[..at.min(text.len())];
    before.split(|byte| *byte == b'\n').count()
}

fn whole(value: &DeValue<'_>) -> Option<u64> {
    let integer = value.as_integer()?;
    u64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

fn nearest(written: &str, known: &[&str]) -> Option<String> {
    // A flag is often remembered with another case or another joint.
    let written = written.to_lowercase().replace('_', "-");
    known
        .iter()
        .map(|name| (strsim::jaro_winkler(&written, name), name))
        .filter(|(likeness, _)| *likeness >= LIKENESS)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, name)| (*name).to_owned())
}
