//! The rows of a picture of files: names, blocks and lengths, and which operations touch them.

use std::collections::BTreeMap;

use powerfail_finding::TreeCrash;
use powerfail_model::files::{Entry, NodeId, Operation, OperationIndex, PAGE_BYTES, PageIndex};

use crate::files::FirstNames;

/// Characters of a name that a row shows.
const NAME_SHOWN: usize = 26;

/// What becomes durable as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Name(Entry),
    Block(NodeId, PageIndex),
    Length(NodeId),
}

impl Part {
    /// The node under which it is found: the directory of a name, the file of all else.
    pub(super) const fn node(&self) -> NodeId {
        match self {
            Self::Name(entry) => entry.directory,
            Self::Block(node, _) | Self::Length(node) => *node,
        }
    }

    pub(super) fn label(&self, names: &FirstNames) -> String {
        match self {
            Self::Name(entry) => {
                let name = names.within_tree(entry.directory, Some(entry.name.as_bytes()));
                format!("name {}", shortened(&name))
            }
            Self::Block(node, page) => {
                let name = names.within_tree(*node, None);
                format!("{} {:#x}", shortened(&name), page.0 * PAGE_BYTES)
            }
            Self::Length(node) => {
                let name = names.within_tree(*node, None);
                format!("length of {}", shortened(&name))
            }
        }
    }

    /// Whether an operation changes it. `len_bytes` is the length of the file before it.
    pub(super) fn is_changed_by(&self, operation: &Operation, len_bytes: u64) -> bool {
        match self {
            Self::Name(entry) => entries(operation).any(|it| it == entry),
            Self::Block(node, page) => {
                let start = page.0 * PAGE_BYTES;
                operation.file() == Some(*node)
                    && match operation {
                        Operation::Write { range, .. }
                        | Operation::Zero { range, .. }
                        | Operation::PunchHole { range, .. } => {
                            range.offset < start + PAGE_BYTES && range.end() > start
                        }
                        Operation::Truncate {
                            len_bytes: after, ..
                        } => start < len_bytes && *after < start + PAGE_BYTES,
                        // What follows moves.
                        Operation::CollapseRange { range, .. }
                        | Operation::InsertRange { range, .. } => range.offset < start + PAGE_BYTES,
                        _ => false,
                    }
            }
            Self::Length(node) => {
                operation.file() == Some(*node) && length_after(operation, len_bytes) != len_bytes
            }
        }
    }

    /// The first operation on it that a crash takes, with all later ones.
    pub(super) fn first_lost(&self, crash: &TreeCrash, open: &[OperationIndex]) -> Option<u64> {
        let length = |node: &NodeId| crash.lengths.iter().find(|it| it.node == node.0);
        match self {
            Self::Name(_) => {
                let lost = open.iter().filter(|it| crash.lost.contains(&it.0));
                lost.map(|it| it.0).min()
            }
            Self::Block(node, page) => {
                let mut pages = crash.pages.iter();
                let lost = pages.find(|it| it.node == node.0 && it.page == page.0);
                let of_page = lost.and_then(|it| it.first_lost.iter().flatten().min().copied());
                let cut = length(node).filter(|it| it.len_bytes <= page.0 * PAGE_BYTES);
                of_page.or(cut.map(|it| it.first_lost))
            }
            Self::Length(node) => length(node).map(|it| it.first_lost),
        }
    }
}

/// The rows that an operation is about, the names first.
pub(super) fn parts_of(operation: &Operation) -> Vec<Part> {
    let mut parts: Vec<Part> = entries(operation).cloned().map(Part::Name).collect();
    match operation {
        Operation::Write { node, range }
        | Operation::Zero { node, range, .. }
        | Operation::PunchHole { node, range } => {
            let first = range.offset / PAGE_BYTES;
            let last = range.end().saturating_sub(1).max(range.offset) / PAGE_BYTES;
            let pages = (first..=last).take(BLOCKS_OF_AN_OPERATION);
            parts.extend(pages.map(|page| Part::Block(*node, PageIndex(page))));
        }
        Operation::Truncate { node, .. }
        | Operation::Allocate { node, .. }
        | Operation::CollapseRange { node, .. }
        | Operation::InsertRange { node, .. } => parts.push(Part::Length(*node)),
        _ => {}
    }
    parts
}

/// Blocks that one operation brings into a picture.
const BLOCKS_OF_AN_OPERATION: usize = 4;

/// The names that an operation changes.
pub(super) fn entries(operation: &Operation) -> impl Iterator<Item = &Entry> {
    let (one, other) = match operation {
        Operation::Create { entry, .. } => (entry.as_ref(), None),
        Operation::Link { entry, .. } | Operation::Unlink { entry, .. } => (Some(entry), None),
        Operation::Rename { from, to, .. } => (Some(from), Some(to)),
        Operation::Exchange { first, second, .. } => (Some(first), Some(second)),
        _ => (None, None),
    };
    one.into_iter().chain(other)
}

fn length_after(operation: &Operation, before: u64) -> u64 {
    match operation {
        Operation::Write { range, .. } => before.max(range.end()),
        Operation::Truncate { len_bytes, .. } => *len_bytes,
        Operation::Allocate {
            range, keep_size, ..
        }
        | Operation::Zero {
            range, keep_size, ..
        } if !keep_size => before.max(range.end()),
        Operation::CollapseRange { range, .. } => before.saturating_sub(range.len_bytes),
        Operation::InsertRange { range, .. } => before.saturating_add(range.len_bytes),
        _ => before,
    }
}

/// The lengths of files, operation by operation.
#[derive(Default)]
pub(super) struct Lengths(BTreeMap<NodeId, u64>);

impl Lengths {
    pub(super) fn set(&mut self, node: NodeId, len_bytes: u64) {
        self.0.insert(node, len_bytes);
    }

    /// The length of the file of an operation before it. Moves on.
    pub(super) fn apply(&mut self, operation: &Operation) -> u64 {
        let Some(node) = operation.file() else {
            return 0;
        };
        let len_bytes = self.0.entry(node).or_default();
        let before = *len_bytes;
        *len_bytes = length_after(operation, before);
        before
    }
}

/// The end of a long name: it tells more than its beginning.
fn shortened(name: &str) -> String {
    let len = name.chars().count();
    if len <= NAME_SHOWN {
        return name.to_owned();
    }
    let end: String = name.chars().skip(len - NAME_SHOWN + 1).collect();
    format!("…{end}")
}

/// What an operation is called on the page, and the shape of its mark; `None` if it changes nothing and makes nothing durable.
pub(super) const fn kind_of(operation: &Operation) -> Option<(&'static str, &'static str)> {
    Some(match operation {
        Operation::Create { .. } => ("create", "name"),
        Operation::Link { .. } => ("link", "name"),
        Operation::Unlink { .. } => ("remove", "name"),
        Operation::Rename { .. } => ("rename", "name"),
        Operation::Exchange { .. } => ("exchange", "name"),
        Operation::Write { .. } => ("write", "store"),
        Operation::Truncate { .. } => ("truncate", "store"),
        Operation::Allocate { .. } => ("fallocate", "store"),
        Operation::Zero { .. } => ("fallocate with zeros", "store"),
        Operation::PunchHole { .. } => ("punch a hole", "store"),
        Operation::CollapseRange { .. } => ("collapse a range", "store"),
        Operation::InsertRange { .. } => ("insert a range", "store"),
        Operation::SyncFile {
            data_only: true, ..
        } => ("fdatasync", "fence"),
        Operation::SyncFile { .. } => ("fsync", "fence"),
        Operation::SyncRange { .. } => ("msync", "fence"),
        Operation::SyncFileSystem => ("sync", "fence"),
        Operation::Close { .. } => return None,
    })
}

#[cfg(test)]
mod tests {
    use powerfail_model::files::ByteRange;

    use super::*;

    const FILE: NodeId = NodeId(7);

    fn write(offset: u64, len_bytes: u64) -> Operation {
        Operation::Write {
            node: FILE,
            range: ByteRange::new(offset, len_bytes),
        }
    }

    #[test]
    fn a_write_changes_its_blocks_and_the_length_only_if_it_extends_the_file() {
        let block = |page| Part::Block(FILE, PageIndex(page));
        let operation = write(4000, 200);
        assert_eq!(parts_of(&operation), [block(0), block(1)]);
        assert!(block(0).is_changed_by(&operation, 8192));
        assert!(block(1).is_changed_by(&operation, 8192));
        assert!(!block(2).is_changed_by(&operation, 8192));
        assert!(!Part::Length(FILE).is_changed_by(&operation, 8192));
        assert!(Part::Length(FILE).is_changed_by(&operation, 4100));
    }

    #[test]
    fn a_truncation_changes_only_blocks_that_the_file_had() {
        let cut = Operation::Truncate {
            node: FILE,
            len_bytes: 100,
        };
        let is_changed = |page| Part::Block(FILE, PageIndex(page)).is_changed_by(&cut, 8192);
        assert_eq!([0, 1, 2].map(is_changed), [true, true, false]);
        assert_eq!(parts_of(&cut), [Part::Length(FILE)]);
    }

    #[test]
    fn a_rename_changes_both_names() {
        let (from, to) = (Entry::new(NodeId(0), "a"), Entry::new(NodeId(0), "b"));
        let rename = Operation::Rename {
            node: FILE,
            from: from.clone(),
            to: to.clone(),
            replaced: None,
        };
        assert_eq!(parts_of(&rename), [Part::Name(from), Part::Name(to)]);
    }

    #[test]
    fn lengths_follow_the_operations() {
        let mut lengths = Lengths::default();
        lengths.set(FILE, 10);
        assert_eq!(lengths.apply(&write(0, 5)), 10);
        assert_eq!(lengths.apply(&write(8, 8)), 10);
        let cut = Operation::Truncate {
            node: FILE,
            len_bytes: 3,
        };
        assert_eq!(lengths.apply(&cut), 16);
        assert_eq!(lengths.apply(&write(0, 1)), 3);
    }
}
