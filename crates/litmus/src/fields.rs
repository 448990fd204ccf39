//! Reading JSON with errors that name the field.

use std::fmt;

use serde_json::{Map, Value};

/// What is wrong with a litmus file, and where in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct FormatError {
    /// The field, as in `threads[0][2]`; empty for the file as a whole.
    pub field: String,
    /// What is wrong with it, to be read after the field.
    pub problem: String,
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.is_empty() {
            write!(f, "the file {}", self.problem)
        } else {
            write!(f, "field `{}` {}", self.field, self.problem)
        }
    }
}

impl FormatError {
    pub(crate) fn not_text(error: std::str::Utf8Error) -> Self {
        Self {
            field: String::new(),
            problem: format!(
                "is not text: byte {} is not UTF-8, as JSON must be",
                error.valid_up_to()
            ),
        }
    }

    pub(crate) fn json(error: &serde_json::Error) -> Self {
        Self {
            field: String::new(),
            problem: format!("is not valid JSON: {error}"),
        }
    }
}

/// A JSON value with its path from the root.
#[derive(Clone, Debug)]
pub(crate) struct Node<'a> {
    value: &'a Value,
    path: String,
}

impl<'a> Node<'a> {
    pub(crate) fn root(value: &'a Value) -> Self {
        Self {
            value,
            path: String::new(),
        }
    }

    pub(crate) fn error(&self, problem: impl Into<String>) -> FormatError {
        FormatError {
            field: self.path.clone(),
            problem: problem.into(),
        }
    }

    fn wrong_type(&self, expected: &str) -> FormatError {
        let found = match self.value {
            Value::Null => "null".to_owned(),
            Value::Bool(value) => value.to_string(),
            Value::Number(number) => number.to_string(),
            Value::String(_) => "a string".to_owned(),
            Value::Array(_) => "a list".to_owned(),
            Value::Object(_) => "an object".to_owned(),
        };
        self.error(format!("must be {expected}, but is {found}"))
    }

    fn member_path(&self, name: &str) -> String {
        if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        }
    }

    pub(crate) fn object(&self) -> Result<&'a Map<String, Value>, FormatError> {
        self.value
            .as_object()
            .ok_or_else(|| self.wrong_type("an object"))
    }

    pub(crate) fn optional(&self, name: &str) -> Result<Option<Node<'a>>, FormatError> {
        Ok(self.object()?.get(name).map(|value| Node {
            value,
            path: self.member_path(name),
        }))
    }

    pub(crate) fn required(&self, name: &str) -> Result<Node<'a>, FormatError> {
        self.optional(name)?.ok_or_else(|| FormatError {
            field: self.member_path(name),
            problem: "is missing".to_owned(),
        })
    }

    pub(crate) fn members(&self) -> Result<Vec<(&'a str, Node<'a>)>, FormatError> {
        Ok(self
            .object()?
            .iter()
            .map(|(name, value)| {
                (
                    name.as_str(),
                    Node {
                        value,
                        path: self.member_path(name),
                    },
                )
            })
            .collect())
    }

    /// Refuses members that the format does not have: most of them are slips of the pen.
    pub(crate) fn refuse_unknown(&self, what: &str, known: &[&str]) -> Result<(), FormatError> {
        for (name, member) in self.members()? {
            if !known.contains(&name) {
                let known = known.join(", ");
                return Err(member.error(format!("is not known; {what} has {known}")));
            }
        }
        Ok(())
    }

    pub(crate) fn list(&self) -> Result<Vec<Node<'a>>, FormatError> {
        let items = self
            .value
            .as_array()
            .ok_or_else(|| self.wrong_type("a list"))?;
        Ok(items
            .iter()
            .enumerate()
            .map(|(index, value)| Node {
                value,
                path: format!("{}[{index}]", self.path),
            })
            .collect())
    }

    pub(crate) fn string(&self) -> Result<&'a str, FormatError> {
        self.value
            .as_str()
            .ok_or_else(|| self.wrong_type("a string"))
    }

    /// The text, or nothing if this is not a string.
    pub(crate) fn as_string(&self) -> Option<&'a str> {
        self.value.as_str()
    }

    pub(crate) fn integer(&self) -> Result<i64, FormatError> {
        self.value
            .as_i64()
            .ok_or_else(|| self.wrong_type("an integer from -2^63 to 2^63 - 1"))
    }

    pub(crate) fn index(&self) -> Result<u64, FormatError> {
        self.value
            .as_u64()
            .ok_or_else(|| self.wrong_type("an integer from 0 to 2^64 - 1"))
    }

    pub(crate) fn index_below(&self, limit: u64) -> Result<u64, FormatError> {
        let index = self.index()?;
        if index < limit {
            Ok(index)
        } else {
            Err(self.error(format!("must be less than {limit}, but is {index}")))
        }
    }

    /// A set of rows of `width` integers.
    pub(crate) fn states(&self, width: usize) -> Result<crate::States, FormatError> {
        self.list()?
            .iter()
            .map(|row| {
                let values = row
                    .list()?
                    .iter()
                    .map(Self::integer)
                    .collect::<Result<Vec<_>, _>>()?;
                if values.len() == width {
                    Ok(values)
                } else {
                    let ending = if width == 1 { "" } else { "s" };
                    Err(row.error(format!(
                        "must have {width} value{ending}, but has {}",
                        values.len()
                    )))
                }
            })
            .collect()
    }
}
