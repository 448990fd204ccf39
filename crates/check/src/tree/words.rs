//! Operations on files in words.

use std::path::Path;

use powerfail_model::files::{Entry, NodeId, Operation};

use super::recording::TreeRecording;

/// How the noun of a creation begins.
pub(super) const CREATION: &str = "creation of";

/// What an operation is, as a noun with what tells it apart: `write`, `rename to config`.
pub(super) fn noun(operation: &Operation) -> String {
    let named = |word: &str, entry: &Entry| format!("{word} {}", entry.name);
    match operation {
        Operation::Create {
            entry: Some(entry), ..
        } => named(CREATION, entry),
        Operation::Create { entry: None, .. } => "creation of a file without a name".to_owned(),
        Operation::Link { entry, .. } => named("link as", entry),
        Operation::Unlink { entry, .. } => named("removal of", entry),
        Operation::Rename { to, .. } => named("rename to", to),
        Operation::Exchange { second, .. } => named("exchange with", second),
        Operation::Write { .. } => "write".to_owned(),
        Operation::Truncate { len_bytes: 0, .. } => "truncation to nothing".to_owned(),
        Operation::Truncate { len_bytes, .. } => format!("truncation to {len_bytes} bytes"),
        Operation::Allocate { .. } => "fallocate".to_owned(),
        Operation::Zero { .. } => "fallocate with zeros".to_owned(),
        Operation::PunchHole { .. } => "punched hole".to_owned(),
        Operation::CollapseRange { .. } => "collapsed range".to_owned(),
        Operation::InsertRange { .. } => "inserted range".to_owned(),
        Operation::SyncFile {
            data_only: true, ..
        } => "fdatasync".to_owned(),
        Operation::SyncFile { .. } => "fsync".to_owned(),
        Operation::SyncRange { .. } => "msync".to_owned(),
        Operation::SyncFileSystem => "sync".to_owned(),
        Operation::Close { .. } => "close".to_owned(),
    }
}

/// The kind of an operation: the first word of its noun.
pub(super) fn kind(operation: &Operation) -> String {
    let noun = noun(operation);
    let first = noun.split(' ').next();
    first.unwrap_or_default().to_owned()
}

/// An operation in a sentence, with its file: `the write to config.tmp`.
pub(super) fn in_sentence(recording: &TreeRecording, place: usize) -> String {
    let Some(traced) = recording.operations.get(place) else {
        return "the end of the program".to_owned();
    };
    let noun = noun(&traced.operation);
    let short = |path: &Path| recording.name_of(path);
    let file = traced
        .operation
        .node()
        .and_then(|node| recording.path_of(node, place));
    match (file, &traced.operation) {
        (Some(path), Operation::Write { .. } | Operation::SyncFile { .. }) => {
            let preposition = match traced.operation {
                Operation::Write { .. } => "to",
                _ => "of",
            };
            format!("the {noun} {preposition} {}", short(&path))
        }
        (Some(path), Operation::Truncate { .. }) => {
            format!("the {noun} of {}", short(&path))
        }
        (Some(path), Operation::Rename { .. }) => {
            let to = noun.trim_start_matches("rename to ");
            let from = short(&path);
            let parent = path.parent().filter(|_| from == to);
            match parent.and_then(Path::file_name) {
                Some(parent) => format!(
                    "the rename of {}/{from} to another directory",
                    parent.to_string_lossy()
                ),
                None => format!("the rename of {from} to {to}"),
            }
        }
        _ => format!("the {noun}"),
    }
}

/// The directories whose entries an operation changes.
pub(super) fn directories(operation: &Operation) -> Vec<NodeId> {
    let entries: Vec<&Entry> = match operation {
        Operation::Create {
            entry: Some(entry), ..
        }
        | Operation::Link { entry, .. }
        | Operation::Unlink { entry, .. } => vec![entry],
        Operation::Rename { from, to, .. } => vec![to, from],
        Operation::Exchange { first, second, .. } => vec![first, second],
        _ => Vec::new(),
    };
    let mut nodes: Vec<NodeId> = entries.into_iter().map(|it| it.directory).collect();
    nodes.dedup();
    nodes
}

/// The role of a file: its name without digits, so that numbered files have one role. A word with letters behind a digit is
/// taken for one that was chosen at random, or for a hash.
pub(super) fn role_of(name: &str) -> String {
    let mut role = String::new();
    let mut rest = name;
    while !rest.is_empty() {
        let len = rest.find(|it: char| !it.is_ascii_alphanumeric());
        let (word, after) = rest.split_at(len.unwrap_or(rest.len()));
        match word.find(|it: char| it.is_ascii_digit()) {
            None => role.push_str(word),
            Some(at) => {
                let (start, end) = word.split_at(at);
                if end.bytes().all(|it| it.is_ascii_digit()) {
                    role.push_str(start);
                }
                role.push('#');
            }
        }
        let mut after = after.chars();
        role.extend(after.next());
        rest = after.as_str();
    }
    role
}

#[cfg(test)]
mod tests {
    use super::role_of;

    #[test]
    fn numbered_and_random_names_have_one_role() {
        let roles = [
            ("log", "log"),
            ("log1", "log#"),
            ("000123.sst", "#.sst"),
            ("part-12-of-30.db", "part-#-of-#.db"),
            ("tmp4e7rg2a6", "#"),
            ("tmp_obj_x1Yz.tmp", "tmp_obj_#.tmp"),
            ("825dc642cb6eb9a060e54bf8d69288fbee4904", "#"),
            (".hidden.", ".hidden."),
            ("é1", "é#"),
        ];
        for (name, role) in roles {
            assert_eq!(role_of(name), role);
        }
    }
}
