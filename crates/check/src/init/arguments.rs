//! Which arguments of a program name its data, and what stands for them.

use std::path::{Path, PathBuf};

use powerfail_recorder::RecordingSummary;

use super::InitError;

const POOL: &str = "{pool}";
const DIR: &str = "{dir}";
/// In place of a directory: those below the working directory in which files change.
const AUTOMATIC: &str = "auto";
/// The name of a file that was a fresh pool, in a fresh directory.
const FORMER_POOL: &str = "{dir}/pool";

/// The files that a program maps and writes.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// Mapped shared and writable.
    pub(super) mapped: Vec<PathBuf>,
    /// Written with system calls, in a place that keeps files.
    pub(super) written: Vec<PathBuf>,
    /// Whether some of them are beside a mapped file and named after it.
    has_companions: bool,
    working_directory: PathBuf,
}

impl Seen {
    pub(super) fn of(summary: &RecordingSummary) -> Self {
        // Output that the shell has redirected is no data.
        let redirected: Vec<PathBuf> = (0..=2)
            .filter_map(|number| std::fs::read_link(format!("/proc/self/fd/{number}")).ok())
            .collect();
        let written = summary.companions.iter().chain(&summary.elsewhere);
        let mut written: Vec<PathBuf> = written
            .filter(|path| keeps_files(path) && !redirected.contains(path))
            .cloned()
            .collect();
        written.sort();
        written.dedup();
        Self {
            mapped: summary.pools.iter().map(|pool| pool.path.clone()).collect(),
            written,
            has_companions: !summary.companions.is_empty(),
            working_directory: std::env::current_dir().unwrap_or_default(),
        }
    }

    /// Whether the program stores nothing.
    pub(super) fn is_nothing(&self) -> bool {
        self.mapped.is_empty() && self.written.is_empty()
    }

    pub(super) fn mapped_names(&self) -> Vec<String> {
        self.names(&self.mapped)
    }

    pub(super) fn written_names(&self) -> Vec<String> {
        self.names(&self.written)
    }

    /// Paths as a user names them.
    fn names(&self, paths: &[PathBuf]) -> Vec<String> {
        let shorter = |path: &PathBuf| match path.strip_prefix(&self.working_directory) {
            Ok(rest) if !rest.as_os_str().is_empty() => rest.display().to_string(),
            _ => path.display().to_string(),
        };
        paths.iter().map(shorter).collect()
    }

    /// The ways to record the program, the best first: commands, and the directories that are recorded besides.
    pub(super) fn ways(&self, command: &[String]) -> Vec<(Vec<String>, Vec<String>)> {
        let is_mapped = !self.mapped.is_empty() && !self.has_companions;
        if uses_placeholder(command) {
            // A file that is not mapped, or that has files beside it, is a file in a directory.
            let words = command.iter().map(|word| {
                if is_mapped {
                    word.clone()
                } else {
                    word.replace(POOL, FORMER_POOL)
                }
            });
            return vec![(words.collect(), Vec::new())];
        }
        let fresh = self.with_placeholders(command, is_mapped);
        let mut ways: Vec<_> = fresh.into_iter().map(|words| (words, Vec::new())).collect();
        if is_mapped {
            ways.push((command.to_vec(), Vec::new()));
        } else if let Some(trees) = self.trees() {
            ways.push((command.to_vec(), trees));
        }
        ways
    }

    /// The command with fresh data in place of what was seen; `None` if no argument names it.
    fn with_placeholders(&self, command: &[String], is_mapped: bool) -> Option<Vec<String>> {
        let arguments = || command.iter().enumerate().skip(1);
        if let ([pool], true) = (&self.mapped[..], is_mapped) {
            let is_pool = |word: &&String| self.path(value(word)) == *pool;
            let (at, word) = arguments().find(|(_, word)| is_pool(word))?;
            let mut words = command.to_vec();
            words[at] = with_value(word, POOL);
            return Some(words);
        }
        let root = self.root(arguments().map(|(_, word)| word))?;
        let mut words = command.to_vec();
        for (at, word) in arguments() {
            let path = self.path(value(word));
            if !self.data().any(|data| data.starts_with(&path)) {
                continue;
            }
            if let Ok(rest) = path.strip_prefix(&root) {
                let fresh = match rest.to_str()? {
                    "" => DIR.to_owned(),
                    rest => format!("{DIR}/{rest}"),
                };
                words[at] = with_value(word, &fresh);
            }
        }
        Some(words)
    }

    /// The directory of the data that arguments name: a directory with data below it, or that of a file.
    fn root<'w>(&self, words: impl Iterator<Item = &'w String>) -> Option<PathBuf> {
        let paths = words.map(|word| self.path(value(word)));
        let roots = paths.filter_map(|path| {
            if self.data().any(|data| *data == path) {
                return Some(path.parent()?.to_path_buf());
            }
            let has_data = self.data().any(|data| data.starts_with(&path));
            // The root, the home and the working directory hold more than the data.
            let is_narrow = !self.working_directory.starts_with(&path);
            (has_data && is_narrow && path.is_dir()).then_some(path)
        });
        // The outermost one has the others in it.
        roots.min_by_key(|root| root.components().count())
    }

    fn data(&self) -> impl Iterator<Item = &PathBuf> {
        self.mapped.iter().chain(&self.written)
    }

    /// The directories to record if the program names its data itself. `None` if one of them is above the working directory.
    /// The working directory itself is left to the recorder, which knows which files there are those of powerfail.
    fn trees(&self) -> Option<Vec<String>> {
        let temporary = [
            PathBuf::from("/tmp"),
            "/var/tmp".into(),
            "/dev/shm".into(),
            std::env::temp_dir(),
        ];
        let parents = self.data().filter_map(|path| {
            let parent = path.parent()?;
            // A temporary file that is gone was none of the data.
            (path.exists() || !temporary.iter().any(|it| it == parent))
                .then(|| parent.to_path_buf())
        });
        let mut parents: Vec<PathBuf> = parents.filter(|path| path.is_dir()).collect();
        parents.sort();
        parents.dedup();
        let outermost: Vec<PathBuf> = parents
            .iter()
            .filter(|path| !parents.iter().any(|it| it != *path && path.starts_with(it)))
            .cloned()
            .collect();
        if outermost == [&*self.working_directory] {
            return Some(vec![AUTOMATIC.to_owned()]);
        }
        let is_wide = outermost
            .iter()
            .any(|path| self.working_directory.starts_with(path));
        (!is_wide && !outermost.is_empty()).then(|| self.names(&outermost))
    }

    /// The path that an argument names.
    fn path(&self, text: &str) -> PathBuf {
        let path = self.working_directory.join(text);
        if let Ok(path) = path.canonicalize() {
            return path;
        }
        // It was removed, or never existed.
        let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
        match (parent, path.file_name()) {
            (Some(parent), Some(name)) => parent.join(name),
            _ => path,
        }
    }
}

/// What is recorded in the first trial besides pools: an empty directory, because then the recorder lists all files that are
/// written elsewhere. None is needed beside `{dir}`.
pub(super) fn observed(command: &[String], scratch: &Path) -> Result<Vec<String>, InitError> {
    if has_directory(command) {
        return Ok(Vec::new());
    }
    let empty = scratch.join("empty");
    std::fs::create_dir(&empty).map_err(InitError::Scratch)?;
    Ok(vec![empty.display().to_string()])
}

/// Whether an argument stands for a fresh directory already.
pub(super) fn has_directory(command: &[String]) -> bool {
    command.iter().any(|word| word.contains(DIR))
}

/// Whether an argument stands for fresh data already.
pub(super) fn uses_placeholder(command: &[String]) -> bool {
    let is_placeholder = |word: &String| word.contains(POOL) || word.contains(DIR);
    command.iter().any(is_placeholder)
}

/// Whether files in this place are there after a restart, or stand for such files.
fn keeps_files(path: &Path) -> bool {
    let is_kernel = ["/proc", "/sys", "/dev"]
        .iter()
        .any(|it| path.starts_with(it));
    !is_kernel || path.starts_with("/dev/shm")
}

/// The part of an argument that may be a path: `data` of `--out=data`.
fn value(word: &str) -> &str {
    match word.split_once('=') {
        Some((option, value)) if option.starts_with('-') => value,
        _ => word,
    }
}

/// The argument with another value.
fn with_value(word: &str, value: &str) -> String {
    let before = word.len() - self::value(word).len();
    format!("{}{value}", &word[..before])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(mapped: &[&str], written: &[&str], folder: &Path) -> Seen {
        let paths = |names: &[&str]| names.iter().map(|name| folder.join(name)).collect();
        Seen {
            mapped: paths(mapped),
            written: paths(written),
            has_companions: !mapped.is_empty() && !written.is_empty(),
            working_directory: folder.to_path_buf(),
        }
    }

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        (folder, path)
    }

    /// The commands of the ways.
    fn commands(seen: &Seen, command: &[&str]) -> Vec<String> {
        let command: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
        let ways = seen.ways(&command).into_iter();
        ways.map(|(words, trees)| format!("{} {trees:?}", words.join(" ")))
            .collect()
    }

    #[test]
    fn the_only_mapped_file_becomes_a_pool() {
        let (_folder, path) = folder();
        let seen = seen(&["a.pool"], &[], &path);
        let expected = ["./kv --pool={pool} 3 []", "./kv --pool=a.pool 3 []"];
        assert_eq!(commands(&seen, &["./kv", "--pool=a.pool", "3"]), expected);
        assert_eq!(commands(&seen, &["./kv", "3"]), ["./kv 3 []"]);
    }

    #[test]
    fn written_files_become_files_of_a_directory() {
        let (_folder, path) = folder();
        std::fs::create_dir(path.join("db")).unwrap();
        let written = seen(&[], &["db/log", "db/data"], &path);
        let expected = ["./app {dir} input.txt []", r#"./app db input.txt ["db"]"#];
        assert_eq!(commands(&written, &["./app", "db", "input.txt"]), expected);
        // A file is named, and another one is beside it.
        let found = commands(&written, &["./app", "input.txt", "db/data"]);
        assert_eq!(found[0], "./app input.txt {dir}/data []");
        // A pool with a journal.
        let journal = seen(&["db/data"], &["db/log"], &path);
        let found = commands(&journal, &["./app", "db/data"]);
        assert_eq!(found[0], "./app {dir}/data []");
    }

    #[test]
    fn the_working_directory_is_not_replaced() {
        let (_folder, path) = folder();
        std::fs::write(path.join("data"), "").unwrap();
        let written = seen(&[], &["data"], &path);
        assert_eq!(commands(&written, &["./app", "."]), [r#"./app . ["auto"]"#]);
        // A directory above it holds more than the data.
        let above = seen(&[], &["data", "/other"], &path);
        assert!(commands(&above, &["./app"]).is_empty());
    }

    #[test]
    fn a_pool_that_is_not_mapped_is_a_file() {
        let (_folder, path) = folder();
        let written = seen(&[], &["elsewhere"], &path);
        assert_eq!(
            commands(&written, &["./app", "{pool}"]),
            ["./app {dir}/pool []"]
        );
        let mapped = seen(&["elsewhere"], &[], &path);
        assert_eq!(commands(&mapped, &["./app", "{pool}"]), ["./app {pool} []"]);
    }
}
