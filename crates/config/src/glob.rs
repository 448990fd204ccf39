//! Patterns of names: `*` stands for any text, `?` for one character.
//!
//! Unlike patterns of pools, `*` also crosses `/` and `::`, because what is written here are names of
//! functions and parts of source paths, and nobody remembers where the build directory was.

/// Whether a name matches a pattern as a whole. Takes time proportional to the product of their
/// lengths at worst, whatever the pattern is.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut in_name) = (0, 0);
    // Where the last star was, and where in the name its text ends for now.
    let mut star: Option<(usize, usize)> = None;
    while in_name < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, in_name));
                at += 1;
            }
            Some(wanted) if *wanted == '?' || *wanted == name[in_name] => {
                at += 1;
                in_name += 1;
            }
            _ => {
                // Only the last star needs to give way: an earlier one can gain nothing by it.
                let Some((star_at, end)) = star else {
                    return false;
                };
                star = Some((star_at, end + 1));
                at = star_at + 1;
                in_name = end + 1;
            }
        }
    }
    pattern[at..].iter().all(|rest| *rest == '*')
}

/// Whether a source file matches: the whole path, or its end from some component on.
pub(crate) fn matches_file(pattern: &str, path: &str) -> bool {
    let starts = path.match_indices('/').map(|(at, _)| at + 1);
    matches(pattern, path)
        || starts
            .into_iter()
            .any(|start| matches(pattern, &path[start..]))
}

#[cfg(test)]
mod tests {
    use super::{matches, matches_file};

    #[test]
    fn names() {
        for (pattern, name) in [
            ("*", ""),
            ("hash_*", "hash_insert"),
            ("*::insert", "map::node::insert"),
            ("h?sh", "hash"),
            ("a*b*c", "a-b-b-c"),
            ("größe?", "größe1"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("", "a"),
            ("hash", "hash_insert"),
            ("a*b", "abc"),
            ("?", ""),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn files_by_their_end() {
        for pattern in ["map.c", "src/map.c", "/home/a/src/map.c", "*.c", "src/*"] {
            assert!(matches_file(pattern, "/home/a/src/map.c"), "{pattern}");
        }
        for pattern in ["ap.c", "rc/map.c", "map.h"] {
            assert!(!matches_file(pattern, "/home/a/src/map.c"), "{pattern}");
        }
    }
}
