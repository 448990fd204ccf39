//! `powerfail.toml` as a whole.

use toml::de::{DeTable, DeValue};

use crate::check::CheckSection;
use crate::error::{ConfigError, Problem};
use crate::suppress::Suppression;
use crate::table::{Table, line_of};

/// The name of the file, which is looked for in the working directory.
pub const FILE_NAME: &str = "powerfail.toml";

/// The content of a configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// `[check]`.
    pub check: CheckSection,
    /// `[[suppress]]`, in the order of the file.
    pub suppress: Vec<Suppression>,
}

impl Config {
    /// Reads the text of a file.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let parsed = DeTable::parse(text).map_err(|error| ConfigError {
            line: line_of(text, error.span().map_or(0, |span| span.start)),
            // Some messages of the parser have several lines.
            problem: Problem::Syntax(error.message().replace('\n', "; ")),
        })?;
        let root = Table {
            name: "",
            text,
            start: 0,
            content: parsed.get_ref(),
        };
        root.allow(&["check", "suppress"])?;
        let check = match root.get("check") {
            None => CheckSection::default(),
            Some(value) => match value.get_ref() {
                DeValue::Table(content) => CheckSection::read(&Table {
                    name: "[check]",
                    start: value.span().start,
                    content,
                    ..root
                })?,
                _ => return Err(root.wrong("check", "a table: [check]")),
            },
        };
        let suppress = match root.get("suppress").map(toml::Spanned::get_ref) {
            None => Vec::new(),
            Some(DeValue::Array(entries)) => {
                let mut suppress = Vec::new();
                for entry in entries {
                    let DeValue::Table(content) = entry.get_ref() else {
                        return Err(root.wrong("suppress", "a list of tables: [[suppress]]"));
                    };
                    suppress.push(Suppression::read(&Table {
                        name: "[[suppress]]",
                        start: entry.span().start,
                        content,
                        ..root
                    })?);
                }
                suppress
            }
            Some(_) => return Err(root.wrong("suppress", "a list of tables: [[suppress]]")),
        };
        Ok(Self { check, suppress })
    }
}
