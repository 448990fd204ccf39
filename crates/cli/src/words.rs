//! A command in one string: split into words as a shell would, or left to a shell.

use std::ffi::OsString;

use powerfail_oracle::CommandLine;

/// What only a shell understands, outside of quotes.
const OPERATORS: &str = "|&;<>()$`*?[]#~!\n";

/// The command of a string.
pub(crate) fn command(text: &str) -> CommandLine {
    match split(text) {
        Some(words) if !words.is_empty() => CommandLine::new(words),
        _ => CommandLine::shell(text),
    }
}

/// Splits at blanks; quotes and backslashes protect. None if a shell is needed.
fn split(text: &str) -> Option<Vec<OsString>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ' ' | '\t' => words.extend(word.take().map(OsString::from)),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next()? {
                        '\'' => break,
                        quoted => word.push(quoted),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next()? {
                        '"' => break,
                        '\\' => word.push(letters.next()?),
                        '$' | '`' => return None,
                        quoted => word.push(quoted),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(letters.next()?),
            '=' if words.is_empty() => return None,
            other if OPERATORS.contains(other) => return None,
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word.map(OsString::from));
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::{command, split};

    #[test]
    fn words_and_quotes() {
        let words = split(r#"./store --name 'two words' "a \"b\"" x\ y {pool}"#).unwrap();
        assert_eq!(
            words,
            ["./store", "--name", "two words", "a \"b\"", "x y", "{pool}"]
        );
        assert_eq!(split("a ''").unwrap(), ["a", ""]);
    }

    #[test]
    fn operators_need_a_shell() {
        for text in ["a | b", "a && b", "a > b", "echo $HOME", "X=1 a", "a 'b"] {
            assert_eq!(split(text), None, "{text}");
            assert_eq!(command(text).words[..2], ["/bin/sh", "-c"], "{text}");
        }
    }
}
