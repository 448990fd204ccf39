//! An input as arguments.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// The arguments that an input stands for: the words in it. Zeros end words as white space does, because no
/// argument can have them.
pub fn split_arguments(input: &[u8]) -> Vec<OsString> {
    input
        .split(|byte| byte.is_ascii_whitespace() || *byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::split_arguments;

    #[test]
    fn words_are_arguments() {
        assert_eq!(split_arguments(b" put a\n\tb\0c "), ["put", "a", "b", "c"]);
        assert!(split_arguments(b"\0 \n").is_empty());
    }
}
