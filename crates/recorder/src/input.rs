//! The input of a target: its bytes, and the channel through which the target receives them.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use rustix::fs::MemfdFlags;
use serde::{Deserialize, Serialize};

/// The placeholder of the input in an argument.
pub(crate) const INPUT_PLACEHOLDER: &[u8] = b"{input}";

/// How the target receives its input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InputChannel {
    /// On its standard input.
    #[default]
    Stdin,
    /// In a file. `{input}` in the command stands for its path.
    File,
    /// As arguments, in the place of the argument `{input}`: see [`split_arguments`].
    Arguments,
}

/// An input and its channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// How the target receives them.
    pub channel: InputChannel,
}

/// The arguments that an input stands for: its words. A zero ends a word as white space does, because no argument can
/// contain one.
pub fn split_arguments(input: &[u8]) -> Vec<OsString> {
    input
        .split(|byte| byte.is_ascii_whitespace() || *byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect()
}

/// Replaces the argument `{input}` with the words of an input.
pub(crate) fn insert_words(arguments: &[OsString], input: &[u8]) -> Vec<OsString> {
    let words = split_arguments(input);
    let insert = |argument: &OsString| {
        if argument.as_bytes() == INPUT_PLACEHOLDER {
            words.clone()
        } else {
            vec![argument.clone()]
        }
    };
    arguments.iter().flat_map(insert).collect()
}

/// A file in memory with these bytes, to be read from its beginning and not to be written.
pub(crate) fn memory_file(bytes: &[u8]) -> io::Result<File> {
    let file = rustix::fs::memfd_create("powerfail-input", MemfdFlags::CLOEXEC)?;
    let mut file = File::from(file);
    file.write_all(bytes)?;
    // Opened again, read-only and with a position of its own.
    File::open(Path::new("/proc/self/fd").join(file.as_raw_fd().to_string()))
}

pub(crate) fn find(text: &[u8], pattern: &[u8]) -> Option<usize> {
    text.windows(pattern.len())
        .position(|window| window == pattern)
}

/// Replaces a placeholder wherever it is in an argument.
pub(crate) fn substitute(argument: &OsStr, placeholder: &[u8], value: &OsStr) -> OsString {
    let mut rest = argument.as_bytes();
    let mut result = Vec::new();
    while let Some(at) = find(rest, placeholder) {
        result.extend_from_slice(&rest[..at]);
        result.extend_from_slice(value.as_bytes());
        rest = &rest[at + placeholder.len()..];
    }
    result.extend_from_slice(rest);
    OsString::from_vec(result)
}

#[cfg(test)]
mod tests {
    use super::{insert_words, memory_file, split_arguments, substitute};
    use std::ffi::OsString;
    use std::io::Read;

    #[test]
    fn words_are_arguments() {
        assert_eq!(split_arguments(b" put a\n\tb\0c "), ["put", "a", "b", "c"]);
        assert!(split_arguments(b"\0 \n").is_empty());
    }

    #[test]
    fn placeholders() {
        let substitute =
            |argument: &str, value: &str| substitute(argument.as_ref(), b"{pool}", value.as_ref());
        assert_eq!(substitute("--a={pool}:{pool}", "/x"), "--a=/x:/x");
        assert_eq!(substitute("{poo}", "/x"), "{poo}");
    }

    #[test]
    fn words_take_the_place_of_the_input() {
        let arguments = |text: &[&str]| text.iter().map(OsString::from).collect::<Vec<_>>();
        assert_eq!(
            insert_words(&arguments(&["-v", "{input}", "{input}x"]), b"a\nb"),
            arguments(&["-v", "a", "b", "{input}x"])
        );
        assert_eq!(insert_words(&arguments(&["{input}"]), b" "), arguments(&[]));
    }

    #[test]
    fn a_file_that_is_only_read() -> std::io::Result<()> {
        use std::io::Write;
        let mut file = memory_file(b"some bytes")?;
        let mut read = Vec::new();
        file.read_to_end(&mut read)?;
        assert_eq!(read, b"some bytes");
        assert!(file.write(b"x").is_err());
        Ok(())
    }
}
