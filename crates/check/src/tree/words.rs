//! Operations on files in words.

use powerfail_model::files::{Entry, NodeId, Operation};

use super::recording::TreeRecording;

/// How the noun of a creation begins.
pub(super) const CREATION: &str = "creation of";

/// What an operation is, as a noun with what tells it apart: `write`, `rename to config`.
pub(super) fn noun(recording: &TreeRecording, place: usize) -> String {
    let name = |entry: &Entry| recording.name_of_entry(entry, place);
    let operation = recording.operations.get(place);
    operation.map_or_else(String::new, |it| noun_of(&it.operation, &name))
}

fn noun_of(operation: &Operation, name: &dyn Fn(&Entry) -> String) -> String {
    let named = |word: &str, entry: &Entry| format!("{word} {}", name(entry));
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
    let noun = noun_of(operation, &|entry| entry.name.to_string());
    let first = noun.split(' ').next();
    first.unwrap_or_default().to_owned()
}

/// An operation in a sentence, with its file: `the write to config.tmp`.
pub(super) fn in_sentence(recording: &TreeRecording, place: usize) -> String {
    let Some(traced) = recording.operations.get(place) else {
        return "the end of the program".to_owned();
    };
    let noun = noun(recording, place);
    let file = traced
        .operation
        .node()
        .and_then(|node| recording.path_of(node, place))
        .map(|path| recording.name_of(&path));
    match (file, &traced.operation) {
        (Some(file), Operation::Write { .. }) => format!("the {noun} to {file}"),
        (Some(file), Operation::SyncFile { .. } | Operation::Truncate { .. }) => {
            format!("the {noun} of {file}")
        }
        (_, Operation::Rename { from, to, .. }) => {
            let [from, to] = [from, to].map(|entry| recording.name_of_entry(entry, place));
            format!("the rename of {from} to {to}")
        }
        _ => format!("the {noun}"),
    }
}

/// Two operations in a sentence: writes to one file are told apart by where they write.
pub(super) fn both_in_sentence(
    recording: &TreeRecording,
    places: (usize, usize),
) -> (String, String) {
    let (one, other) = (
        in_sentence(recording, places.0),
        in_sentence(recording, places.1),
    );
    let offset = |place: usize| match recording.operations.get(place)?.operation {
        Operation::Write { range, .. } => Some(range.offset),
        _ => None,
    };
    match (offset(places.0), offset(places.1)) {
        (Some(first), Some(second)) if one == other && first != second => (
            format!("{one} at offset {first:#x}"),
            format!("{other} at offset {second:#x}"),
        ),
        _ => (one, other),
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
