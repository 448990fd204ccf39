//! Regular expressions of the user.

use std::ops::Deref;
use std::str::FromStr;

use regex::bytes::Regex;

use super::value_from_text;

/// A regular expression over bytes.
#[derive(Clone, Debug)]
pub struct Pattern(pub Regex);

impl Deref for Pattern {
    type Target = Regex;

    fn deref(&self) -> &Regex {
        &self.0
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Regex::new(text).map(Self).map_err(|error| {
            // The other lines show the expression and mark the position.
            let error = error.to_string();
            let reason = error.lines().last().unwrap_or_default();
            let reason = reason.trim_start_matches("error: ");
            format!("`{text}` is not a regular expression: {reason}")
        })
    }
}

value_from_text!(Pattern, "a regular expression");

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn the_reason_is_one_line() {
        let error = "(".parse::<Pattern>().unwrap_err();
        assert_eq!(error, "`(` is not a regular expression: unclosed group");
    }
}
