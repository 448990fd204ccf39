//! Patterns of paths: `*` and `?` inside a component, `[...]` and `[!...]`, `**` across components.

/// Whether a path matches a pattern, both as bytes.
pub(crate) fn matches(pattern: &[u8], path: &[u8]) -> bool {
    let Some((first, rest)) = pattern.split_first() else {
        return path.is_empty();
    };
    match first {
        b'*' if rest.first() == Some(&b'*') => {
            // `**/` also stands for no component at all.
            let rest = &rest[1..];
            let without_slash = rest.strip_prefix(b"/").unwrap_or(rest);
            (0..=path.len()).any(|at| matches(rest, &path[at..])) || matches(without_slash, path)
        }
        b'*' => {
            let component_len = path
                .iter()
                .position(|byte| *byte == b'/')
                .unwrap_or(path.len());
            (0..=component_len).any(|at| matches(rest, &path[at..]))
        }
        b'?' => path
            .split_first()
            .is_some_and(|(byte, path)| *byte != b'/' && matches(rest, path)),
        b'[' => match class(rest) {
            Some((set, rest)) => path.split_first().is_some_and(|(byte, path)| {
                *byte != b'/' && in_class(set, *byte) && matches(rest, path)
            }),
            None => path
                .split_first()
                .is_some_and(|(byte, path)| *byte == b'[' && matches(rest, path)),
        },
        b'\\' if !rest.is_empty() => {
            path.first() == rest.first() && matches(&rest[1..], &path[1..])
        }
        byte => path.first() == Some(byte) && matches(rest, &path[1..]),
    }
}

/// Whether a path is a pattern at all.
pub(crate) fn is_pattern(path: &[u8]) -> bool {
    path.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['))
}

/// Splits behind the `]` that closes a class. A `]` in the first place is a member.
fn class(pattern: &[u8]) -> Option<(&[u8], &[u8])> {
    let first = usize::from(pattern.first() == Some(&b'!')) + 1;
    let end = (first..pattern.len()).find(|at| pattern[*at] == b']')?;
    Some((&pattern[..end], &pattern[end + 1..]))
}

fn in_class(set: &[u8], byte: u8) -> bool {
    let (negated, mut set) = set
        .strip_prefix(b"!")
        .map_or((false, set), |set| (true, set));
    let mut found = false;
    while let Some((first, rest)) = set.split_first() {
        if let [b'-', last, rest @ ..] = rest {
            found |= (*first..=*last).contains(&byte);
            set = rest;
        } else {
            found |= *first == byte;
            set = rest;
        }
    }
    found != negated
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns() {
        let yes = [
            ("/mnt/pmem/*", "/mnt/pmem/pool"),
            ("/mnt/**", "/mnt/a/b/c"),
            ("/mnt/**/pool", "/mnt/pool"),
            ("/mnt/**/pool", "/mnt/a/b/pool"),
            ("/a/pool?.[ab-d]", "/a/pool7.c"),
            ("/a/[!x]", "/a/y"),
            ("/a/[]]", "/a/]"),
            ("/a/[", "/a/["),
            ("/a/\\*", "/a/*"),
            ("", ""),
        ];
        for (pattern, path) in yes {
            assert!(
                matches(pattern.as_bytes(), path.as_bytes()),
                "{pattern} {path}"
            );
        }
        let no = [
            ("/mnt/pmem/*", "/mnt/pmem/a/pool"),
            ("/mnt/pmem/*", "/mnt/pmem"),
            ("/a/?", "/a/"),
            ("/a/[!x]", "/a/x"),
            ("/a/[b-d]", "/a/e"),
            ("/a/\\*", "/a/b"),
            ("/a", "/a/b"),
            ("/a/\\b", "/a/"),
        ];
        for (pattern, path) in no {
            assert!(
                !matches(pattern.as_bytes(), path.as_bytes()),
                "{pattern} {path}"
            );
        }
    }
}
