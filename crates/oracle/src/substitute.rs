//! Replaces placeholders and, where images are not mounted over pools, the paths of pools in words.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use crate::plan::PoolMapping;

/// The placeholder of the pool.
pub(crate) const POOL: &[u8] = b"{pool}";
/// The placeholder of the tree.
const DIRECTORY: &[u8] = b"{dir}";
/// The placeholder of a free port.
pub(crate) const PORT: &[u8] = b"{port}";

/// The replacements for one slot.
#[derive(Clone, Debug)]
pub struct Substitution {
    /// The path that replaces `{pool}`.
    pool: PathBuf,
    /// The path that replaces `{dir}`.
    directory: PathBuf,
    /// Paths, longest first, and their replacements.
    paths: Vec<(PathBuf, PathBuf)>,
    /// Roots of trees, whose paths are also replaced where a path continues behind them.
    trees: Vec<PathBuf>,
    /// Directories of pools, which are replaced only if they are a whole word.
    directories: Vec<(PathBuf, PathBuf)>,
    /// Where relative paths begin.
    working_directory: PathBuf,
}

impl Substitution {
    /// Replaces only `{pool}`: images are mounted at the paths of their pools.
    pub(crate) fn of_placeholder(pool: &Path) -> Self {
        Self {
            pool: pool.into(),
            directory: pool.into(),
            paths: Vec::new(),
            trees: Vec::new(),
            directories: Vec::new(),
            working_directory: PathBuf::new(),
        }
    }

    /// Also replaces the paths of pools by those of their images, absolute and relative ones.
    pub fn of_paths(pool: &Path, mappings: &[PoolMapping], working_directory: &Path) -> Self {
        let mut paths: Vec<_> = mappings
            .iter()
            .map(|it| (it.original.clone(), it.private.clone()))
            .collect();
        paths.sort_by_key(|(original, _)| std::cmp::Reverse(original.as_os_str().len()));
        let mut directories: Vec<(PathBuf, PathBuf)> = Vec::new();
        for it in mappings.iter().filter(|it| !it.is_tree()) {
            if let (Some(original), Some(private)) = (it.original.parent(), it.private.parent()) {
                directories.push((original.into(), private.into()));
            }
        }
        // A directory whose images lie in several directories has no single replacement.
        let all = directories.clone();
        directories.retain(|(original, private)| {
            all.iter()
                .all(|(other, place)| other != original || place == private)
        });
        directories.dedup();
        let known = mappings.iter().find(|it| it.original == pool);
        let placed = |pool: &Path| {
            // It may be a directory with pools, or lie beside them.
            let whole = directories.iter().find(|(directory, _)| pool == directory);
            if let Some((_, place)) = whole {
                return Some(place.clone());
            }
            let (_, place) = directories
                .iter()
                .find(|(directory, _)| pool.parent() == Some(directory))?;
            Some(place.join(pool.file_name()?))
        };
        let trees = mappings.iter().filter(|it| it.is_tree());
        let pool = known
            .map(|it| it.private.clone())
            .or_else(|| placed(pool))
            .unwrap_or_else(|| pool.into());
        Self {
            directory: pool.clone(),
            pool,
            trees: trees.map(|it| it.original.clone()).collect(),
            paths,
            directories,
            working_directory: working_directory.into(),
        }
    }

    /// The same, and `{dir}` stands for this directory, or for what takes its place.
    #[must_use]
    pub fn with_directory(mut self, directory: &Path) -> Self {
        let mut known = self.paths.iter().chain(&self.directories);
        let known = known.find(|(original, _)| original == directory);
        self.directory = known.map_or_else(|| directory.into(), |(_, place)| place.clone());
        self
    }

    /// A word with everything replaced.
    pub fn apply(&self, word: &OsStr) -> OsString {
        let bytes = word.as_bytes();
        let trimmed = bytes.strip_suffix(b"/").unwrap_or(bytes);
        for (directory, place) in &self.directories {
            let is_it = trimmed == directory.as_os_str().as_bytes()
                || trimmed != b"." && self.absolute(trimmed).as_ref() == Some(directory);
            if is_it {
                return place.clone().into_os_string();
            }
        }
        let mut replaced = Vec::with_capacity(bytes.len());
        let mut rest = bytes;
        while let Some(first) = rest.first() {
            if let Some(after) = rest.strip_prefix(POOL) {
                replaced.extend_from_slice(self.pool.as_os_str().as_bytes());
                rest = after;
                continue;
            }
            if let Some(after) = rest.strip_prefix(DIRECTORY) {
                replaced.extend_from_slice(self.directory.as_os_str().as_bytes());
                rest = after;
                continue;
            }
            let at_start = replaced.last().is_none_or(|last| !is_part_of_name(*last));
            let found = self.paths.iter().find_map(|(original, private)| {
                let after = rest.strip_prefix(original.as_os_str().as_bytes())?;
                let ends = after.first().is_none_or(|next| {
                    !is_part_of_name(*next) || *next == b'/' && self.trees.contains(original)
                });
                (at_start && ends).then_some((private, after))
            });
            let found = found.or_else(|| self.relative(rest).filter(|_| at_start));
            match found {
                Some((private, after)) => {
                    replaced.extend_from_slice(private.as_os_str().as_bytes());
                    rest = after;
                }
                None => {
                    replaced.push(*first);
                    rest = &rest[1..];
                }
            }
        }
        OsString::from_vec(replaced)
    }

    /// The image of a pool whose relative path the text begins with, and what comes after that path.
    fn relative<'a, 't>(&'a self, text: &'t [u8]) -> Option<(&'a PathBuf, &'t [u8])> {
        let end = text.iter().position(|byte| !is_part_of_name(*byte));
        let (name, after) = text.split_at(end.unwrap_or(text.len()));
        let path = self.absolute(name)?;
        if let Some((_, private)) = self.paths.iter().find(|(original, _)| *original == path) {
            return Some((private, after));
        }
        // The name may lie in a tree: then only its beginning is replaced.
        let (beginning, _) = name.iter().enumerate().rev().find(|(end, byte)| {
            let path = self.absolute(&name[..*end]);
            **byte == b'/' && path.is_some_and(|path| self.trees.contains(&path))
        })?;
        let path = self.absolute(&name[..beginning])?;
        let (_, private) = self.paths.iter().find(|(original, _)| *original == path)?;
        Some((private, &text[beginning..]))
    }

    /// The path that a relative one stands for, if it is one.
    fn absolute(&self, name: &[u8]) -> Option<PathBuf> {
        if name.is_empty() || name.starts_with(b"/") || !self.working_directory.is_absolute() {
            return None;
        }
        let mut path = self.working_directory.clone();
        for component in Path::new(OsStr::from_bytes(name)).components() {
            match component {
                Component::CurDir => {}
                Component::ParentDir => {
                    path.pop();
                }
                component => path.push(component),
            }
        }
        Some(path)
    }
}

/// Whether a byte continues the name of a file; `=`, `:` and `,` end it.
fn is_part_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'/' | b'~') || byte >= 0x80
}

/// A word with `{port}` replaced.
pub(crate) fn with_port(word: &OsStr, port: u16) -> OsString {
    let mut replaced = Vec::new();
    let mut rest = word.as_bytes();
    while let Some(first) = rest.first() {
        if let Some(after) = rest.strip_prefix(PORT) {
            replaced.extend_from_slice(port.to_string().as_bytes());
            rest = after;
        } else {
            replaced.push(*first);
            rest = &rest[1..];
        }
    }
    OsString::from_vec(replaced)
}

/// Whether `{port}` occurs.
pub(crate) fn has_port(word: &OsStr) -> bool {
    word.as_bytes().windows(PORT.len()).any(|it| it == PORT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(original: &str, private: &str) -> PoolMapping {
        PoolMapping {
            original: original.into(),
            private: private.into(),
        }
    }

    #[test]
    fn paths_are_replaced_where_they_are_whole() {
        let mappings = [
            mapping("/mnt/pool", "/slot/a"),
            mapping("/mnt/pool2", "/slot/b"),
        ];
        let substitution =
            Substitution::of_paths(Path::new("/mnt/pool"), &mappings, Path::new("/home"));
        for (word, expected) in [
            ("{pool}", "/slot/a"),
            ("--file={pool}.set", "--file=/slot/a.set"),
            ("/mnt/pool", "/slot/a"),
            ("/mnt/pool2", "/slot/b"),
            ("/mnt/pool3", "/mnt/pool3"),
            ("/other/mnt/pool", "/other/mnt/pool"),
            ("x=/mnt/pool,y=/mnt/pool2", "x=/slot/a,y=/slot/b"),
            ("/mnt", "/slot"),
            ("/mnt/", "/slot"),
            ("/mnt/log", "/mnt/log"),
            ("", ""),
        ] {
            assert_eq!(substitution.apply(OsStr::new(word)), expected, "{word}");
        }
    }

    #[test]
    fn relative_paths_are_replaced() {
        let mappings = [mapping("/mnt/pm/pool", "/slot/pool")];
        for (directory, word, expected) in [
            ("/mnt/pm", "pool", "/slot/pool"),
            ("/mnt/pm", "./pool", "/slot/pool"),
            ("/mnt", "pm/pool", "/slot/pool"),
            ("/mnt/other", "../pm/pool", "/slot/pool"),
            ("/mnt/pm", "--file=pool", "--file=/slot/pool"),
            (
                "/mnt/pm",
                "./store pool && ./check pool",
                "./store /slot/pool && ./check /slot/pool",
            ),
            ("/mnt", "pm", "/slot"),
            ("/mnt/pm", "pool2", "pool2"),
            ("/mnt/pm", "a-pool", "a-pool"),
            ("/mnt/pm", ".", "."),
            ("/home", "pool", "pool"),
        ] {
            let directory = Path::new(directory);
            let substitution =
                Substitution::of_paths(Path::new("/mnt/pm/pool"), &mappings, directory);
            assert_eq!(substitution.apply(OsStr::new(word)), expected, "{word}");
        }
    }

    #[test]
    fn paths_in_trees_are_replaced() {
        let private = tempfile::tempdir().unwrap();
        let place = private.path().to_str().unwrap();
        let mappings = [mapping("/home/tree", place)];
        let tree = Path::new("/home/tree");
        let substitution = Substitution::of_paths(tree, &mappings, Path::new("/home"));
        let substitution = substitution.with_directory(tree);
        for (word, expected) in [
            ("{dir}", "@"),
            ("{dir}/log", "@/log"),
            ("/home/tree/log", "@/log"),
            ("/home/tree", "@"),
            ("/home/trees/log", "/home/trees/log"),
            ("tree/log", "@/log"),
            ("tree", "@"),
            ("trees/log", "trees/log"),
            ("cat tree/a tree/b/c", "cat @/a @/b/c"),
        ] {
            let expected = expected.replace('@', place);
            assert_eq!(substitution.apply(OsStr::new(word)), *expected, "{word}");
        }
    }

    #[test]
    fn paths_of_mounted_pools_stay() {
        let substitution = Substitution::of_placeholder(Path::new("/mnt/pool"));
        assert_eq!(
            substitution.apply(OsStr::new("{pool}:/mnt/pool")),
            "/mnt/pool:/mnt/pool"
        );
    }

    #[test]
    fn a_directory_with_two_places_is_not_replaced() {
        let mappings = [mapping("/mnt/a", "/x/a"), mapping("/mnt/b", "/y/b")];
        let substitution =
            Substitution::of_paths(Path::new("/mnt/a"), &mappings, Path::new("/home"));
        assert_eq!(substitution.apply(OsStr::new("/mnt")), "/mnt");
    }

    #[test]
    fn ports_are_replaced() {
        assert_eq!(with_port(OsStr::new("-p{port}/{port}"), 80), "-p80/80");
        assert!(has_port(OsStr::new("a{port}")) && !has_port(OsStr::new("port")));
    }
}
