//! Patterns of names: `*` stands for any text, `?` for one character, and nothing else is special.
//!
//! These are not patterns of paths. `*` also crosses `/` and `::`, because a suppression names functions and the ends
//! of source paths, and brackets and braces are ordinary, because functions are called `operator[]` and `{closure}`.

use std::fmt;
use std::str::FromStr;

use regex::Regex;

use super::value_from_text;

/// A pattern of names of functions or files.
#[derive(Clone, Debug)]
pub struct NamePattern {
    text: String,
    /// Matches the whole name.
    name: Regex,
    /// Matches the whole path, or its end from a component on.
    path: Regex,
}

impl NamePattern {
    /// Whether a name matches as a whole.
    pub fn matches(&self, name: &str) -> bool {
        self.name.is_match(name)
    }

    /// Whether a path matches: as a whole, or its end from a component on.
    pub fn matches_path(&self, path: &str) -> bool {
        self.path.is_match(path)
    }
}

impl FromStr for NamePattern {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut body = String::new();
        let mut letters = [0; 4];
        for letter in text.chars() {
            match letter {
                '*' => body.push_str(".*"),
                '?' => body.push('.'),
                other => body.push_str(&regex::escape(other.encode_utf8(&mut letters))),
            }
        }
        let regex = |text: String| Regex::new(&text).map_err(|_| "the pattern is too long");
        Ok(Self {
            text: text.to_owned(),
            name: regex(format!("(?s)^{body}$"))?,
            path: regex(format!("(?s)(?:^|/){body}$"))?,
        })
    }
}

value_from_text!(NamePattern, "a pattern in quotes");

impl fmt::Display for NamePattern {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.text)
    }
}

impl PartialEq for NamePattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for NamePattern {}

#[cfg(test)]
mod tests {
    use super::NamePattern;

    fn pattern(text: &str) -> NamePattern {
        text.parse().unwrap()
    }

    #[test]
    fn names() {
        for (text, name) in [
            ("*", ""),
            ("hash_*", "hash_insert"),
            ("*::insert", "map::node::insert"),
            ("h?sh", "hash"),
            ("a*b*c", "a-b-b-c"),
            ("gr??e?", "größe1"),
            ("Map::operator[]", "Map::operator[]"),
            ("*::{closure}", "put::{closure}"),
        ] {
            assert!(pattern(text).matches(name), "{text} {name}");
        }
        for (text, name) in [
            ("", "a"),
            ("hash", "hash_insert"),
            ("a*b", "abc"),
            ("?", ""),
            ("a.b", "axb"),
        ] {
            assert!(!pattern(text).matches(name), "{text} {name}");
        }
    }

    #[test]
    fn files_by_their_end() {
        for text in ["map.c", "src/map.c", "/home/a/src/map.c", "*.c", "src/*"] {
            assert!(pattern(text).matches_path("/home/a/src/map.c"), "{text}");
        }
        for text in ["ap.c", "rc/map.c", "map.h"] {
            assert!(!pattern(text).matches_path("/home/a/src/map.c"), "{text}");
        }
    }
}
