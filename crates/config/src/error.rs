//! What can be wrong with a configuration file, and with options that do not fit together.

use thiserror::Error;

use crate::FILE_NAME;

/// A configuration file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {problem}")]
pub struct ConfigError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong there.
    pub problem: Problem,
}

/// What is wrong with a configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Problem {
    /// Not TOML.
    #[error("{0}")]
    Syntax(String),
    /// A key that does not exist.
    #[error("unknown key `{key}`{table}{}", suggestion(.nearest.as_deref(), .known))]
    UnknownKey {
        /// As it is written.
        key: String,
        /// Where, with a leading blank: ` in [check]`.
        table: String,
        /// The known key that is most like it, if one is.
        nearest: Option<String>,
        /// All known keys.
        known: Vec<String>,
    },
    /// A value of the wrong type or form.
    #[error("`{key}`: {message}")]
    Value {
        /// The key.
        key: String,
        /// What is wrong with its value.
        message: String,
    },
    /// A key and its opposite.
    #[error("`{0}` and `no-{0}` are opposites; remove one of them")]
    Opposites(String),
    /// A missing key.
    #[error("a [[suppress]] entry needs `{0}`, {1}")]
    Missing(&'static str, &'static str),
}

fn suggestion(nearest: Option<&str>, known: &[String]) -> String {
    match nearest {
        Some(nearest) => format!("; did you mean `{nearest}`?"),
        None => format!("; expected one of {}", known.join(", ")),
    }
}

/// Options that do not fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SettingsError {
    /// There is nothing to run.
    #[error("no workload: give a command after --, as in powerfail {0} -- ./my-program {{pool}}")]
    NoWorkload(&'static str),
    /// An option that has no effect without another.
    #[error("{0} needs {1}")]
    Needs(&'static str, &'static str),
    /// Options that exclude each other.
    #[error("{0} cannot be used with {1}")]
    Apart(&'static str, &'static str),
    /// Two formats for one file.
    #[error("two values of --format name the same file")]
    OneFile,
    /// Two formats for standard output.
    #[error(
        "only one --format can go to standard output: give the others a file, as in sarif=out.sarif"
    )]
    OneStandardOutput,
    /// A client without a way to tell when its server is ready.
    #[error("a client needs --ready, which tells when its server is ready")]
    NotReady,
    /// An option of another strategy.
    #[error("{0} needs --strategy {1}")]
    OtherStrategy(&'static str, &'static str),
    /// A limit and no limits.
    #[error(
        "{FILE_NAME}: `exhaustive` removes all limits, and `max-executions` is one; remove one of them"
    )]
    Limitless,
    /// Random crash states, and a limit of an exploration.
    #[error(
        "{FILE_NAME}: `random` draws crash states instead of exploring them; remove it, or `exhaustive` and \
         `max-executions`"
    )]
    RandomAndLimit,
    /// Failure points for `races`, which has its own.
    #[error("{0} is for check and crash: races fails at every ordering point")]
    OrderingPoints(&'static str),
}
