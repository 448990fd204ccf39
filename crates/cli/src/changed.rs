//! `--changed-since`: from an earlier run, or from a revision of git, to what is new.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, bail};
use powerfail_check::{ChangedSince, output_directory};

/// What is new since `name`. An output directory may be the one that this run writes to, so this comes first.
pub(crate) fn since(name: Option<&str>) -> anyhow::Result<Option<Arc<ChangedSince>>> {
    let Some(name) = name else { return Ok(None) };
    let run = Path::new(name);
    let since = if run.join(output_directory::REPORT).is_file() {
        let (coverage, sources) = output_directory::load_details(run)?;
        let coverage = coverage.with_context(|| {
            format!("--changed-since {name}: this run has not kept which failure points it tried")
        })?;
        ChangedSince::run(name, &coverage, sources.as_ref())
    } else {
        ChangedSince::lines(name, changed_lines(name)?)
    };
    Ok(Some(Arc::new(since)))
}

/// The functions that were changed since a revision, as ranges of lines; all of a file that git does not know.
fn changed_lines(name: &str) -> anyhow::Result<BTreeMap<PathBuf, Vec<Range<u32>>>> {
    let commit = format!("{name}^{{commit}}");
    let wanted = [
        "rev-parse",
        "--verify",
        "--quiet",
        "--end-of-options",
        &commit,
    ];
    let Ok(commit) = git(None, &wanted)? else {
        bail!(
            "--changed-since {name}: this is neither the output directory of a run nor a revision that git knows here"
        );
    };
    let top = git(None, &["rev-parse", "--show-toplevel"])?;
    let top = top.map_err(|said| anyhow::anyhow!("git rev-parse: {said}"))?;
    let top = Some(Path::new(top.trim_end()));
    // -W shows whole functions.
    let diff = git(
        top,
        &[
            "-c",
            "core.quotePath=false",
            "diff",
            "-W",
            "--no-color",
            "--no-ext-diff",
            "--no-textconv",
            "--no-renames",
            "--dst-prefix=b/",
            commit.trim(),
            "--",
        ],
    )?;
    let diff = diff.map_err(|said| anyhow::anyhow!("git diff: {said}"))?;
    let mut lines = hunks(&diff);
    let unknown = git(top, &["ls-files", "-z", "--others", "--exclude-standard"])?;
    for path in unknown.unwrap_or_default().split_terminator('\0') {
        lines.entry(path.into()).or_default().push(0..u32::MAX);
    }
    Ok(lines)
}

/// What git writes, or what it says if it fails.
fn git(directory: Option<&Path>, arguments: &[&str]) -> anyhow::Result<Result<String, String>> {
    let mut command = Command::new("git");
    if let Some(directory) = directory {
        command.current_dir(directory);
    }
    let output = command.args(arguments).stdin(Stdio::null()).output();
    let output = output.context("--changed-since asks git, which cannot be started")?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(text(&output.stderr).trim().to_owned())
    })
}

/// The ranges of new lines that a diff shows, by file.
fn hunks(diff: &str) -> BTreeMap<PathBuf, Vec<Range<u32>>> {
    let mut lines: BTreeMap<PathBuf, Vec<Range<u32>>> = BTreeMap::new();
    let mut file: Option<PathBuf> = None;
    // A line of content begins with a space, a plus or a minus, and can look like anything: so they are counted.
    let (mut old, mut new) = (0_u32, 0_u32);
    for line in diff.lines() {
        if old + new > 0 {
            match line.as_bytes().first() {
                Some(b'-') => old = old.saturating_sub(1),
                Some(b'+') => new = new.saturating_sub(1),
                Some(b'\\') => {}
                _ => (old, new) = (old.saturating_sub(1), new.saturating_sub(1)),
            }
        } else if let Some(path) = line.strip_prefix("+++ ") {
            file = path.strip_prefix("b/").map(PathBuf::from);
        } else if let Some((removed, added)) = hunk(line) {
            (old, new) = (removed.len() as u32, added.len() as u32);
            if let Some(file) = &file {
                lines.entry(file.clone()).or_default().push(added);
            }
        }
    }
    lines
}

/// The old and the new lines of `@@ -1,2 +3,4 @@`.
fn hunk(line: &str) -> Option<(Range<u32>, Range<u32>)> {
    let mut words = line.strip_prefix("@@ ")?.split(' ');
    let range = |word: &str, sign: char| {
        let word = word.strip_prefix(sign)?;
        let (first, count) = word.split_once(',').unwrap_or((word, "1"));
        let (first, count): (u32, u32) = (first.parse().ok()?, count.parse().ok()?);
        Some(first..first.checked_add(count)?)
    };
    Some((range(words.next()?, '-')?, range(words.next()?, '+')?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hunks_of_a_diff_are_ranges_of_new_lines() {
        let diff = "\
diff --git a/src/a.c b/src/a.c
--- a/src/a.c
+++ b/src/a.c
@@ -1,3 +1,4 @@ int f
 int f(void) {
--- a/not/a/file
+++ b/not/a/file
+@@ -1 +1 @@
 }
@@ -10 +11,0 @@
-gone
diff --git a/gone.c b/gone.c
--- a/gone.c
+++ /dev/null
@@ -1 +0,0 @@
-gone
diff --git a/b.c b/b.c
new file mode 100644
--- /dev/null
+++ b/b.c
@@ -0,0 +1,2 @@
+one
+two
\\ No newline at end of file
";
        let expected = BTreeMap::from([
            (PathBuf::from("src/a.c"), vec![1..5, 11..11]),
            (PathBuf::from("b.c"), std::iter::once(1..3).collect()),
        ]);
        assert_eq!(hunks(diff), expected);
    }
}
