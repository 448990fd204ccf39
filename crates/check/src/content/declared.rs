//! Contents that the recorder declares after each operation: what a crash may leave of them.
//!
//! A file system that promises that operations are durable when they return leaves what there was before the operation in
//! flight or what there is after it. One that promises it after a sync only may leave anything of what was changed since; what
//! was not changed since must be there as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use powerfail_trace::{DeclaredContent, Durable};

/// What is wrong with a recovered content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// What was durable is missing, or is as it was before.
    Lost,
    /// There is something that no operation has left.
    Torn,
}

/// What one operation leaves.
#[derive(Clone, Debug)]
struct Declared {
    durable: Durable,
    entries: Entries,
}

type Entries = BTreeMap<String, String>;

/// What all operations leave, in their order. The first is the one that opens the file system, and changes nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct DeclaredContents(Vec<Declared>);

impl DeclaredContents {
    pub(super) fn push(&mut self, content: DeclaredContent) {
        self.0.push(Declared {
            durable: content.durable,
            entries: entries(&content.content),
        });
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Judges what was recovered after a crash by which so many operations had ended. What is wrong, and the lines that differ,
    /// with signs.
    pub(super) fn judge(&self, ended: usize, recovered: &[u8]) -> Option<(Wrong, String)> {
        let found = entries(&String::from_utf8_lossy(recovered));
        // Before the first has ended there is what it leaves: it changes nothing.
        let current = ended.max(1).min(self.0.len()) - 1;
        let next = (ended.max(1)).min(self.0.len() - 1);
        if self.0[current].durable == Durable::Everything {
            return self.judge_at_once(current, next, &found);
        }
        let mut names: BTreeSet<&String> = found.keys().collect();
        for declared in &self.0[..=next] {
            names.extend(declared.entries.keys());
        }
        let mut wrong = None;
        let mut difference = String::new();
        for name in names {
            let since = self.synced(name, current);
            let mut states = self.0[since..=next].iter().map(|it| it.entries.get(name));
            let expected = states.next().flatten();
            // What was changed since the last sync may be anything.
            if states.any(|other| other != expected) || found.get(name) == expected {
                continue;
            }
            wrong = Some(match found.get(name) {
                Some(entry) if !self.was(name, entry, since) => Wrong::Torn,
                _ => wrong.unwrap_or(Wrong::Lost),
            });
            show(&mut difference, '-', name, expected);
            show(&mut difference, '+', name, found.get(name));
        }
        wrong.map(|wrong| (wrong, difference))
    }

    /// Before or after the operation in flight, and nothing else.
    fn judge_at_once(
        &self,
        current: usize,
        next: usize,
        found: &Entries,
    ) -> Option<(Wrong, String)> {
        let (before, after) = (&self.0[current].entries, &self.0[next].entries);
        if found == before || found == after {
            return None;
        }
        let is_older = self.0[..current].iter().any(|it| it.entries == *found);
        let mut difference = String::new();
        let names: BTreeSet<&String> = before.keys().chain(found.keys()).collect();
        for name in names {
            let (expected, found) = (before.get(name), found.get(name));
            if expected != found {
                show(&mut difference, '-', name, expected);
                show(&mut difference, '+', name, found);
            }
        }
        let wrong = if is_older { Wrong::Lost } else { Wrong::Torn };
        Some((wrong, difference))
    }

    /// The last operation up to `current` after which a name was durable.
    fn synced(&self, name: &str, current: usize) -> usize {
        let is_durable = |declared: &Declared| match &declared.durable {
            Durable::Nothing => false,
            Durable::Paths(paths) => paths.contains(name),
            Durable::All | Durable::Everything => true,
        };
        let operations = &self.0[..=current];
        operations.iter().rposition(is_durable).unwrap_or(0)
    }

    /// Whether a name had this description before.
    fn was(&self, name: &str, entry: &str, before: usize) -> bool {
        let earlier = self.0[..before].iter();
        earlier
            .map(|it| it.entries.get(name))
            .any(|it| it.is_some_and(|it| it == entry))
    }
}

fn entries(content: &str) -> Entries {
    let lines = content.lines().map(|line| {
        let (name, entry) = line.split_once('\t').unwrap_or((line, ""));
        (name.to_owned(), entry.to_owned())
    });
    lines.collect()
}

fn show(text: &mut String, sign: char, name: &str, entry: Option<&String>) {
    if let Some(entry) = entry {
        let _ = writeln!(text, "{sign} {name} {entry}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(operations: &[(Durable, &str)]) -> DeclaredContents {
        let mut contents = DeclaredContents::default();
        for (durable, content) in operations {
            contents.push(DeclaredContent {
                durable: durable.clone(),
                content: (*content).to_owned(),
            });
        }
        contents
    }

    fn wrong(contents: &DeclaredContents, ended: usize, recovered: &str) -> Option<Wrong> {
        let judged = contents.judge(ended, recovered.as_bytes());
        judged.map(|(wrong, _)| wrong)
    }

    #[test]
    fn each_operation_is_atomic_and_durable() {
        let at_once = |text| (Durable::Everything, text);
        let contents = contents(&[at_once(""), at_once("a\t1\n"), at_once("a\t1\nb\t2\n")]);
        assert_eq!(wrong(&contents, 0, ""), None);
        assert_eq!(wrong(&contents, 1, ""), None);
        assert_eq!(wrong(&contents, 1, "a\t1\n"), None);
        assert_eq!(wrong(&contents, 1, "a\t0\n"), Some(Wrong::Torn));
        assert_eq!(wrong(&contents, 2, ""), Some(Wrong::Lost));
        assert_eq!(wrong(&contents, 2, "b\t2\n"), Some(Wrong::Torn));
        assert_eq!(wrong(&contents, 3, "a\t1\nb\t2\n"), None);
        assert_eq!(wrong(&contents, 3, "a\t1\n"), Some(Wrong::Lost));
    }

    #[test]
    fn what_was_synced_and_not_changed_since_is_there() {
        let contents = contents(&[
            (Durable::All, ".\td\n"),
            (Durable::Nothing, ".\td\na\t1\n"),
            (Durable::All, ".\td\na\t1\n"),
            (Durable::Nothing, ".\td\na\t2\nb\t1\n"),
            (Durable::Nothing, ".\td\na\t2\nb\t1\nc\t1\n"),
        ]);
        // Not synced yet: anything goes.
        assert_eq!(wrong(&contents, 2, ".\td\n"), None);
        assert_eq!(wrong(&contents, 2, ".\td\na\t0\n"), None);
        // The root was there from the beginning.
        assert_eq!(wrong(&contents, 2, ""), Some(Wrong::Lost));
        // Synced, and the operation in flight changes it: anything.
        assert_eq!(wrong(&contents, 3, ".\td\n"), None);
        // A name that nothing has made.
        assert_eq!(wrong(&contents, 3, ".\td\na\t1\nz\t1\n"), Some(Wrong::Torn));
    }

    #[test]
    fn a_synced_file_stays() {
        let paths = Durable::Paths(["a".to_owned()].into());
        let contents = contents(&[
            (Durable::All, ""),
            (Durable::Nothing, "a\t1\nb\t1\n"),
            (paths, "a\t1\nb\t1\n"),
            (Durable::Nothing, "a\t1\nb\t1\nc\t1\n"),
        ]);
        assert_eq!(wrong(&contents, 3, "a\t1\n"), None);
        assert_eq!(wrong(&contents, 3, "b\t1\n"), Some(Wrong::Lost));
        assert_eq!(wrong(&contents, 4, "a\t7\n"), Some(Wrong::Torn));
        let (_, difference) = contents.judge(4, b"a\t7\n").unwrap();
        assert_eq!(difference, "- a 1\n+ a 7\n");
    }

    #[test]
    fn an_older_content_is_a_loss() {
        let contents = contents(&[
            (Durable::All, "a\t1\n"),
            (Durable::All, "a\t2\n"),
            (Durable::Nothing, "a\t2\nb\t1\n"),
        ]);
        assert_eq!(wrong(&contents, 2, "a\t1\n"), Some(Wrong::Lost));
    }
}
