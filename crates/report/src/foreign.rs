//! Files that another user or machine may have made, and the commands in them: what a user sees before anything runs.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::Path;

use crate::text::{WARNING, printable, shell_word};

/// What is to be done with the commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// They run.
    Run,
    /// The files that they name are copied.
    Copy,
}

/// A directory whose origin is not known, and the commands in it.
#[derive(Clone, Debug)]
pub struct Foreign<'a> {
    /// The directory.
    pub directory: &'a Path,
    /// How it is known that it is not one's own.
    pub reason: &'a str,
    /// The commands, each with what it is for.
    pub commands: Vec<(&'a str, Vec<OsString>)>,
    /// Where they run.
    pub working_directory: &'a Path,
    /// Variables that are set for them.
    pub environment: &'a [(OsString, OsString)],
    /// What is to be done with them.
    pub purpose: Purpose,
}

impl Foreign<'_> {
    /// The refusal where there is no terminal to ask at, as one sentence.
    pub fn refusal(&self) -> String {
        let commands = self.commands.iter();
        let shown: Vec<String> = commands
            .map(|(_, words)| format!("`{}`", command(words)))
            .collect();
        let what = match self.purpose {
            Purpose::Run => "this would run",
            Purpose::Copy => "this would copy the files that are named in",
        };
        format!(
            "{}, and {what} {}; give --yes to allow it",
            self.origin(),
            shown.join(", ")
        )
    }

    /// Everything that decides what would happen, and the question.
    pub fn question(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{WARNING}warning{WARNING:#}: {}", self.origin())?;
        for (name, words) in &self.commands {
            writeln!(out, "  {name}: {}", command(words))?;
        }
        writeln!(out, "  in: {}", word(self.working_directory.as_os_str()))?;
        for (name, value) in self.environment {
            writeln!(out, "  with: {}={}", word(name), word(value))?;
        }
        let question = match self.purpose {
            Purpose::Run => "Run this?",
            Purpose::Copy => "Copy the files that these commands name?",
        };
        write!(out, "{question} [y/N] ")
    }

    fn origin(&self) -> String {
        format!(
            "{} was not made by this user on this machine ({})",
            word(self.directory.as_os_str()),
            self.reason
        )
    }
}

fn command(words: &[OsString]) -> String {
    let words: Vec<String> = words.iter().map(|it| word(it)).collect();
    words.join(" ")
}

/// A word as a shell reads it, without anything that changes how it looks.
fn word(text: &OsStr) -> String {
    shell_word(&printable(&text.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_hidden_in_a_command() {
        let words = ["sh", "-c", "evil\u{1b}[2K\r", "\u{202e}txt.exe"];
        let foreign = Foreign {
            directory: "out".as_ref(),
            reason: "it has no seal",
            commands: vec![("recovery", words.map(OsString::from).to_vec())],
            working_directory: "/tmp".as_ref(),
            environment: &[("LD_PRELOAD".into(), "evil.so".into())],
            purpose: Purpose::Run,
        };
        let mut text = Vec::new();
        foreign.question(&mut text).expect("memory");
        let text = String::from_utf8(text).expect("text");
        for part in [
            r"recovery: sh -c 'evil\u{1b}[2K\r' '\u{202e}txt.exe'",
            "in: /tmp",
            "with: LD_PRELOAD=evil.so",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let refusal = foreign.refusal();
        assert!(refusal.contains(r"`sh -c 'evil\u{1b}[2K\r'"), "{refusal}");
        assert!(!refusal.contains(char::is_control), "{refusal}");
    }
}
