//! The input of a target in a campaign: bytes, and the way they come to it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use rustix::fs::MemfdFlags;

/// What stands for the input in an argument.
pub(crate) const INPUT_PLACEHOLDER: &[u8] = b"{input}";
/// What the kernel takes as one argument at most, without its end.
const ARGUMENT_LEN_MAX: usize = 128 * 1024 - 1;
/// And how many of them are worth it: far fewer than it takes.
const ARGUMENTS_MAX: usize = 1024;

/// How an input comes to the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InputWay {
    /// As its standard input, a regular file.
    Stdin,
    /// As a file whose path stands in the place of `{input}`.
    File,
    /// As arguments in the place of `{input}`, one for each line: see [`argument_lines`].
    Arguments,
}

/// An input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// What it is.
    pub bytes: Vec<u8>,
    /// How it comes to the target.
    pub way: InputWay,
}

/// The arguments that an input stands for: its lines, which end with a newline or with a zero byte, as no
/// argument can contain one. What is too long or too much for a command is left out.
pub fn argument_lines(input: &[u8]) -> Vec<OsString> {
    let input = input
        .strip_suffix(b"\n")
        .or_else(|| input.strip_suffix(b"\0"))
        .unwrap_or(input);
    if input.is_empty() {
        return Vec::new();
    }
    input
        .split(|byte| matches!(byte, b'\n' | 0))
        .take(ARGUMENTS_MAX)
        .map(|line| OsString::from_vec(line[..line.len().min(ARGUMENT_LEN_MAX)].to_vec()))
        .collect()
}

/// Puts the arguments of an input where `{input}` is, or behind all others if it is nowhere. As a part of
/// an argument it is the first line.
pub(crate) fn insert_lines(arguments: &[OsString], input: &[u8]) -> Vec<OsString> {
    let lines = argument_lines(input);
    let mut inserted = false;
    let mut all = Vec::new();
    for argument in arguments {
        if argument.as_bytes() == INPUT_PLACEHOLDER {
            inserted = true;
            all.extend_from_slice(&lines);
        } else {
            let first = lines.first().map_or(OsStr::new(""), OsString::as_os_str);
            let replaced = substitute(argument, INPUT_PLACEHOLDER, first);
            inserted |= replaced != *argument;
            all.push(replaced);
        }
    }
    if !inserted {
        all.extend(lines);
    }
    all
}

/// A file in memory with these bytes, to be read from its beginning and not to be written.
pub(crate) fn memory_file(bytes: &[u8]) -> io::Result<File> {
    let file = rustix::fs::memfd_create("powerfail-input", MemfdFlags::CLOEXEC)?;
    let mut file = File::from(file);
    file.write_all(bytes)?;
    // Opened again: another position, and no right to write.
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
    use super::{argument_lines, insert_lines, memory_file, substitute};
    use std::ffi::OsString;
    use std::io::Read;

    #[test]
    fn placeholders() {
        let substitute =
            |argument: &str, value: &str| substitute(argument.as_ref(), b"{pool}", value.as_ref());
        assert_eq!(substitute("--a={pool}:{pool}", "/x"), "--a=/x:/x");
        assert_eq!(substitute("{poo}", "/x"), "{poo}");
    }

    #[test]
    fn lines_are_arguments() {
        let none: [OsString; 0] = [];
        assert_eq!(argument_lines(b""), none);
        assert_eq!(argument_lines(b"\n"), none);
        assert_eq!(argument_lines(b"a\0b c\n\nd\n"), ["a", "b c", "", "d"]);
        assert_eq!(argument_lines(&[b'x'; 200_000])[0].len(), 131_071);
        assert_eq!(argument_lines(&[b'\n'; 5000]).len(), 1024);
        let arguments = |text: &[&str]| text.iter().map(OsString::from).collect::<Vec<_>>();
        assert_eq!(
            insert_lines(&arguments(&["-v", "{input}", "--x={input}"]), b"a\nb"),
            arguments(&["-v", "a", "b", "--x=a"])
        );
        assert_eq!(
            insert_lines(&arguments(&["-v"]), b"a\nb"),
            arguments(&["-v", "a", "b"])
        );
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
