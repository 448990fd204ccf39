//! A table of the configuration file, with the line of each key for messages.

use clap::{Arg, Args, Command};
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{ConfigError, Problem};

/// Names less alike than this are not suggested.
const LIKENESS: f64 = 0.75;

/// A table, its name for messages, and the text in which lines are counted.
#[derive(Clone)]
pub(crate) struct Table<'a> {
    pub(crate) name: &'static str,
    pub(crate) text: &'a str,
    pub(crate) start: usize,
    pub(crate) content: DeTable<'a>,
}

/// A key of a section: the name of a flag, or `command` for the positional one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) name: String,
    /// The opposite of a flag `--no-…` without a value.
    pub(crate) opposite: Option<String>,
}

/// The keys of a section: all that the command line has for these options.
pub(crate) fn keys<T: Args>() -> Vec<Key> {
    let command = T::augment_args(Command::new("section"));
    let key = |arg: &Arg| {
        let name = arg.get_long().unwrap_or(arg.get_id().as_str());
        let is_switch = arg
            .get_num_args()
            .is_some_and(|count| !count.takes_values());
        let opposite = name.strip_prefix("no-").filter(|_| is_switch);
        Key {
            name: name.to_owned(),
            opposite: opposite.map(str::to_owned),
        }
    };
    command.get_arguments().map(key).collect()
}

impl<'a> Table<'a> {
    /// An error unless every key is one of these, or the opposite of one. Opposites are replaced.
    pub(crate) fn normalise(&mut self, keys: &[Key]) -> Result<(), ConfigError> {
        let mut names: Vec<&str> = keys.iter().map(|key| key.name.as_str()).collect();
        names.extend(keys.iter().filter_map(|key| key.opposite.as_deref()));
        self.allow(&names)?;
        for key in keys {
            let Some(opposite) = &key.opposite else {
                continue;
            };
            let Some(value) = self.content.remove(opposite.as_str()) else {
                continue;
            };
            let span = value.span();
            if self.content.contains_key(key.name.as_str()) {
                return Err(self.error_at(span.start, Problem::Opposites(opposite.clone())));
            }
            let DeValue::Boolean(is_on) = value.get_ref() else {
                return Err(self.error_at(
                    span.start,
                    Problem::Value {
                        key: opposite.clone(),
                        message: "expected true or false".to_owned(),
                    },
                ));
            };
            let name = Spanned::new(span.clone(), key.name.clone().into());
            let value = Spanned::new(span, DeValue::Boolean(!is_on));
            self.content.insert(name, value);
        }
        Ok(())
    }

    /// An error unless every key is one of these.
    pub(crate) fn allow(&self, known: &[&str]) -> Result<(), ConfigError> {
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
                known: known.iter().map(|&name| name.to_owned()).collect(),
            },
        ))
    }

    /// A table in this one.
    pub(crate) fn table(&self, name: &'static str, key: &str) -> Result<Option<Self>, ConfigError> {
        let Some(value) = self.content.get(key) else {
            return Ok(None);
        };
        match value.get_ref() {
            DeValue::Table(content) => Ok(Some(self.part(name, value.span().start, content))),
            _ => Err(self.wrong(key, &format!("expected a table: {name}"))),
        }
    }

    /// All tables of a list of tables in this one.
    pub(crate) fn tables(&self, name: &'static str, key: &str) -> Result<Vec<Self>, ConfigError> {
        let wrong = || self.wrong(key, &format!("expected a list of tables: {name}"));
        let entries = match self.content.get(key).map(Spanned::get_ref) {
            None => return Ok(Vec::new()),
            Some(DeValue::Array(entries)) => entries,
            Some(_) => return Err(wrong()),
        };
        let table = |entry: &Spanned<DeValue<'a>>| match entry.get_ref() {
            DeValue::Table(content) => Ok(self.part(name, entry.span().start, content)),
            _ => Err(wrong()),
        };
        entries.iter().map(table).collect()
    }

    fn part(&self, name: &'static str, start: usize, content: &DeTable<'a>) -> Self {
        Self {
            name,
            text: self.text,
            start,
            content: content.clone(),
        }
    }

    /// What serde reads from it. Keys that the type does not have are ignored.
    pub(crate) fn deserialize<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        let span = self.start..self.text.len();
        let content = Spanned::new(span, self.content.clone());
        T::deserialize(toml::de::Deserializer::from(content)).map_err(|error| self.explain(&error))
    }

    /// Names the key whose value could not be read.
    fn explain(&self, error: &toml::de::Error) -> ConfigError {
        let at = error.span().map_or(self.start, |span| span.start);
        let message = error.message().replace('\n', "; ");
        let key = self
            .content
            .iter()
            .find(|(_, value)| value.span().contains(&at))
            .map(|(key, _)| key.get_ref().to_string());
        let problem = match key {
            Some(key) => Problem::Value { key, message },
            None => Problem::Syntax(message),
        };
        self.error_at(at, problem)
    }

    fn wrong(&self, key: &str, message: &str) -> ConfigError {
        let value = self.content.get(key);
        let at = value.map_or(self.start, |value| value.span().start);
        let (key, message) = (key.to_owned(), message.to_owned());
        self.error_at(at, Problem::Value { key, message })
    }

    pub(crate) fn error_at(&self, at: usize, problem: Problem) -> ConfigError {
        ConfigError {
            line: line_of(self.text, at),
            problem,
        }
    }

    /// The line at which the table begins.
    pub(crate) fn line(&self) -> usize {
        line_of(self.text, self.start)
    }
}

pub(crate) fn line_of(text: &str, at: usize) -> usize {
    let before = &text.as_bytes()[..at.min(text.len())];
    before.split(|byte| *byte == b'\n').count()
}

fn nearest(written: &str, known: &[&str]) -> Option<String> {
    // A flag is often remembered with other capitals, or with underscores.
    let written = written.to_lowercase().replace('_', "-");
    known
        .iter()
        .map(|name| (strsim::jaro_winkler(&written, name), name))
        .filter(|(likeness, _)| *likeness >= LIKENESS)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, name)| (*name).to_owned())
}
