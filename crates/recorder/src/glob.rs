//! Patterns of paths: `*` and `?` inside a component, `[...]` and `[!...]`, `**` for any number of components.
//!
//! Braces are ordinary characters, because `{pool}` is a placeholder. A backslash makes the next character
//! ordinary.

use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};

/// The pattern that a path is. None if it is an ordinary path: without a wildcard, or with a `[` that is never closed.
pub(crate) fn pattern(path: &Path) -> Option<GlobMatcher> {
    let text = path.to_str()?;
    if !text.contains(['*', '?', '[']) {
        return None;
    }
    let glob = GlobBuilder::new(&as_globset_reads_it(text))
        .literal_separator(true)
        .backslash_escape(true)
        .build();
    Some(glob.ok()?.compile_matcher())
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

    use super::pattern;

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
            let pattern = pattern(Path::new(text)).expect(text);
            assert_eq!(pattern.is_match(path), expected, "{text} {path}");
        }
    }

    #[test]
    fn ordinary_paths() {
        for text in ["", "/a/b", "/a/[", "/a/{pool}"] {
            assert!(pattern(Path::new(text)).is_none(), "{text}");
        }
    }
}
