//! Patterns of paths: `*` and `?` inside a component, `[...]` and `[!...]`, `**` for any number of components.
//!
//! Braces are ordinary characters, because `{pool}` is a placeholder. A backslash makes the next character
//! ordinary.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};

/// The pattern that a path is; `None` if it is an ordinary path, without a wildcard. The error says what is wrong.
pub(crate) fn pattern(path: &Path) -> Result<Option<GlobMatcher>, String> {
    let Some(text) = path.to_str() else {
        return Ok(None);
    };
    if !text.contains(['*', '?', '[']) {
        return Ok(None);
    }
    let glob = GlobBuilder::new(&as_globset_reads_it(text))
        .literal_separator(true)
        .backslash_escape(true)
        .build();
    match glob {
        Ok(glob) => Ok(Some(glob.compile_matcher())),
        Err(error) => Err(error.kind().to_string()),
    }
}

/// A pattern that only this path matches.
pub(crate) fn escaped(path: &Path) -> PathBuf {
    let mut bytes = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        if b"*?[\\".contains(byte) {
            bytes.push(b'\\');
        }
        bytes.push(*byte);
    }
    OsString::from_vec(bytes).into()
}

/// Escapes braces, and adds the separator to negated classes, which would match it otherwise.
fn as_globset_reads_it(text: &str) -> String {
    let mut result = String::new();
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if matches!(character, '{' | '}') {
            result.push('\\');
        }
        result.push(character);
        match character {
            '\\' => result.extend(characters.next()),
            '[' => {
                if let Some(negation) = characters.next_if(|next| matches!(next, '!' | '^')) {
                    result.push(negation);
                    // A closing bracket that comes first is a member of the class.
                    result.extend(characters.next_if_eq(&']'));
                    result.push('/');
                }
            }
            _ => {}
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{escaped, pattern};

    #[test]
    fn patterns() {
        let yes = [
            ("/mnt/pmem/*", "/mnt/pmem/pool"),
            ("/mnt/pmem/*", "/mnt/pmem/.pool"),
            ("/mnt/**", "/mnt/a/b/c"),
            ("/mnt/**/pool", "/mnt/pool"),
            ("/mnt/**/pool", "/mnt/a/b/pool"),
            ("/a/pool?.[ab-d]", "/a/pool7.c"),
            ("/a/[!x]", "/a/y"),
            ("/a/[!]]", "/a/y"),
            ("/a/\\[!x*", "/a/[!xy"),
            ("/a/[]]", "/a/]"),
            ("/a/\\**", "/a/*b"),
            ("/a/{x,y}*", "/a/{x,y}z"),
        ];
        let no = [
            ("/mnt/pmem/*", "/mnt/pmem/a/pool"),
            ("/mnt/pmem/*", "/mnt/pmem"),
            ("/a/?", "/a/"),
            ("/a/[!x]", "/a/x"),
            ("/a/[!x]", "/a//"),
            ("/a[!x]b", "/a/b"),
            ("/a/[!]]", "/a/]"),
            ("/a/[b-d]", "/a/e"),
            ("/a/\\**", "/a/b"),
            ("/a/{x,y}*", "/a/x"),
        ];
        let all = yes.map(|pair| (pair, true)).into_iter();
        for ((text, path), expected) in all.chain(no.map(|pair| (pair, false))) {
            let pattern = pattern(Path::new(text)).expect(text).expect(text);
            assert_eq!(pattern.is_match(path), expected, "{text} {path}");
        }
    }

    #[test]
    fn ordinary_paths() {
        for text in ["", "/a/b", "/a/{pool}"] {
            assert!(pattern(Path::new(text)).unwrap().is_none(), "{text}");
        }
    }

    #[test]
    fn an_escaped_path_is_itself() {
        for text in ["/a[b/c", "/a*", "/[ab]", "/a\\b?"] {
            let path = escaped(Path::new(text));
            let pattern = pattern(&path).expect(text).expect(text);
            assert!(pattern.is_match(text) && !pattern.is_match("/a"), "{text}");
        }
    }

    #[test]
    fn wrong_patterns() {
        for text in ["/a/[", "/a/[b-a]", "*["] {
            assert!(pattern(Path::new(text)).is_err(), "{text}");
        }
    }
}
