//! The workload of a guest: a script, and its lines.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use powerfail_trace::Durable;

use crate::error::{Result, VmError};
use crate::file_system::Promise;

/// The operations of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    text: String,
    operations: Vec<String>,
}

impl Workload {
    /// Reads a script. Empty lines and those that begin with `#` are no operations.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(VmError::file("read", path))?;
        let workload = Self::parse(text);
        if workload.operations.is_empty() {
            return Err(VmError::Malformed {
                path: path.to_path_buf(),
                problem: "the workload has no operation".to_owned(),
            });
        }
        Ok(workload)
    }

    pub(crate) fn parse(text: String) -> Self {
        let lines = text.lines();
        let operations = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self {
            operations: operations.map(str::to_owned).collect(),
            text,
        }
    }

    /// The script.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its operations: number 1 is the first.
    pub fn operations(&self) -> &[String] {
        &self.operations
    }

    /// What people call an operation: 0 is the mount, the one behind the last is the unmount.
    pub fn name(&self, number: usize) -> &str {
        match number.checked_sub(1) {
            None => "mount",
            Some(at) => self.operations.get(at).map_or("umount", String::as_str),
        }
    }

    /// What is durable when an operation has returned.
    pub fn durable(&self, number: usize, promise: Promise) -> Durable {
        if promise == Promise::Return {
            return Durable::Everything;
        }
        match number.checked_sub(1) {
            // What the file system began with, and what it ended with.
            None => Durable::All,
            Some(at) => self
                .operations
                .get(at)
                .map_or(Durable::All, |line| synced(line)),
        }
    }
}

/// What a line makes durable: `sync` everything, `sync FILE` that file.
fn synced(line: &str) -> Durable {
    let mut paths = BTreeSet::new();
    for command in line.split([';', '&', '|']) {
        let mut words = command.split_whitespace();
        if words.next() != Some("sync") {
            continue;
        }
        let files: Vec<&str> = words.filter(|word| !word.starts_with('-')).collect();
        if files.is_empty() {
            return Durable::All;
        }
        // Names are those of the listing, which begins at the root of the file system.
        paths.extend(files.iter().map(|file| {
            let file = file.trim_start_matches("/mnt/").trim_start_matches("./");
            format!("./{}", file.trim_end_matches('/'))
        }));
    }
    if paths.is_empty() {
        Durable::Nothing
    } else {
        Durable::Paths(paths)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_operations() {
        let workload = Workload::parse("# a comment\n\nmkdir d\necho a > d/f; sync d/f\n".into());
        assert_eq!(workload.operations(), ["mkdir d", "echo a > d/f; sync d/f"]);
        assert_eq!(workload.name(0), "mount");
        assert_eq!(workload.name(2), "echo a > d/f; sync d/f");
        assert_eq!(workload.name(3), "umount");
    }

    #[test]
    fn syncs_are_understood() {
        let paths =
            |names: &[&str]| Durable::Paths(names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(synced("mkdir a"), Durable::Nothing);
        assert_eq!(synced("sync"), Durable::All);
        assert_eq!(synced("echo a > f && sync -d f"), paths(&["./f"]));
        assert_eq!(synced("sync /mnt/d/ ./e"), paths(&["./d", "./e"]));
        assert_eq!(synced("echo sync"), Durable::Nothing);
    }

    #[test]
    fn synchronous_file_systems_promise_at_once() {
        let workload = Workload::parse("mkdir a".into());
        assert_eq!(workload.durable(1, Promise::Return), Durable::Everything);
        assert_eq!(workload.durable(1, Promise::Sync), Durable::Nothing);
        assert_eq!(workload.durable(2, Promise::Sync), Durable::All);
    }
}
