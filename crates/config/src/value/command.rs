//! A command in one string: split into words by the rules of the shell, or left to a shell.

use std::ffi::OsString;
use std::str::FromStr;

use super::value_from_text;

/// Characters that only a shell understands, outside of quotes.
const OPERATORS: &str = "|&;<>()$`*?[]#~!\n";

/// A command, as it was written and as it is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandText {
    /// As it was written.
    pub text: String,
    /// The program and its arguments; `/bin/sh -c` and the text, if it needs a shell. Never empty.
    pub words: Vec<OsString>,
}

impl FromStr for CommandText {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // To a shell it would be a command that always succeeds.
        if text.trim().is_empty() {
            return Err("the command is empty");
        }
        let words = shlex::split(text).filter(|_| !needs_shell(text));
        let words = match words {
            Some(words) => words.into_iter().map(Into::into).collect(),
            // Also an open quote: the shell explains it.
            None => vec!["/bin/sh".into(), "-c".into(), text.into()],
        };
        Ok(Self {
            text: text.to_owned(),
            words,
        })
    }
}

value_from_text!(CommandText, "a command in quotes");

/// Whether the text has an operator, an expansion or an assignment that takes a shell.
fn needs_shell(text: &str) -> bool {
    let mut letters = text.chars();
    let mut quote = None;
    let mut is_first_word = true;
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (None, '\'' | '"') => quote = Some(letter),
            (Some(open), close) if open == close => quote = None,
            (None | Some('"'), '\\') => drop(letters.next()),
            (Some('"'), '$' | '`') => return true,
            (None, ' ' | '\t') => is_first_word = false,
            (None, '=') if is_first_word => return true,
            (None, other) if OPERATORS.contains(other) => return true,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::CommandText;

    fn words(text: &str) -> Vec<String> {
        let command: CommandText = text.parse().unwrap();
        let words = command.words.into_iter();
        words.map(|word| word.into_string().unwrap()).collect()
    }

    #[test]
    fn words_and_quotes() {
        assert_eq!(
            words(r#"./store --name 'two words' "a \"b\"" x\ y {pool}"#),
            ["./store", "--name", "two words", "a \"b\"", "x y", "{pool}"]
        );
        assert_eq!(words("a ''"), ["a", ""]);
        assert_eq!(words("sh -c 'a > b'"), ["sh", "-c", "a > b"]);
    }

    /// A shell keeps a backslash in double quotes, unless it protects a character that is special there.
    #[test]
    fn backslashes_in_double_quotes() {
        assert_eq!(words(r#"grep "\d+\.""#), ["grep", r"\d+\."]);
        assert_eq!(words(r#"a "\\ \" \$ \`""#), ["a", r#"\ " $ `"#]);
    }

    #[test]
    fn operators_need_a_shell() {
        for text in [
            "a | b",
            "a && b",
            "a > b",
            "echo $HOME",
            "echo \"$HOME\"",
            "X=1 a",
            "a 'b",
        ] {
            assert_eq!(words(text), ["/bin/sh", "-c", text]);
        }
        assert_eq!(words("a b=1"), ["a", "b=1"]);
    }

    #[test]
    fn an_empty_command_is_refused() {
        for text in ["", " ", "\t\n"] {
            assert!(text.parse::<CommandText>().is_err(), "{text:?}");
        }
    }
}
