//! What can be wrong with a configuration file, in one sentence that begins with the line.

use thiserror::Error;

/// A configuration file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {problem}")]
pub struct ConfigError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong there.
    pub problem: Problem,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Problem {
    /// Not TOML.
    #[error("{0}")]
    Syntax(String),
    /// A key that nobody reads.
    #[error("there is no `{key}`{table}{}", meant(.nearest.as_deref(), .known))]
    UnknownKey {
        /// As it is written.
        key: String,
        /// Where, with a leading blank: ` in [check]`.
        table: String,
        /// The known key that is most like it, if one is.
        nearest: Option<String>,
        /// All known keys.
        known: Vec<&'static str>,
    },
    /// A value of the wrong type or form.
    #[error("`{key}` must be {expected}")]
    Value {
        /// The key.
        key: String,
        /// What it takes.
        expected: String,
    },
    /// A key that must be there.
    #[error("a [[suppress]] entry needs `{0}`, {1}")]
    Missing(&'static str, &'static str),
}

fn meant(nearest: Option<&str>, known: &[&str]) -> String {
    match nearest {
        Some(nearest) => format!("; did you mean `{nearest}`?"),
        None => format!("; there are {}", known.join(", ")),
    }
}
