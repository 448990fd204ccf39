//! Operations on the files of a tree, as text and JSON.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use powerfail_finding::{Report, hex};
use powerfail_model::files::{FileSystem, NodeId};
use powerfail_model::{Domain, EventIndex, Rules};
use powerfail_trace::{Body, EntryName, FileOperation, NewNode, RangeChange, Trace};
use serde_json::{Value, json};

use crate::text::{bytes, printable};

/// Bytes of a write that a line of text shows.
const BYTES_SHOWN: usize = 16;

/// The file system whose rules decide what survives, if it is files that crash: as totals or a finding say, or else because the
/// trace has files and no pools in persistent memory.
pub(crate) fn file_system_of(report: &Report, rules: Rules, trace: &Trace) -> Option<FileSystem> {
    let of_totals = report.totals.tree.iter().map(|it| &it.file_system);
    let of_findings = report.findings.iter().filter_map(|it| it.tree.as_ref());
    let named = of_totals
        .chain(of_findings.map(|it| &it.file_system))
        .next();
    let is_files = !trace.trees().is_empty()
        && (trace.pools().is_empty() || rules.domain == Domain::PageCache);
    let named_one = named.and_then(|name| name.parse().ok());
    (is_files || named.is_some()).then(|| named_one.unwrap_or_default())
}

/// The first path of each node. A node that is renamed keeps it here, so that one file has one name.
#[derive(Default)]
pub(crate) struct FirstNames {
    paths: BTreeMap<NodeId, PathBuf>,
    roots: Vec<PathBuf>,
}

impl FirstNames {
    /// Reads the names of a trace. One that cannot be read has fewer.
    pub(crate) fn of(trace: &Trace) -> Self {
        let mut names = Self::default();
        if trace.trees().is_empty() {
            return names;
        }
        for tree in trace.trees() {
            names.paths.entry(tree.root).or_insert(tree.path.clone());
            names.roots.push(tree.path.clone());
        }
        // Directories come before what is in them.
        for initial in trace.initial_entries() {
            let entry = &initial.entry;
            names.add(entry.directory, entry.name.as_bytes(), initial.node);
        }
        let mut records = trace.records_from(EventIndex(0));
        while let Ok(Some(record)) = records.next_record() {
            if let Body::File(
                FileOperation::Create {
                    node,
                    entry: Some(entry),
                    ..
                }
                | FileOperation::Link { node, entry },
            ) = record.body
            {
                names.add(entry.directory, entry.name, node);
            }
        }
        names
    }

    fn add(&mut self, directory: NodeId, name: &[u8], node: NodeId) {
        let path = self.path(directory, name);
        self.paths.entry(node).or_insert(path);
    }

    fn path(&self, directory: NodeId, name: &[u8]) -> PathBuf {
        let name = Path::new(OsStr::from_bytes(name));
        match self.paths.get(&directory) {
            Some(path) => path.join(name),
            None => name.to_path_buf(),
        }
    }

    /// A node for people.
    pub(crate) fn name(&self, node: NodeId) -> String {
        match self.paths.get(&node) {
            Some(path) => printable(&path.to_string_lossy()).into_owned(),
            None => format!("nameless file {node}"),
        }
    }

    /// A text without the path of the tree, if there is only one.
    pub(crate) fn without_tree(&self, text: &str) -> String {
        match &self.roots[..] {
            [root] => text.replace(&format!("{}/", root.display()), ""),
            _ => text.to_owned(),
        }
    }

    /// A node, or a name in a directory, without the path of its tree if there is only one.
    pub(crate) fn within_tree(&self, node: NodeId, name: Option<&[u8]>) -> String {
        let path = match name {
            Some(name) => self.path(node, name),
            None => match self.paths.get(&node) {
                Some(path) => path.clone(),
                None => return self.name(node),
            },
        };
        let short = match &self.roots[..] {
            [root] => path.strip_prefix(root).unwrap_or(&path),
            _ => &path,
        };
        let short = if short.as_os_str().is_empty() {
            &path
        } else {
            short
        };
        printable(&short.to_string_lossy()).into_owned()
    }

    fn entry(&self, entry: EntryName<'_>) -> String {
        let path = self.path(entry.directory, entry.name);
        printable(&path.to_string_lossy()).into_owned()
    }
}

/// An operation as text, without its kind.
pub(crate) fn text(operation: &FileOperation<'_>, names: &FirstNames) -> String {
    match *operation {
        FileOperation::Create {
            node, kind, entry, ..
        } => {
            let name = entry.map_or_else(|| names.name(node), |entry| names.entry(entry));
            match kind {
                NewNode::File => name,
                NewNode::Directory => format!("{name}/"),
                NewNode::Symlink(target) => {
                    format!("{name} -> {}", printable(&String::from_utf8_lossy(target)))
                }
                NewNode::Other => format!("{name} (no regular file)"),
            }
        }
        FileOperation::Link { node, entry } => {
            format!("{} to {}", names.entry(entry), names.name(node))
        }
        FileOperation::Unlink { entry, .. } => names.entry(entry),
        FileOperation::Rename {
            from, to, replaced, ..
        } => {
            let over = if replaced.is_some() {
                " (replaced)"
            } else {
                ""
            };
            format!("{} to {}{over}", names.entry(from), names.entry(to))
        }
        FileOperation::Exchange { first, second, .. } => {
            format!("{} with {}", names.entry(first), names.entry(second))
        }
        FileOperation::Write {
            node,
            offset,
            bytes: written,
        } => {
            let shown = hex(&written[..written.len().min(BYTES_SHOWN)]);
            let more = if written.len() > BYTES_SHOWN {
                "..."
            } else {
                ""
            };
            let (name, len) = (names.name(node), written.len());
            format!("{name} at {offset} +{len} = {shown}{more}")
        }
        FileOperation::Truncate { node, len_bytes } => {
            format!("{} to {}", names.name(node), bytes(len_bytes))
        }
        FileOperation::Change {
            node,
            change,
            range,
        } => {
            let (name, how) = (names.name(node), change_name(change));
            format!("{name} {how} at {} +{}", range.offset, range.len_bytes)
        }
        FileOperation::SyncFile { node, data_only } => {
            let data = if data_only { " (data)" } else { "" };
            format!("{}{data}", names.name(node))
        }
        FileOperation::SyncFileSystem => "all files".to_owned(),
        FileOperation::Close { node } => names.name(node),
        FileOperation::FailedSync { node } => format!("sync of {}", names.name(node)),
        FileOperation::CrossedDevices { entry } => {
            format!("rename to {} from another file system", names.entry(entry))
        }
    }
}

const fn change_name(change: RangeChange) -> &'static str {
    match change {
        RangeChange::Allocate { keep_size: false } => "allocate",
        RangeChange::Allocate { keep_size: true } => "allocate-keep-size",
        RangeChange::Zero { keep_size: false } => "zero",
        RangeChange::Zero { keep_size: true } => "zero-keep-size",
        RangeChange::PunchHole => "punch-hole",
        RangeChange::Collapse => "collapse",
        RangeChange::Insert => "insert",
    }
}

/// Adds an operation to the JSON of its record.
pub(crate) fn add_json(value: &mut Value, operation: &FileOperation<'_>, names: &FirstNames) {
    if let Some(node) = operation.node() {
        value["node"] = json!(node.0);
        value["path"] = json!(names.name(node));
    }
    match *operation {
        FileOperation::Create { entry, mode, .. } => {
            value["mode"] = json!(mode);
            value["entry"] = json!(entry.map(|entry| names.entry(entry)));
        }
        FileOperation::Link { entry, .. } | FileOperation::Unlink { entry, .. } => {
            value["entry"] = json!(names.entry(entry));
        }
        FileOperation::Rename {
            from, to, replaced, ..
        } => {
            value["from"] = json!(names.entry(from));
            value["to"] = json!(names.entry(to));
            value["replaced"] = json!(replaced.map(|node| node.0));
        }
        FileOperation::Exchange { first, second, .. } => {
            value["from"] = json!(names.entry(first));
            value["to"] = json!(names.entry(second));
        }
        FileOperation::Write {
            offset,
            bytes: written,
            ..
        } => {
            value["offset"] = json!(offset);
            value["len_bytes"] = json!(written.len());
            value["bytes"] = json!(hex(written));
        }
        FileOperation::Truncate { len_bytes, .. } => value["len_bytes"] = json!(len_bytes),
        FileOperation::Change { change, range, .. } => {
            value["change"] = json!(change_name(change));
            value["offset"] = json!(range.offset);
            value["len_bytes"] = json!(range.len_bytes);
        }
        FileOperation::SyncFile { data_only, .. } => value["data_only"] = json!(data_only),
        FileOperation::CrossedDevices { entry } => value["entry"] = json!(names.entry(entry)),
        FileOperation::SyncFileSystem
        | FileOperation::Close { .. }
        | FileOperation::FailedSync { .. } => {}
    }
}
