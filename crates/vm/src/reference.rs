//! What a workload should leave: it runs once without recording, and the guest lists what is stored after each system call that
//! changes it, and after each line.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use crate::archive::Archive;
use crate::error::{Result, VmError};
use crate::guest::{Answer, Line};
use crate::machine::Machine;
use crate::operations::{Lines, lines, printed};
use crate::pages;
use crate::workload::Workload;

/// What a file system has: a description for each path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeListing {
    entries: BTreeMap<String, String>,
}

impl TreeListing {
    /// Reads the lines that the guest's script writes: entries and checksums.
    pub fn parse<'a>(lines: impl Iterator<Item = &'a str>) -> Self {
        let mut listing = Self::default();
        for line in lines {
            if let Some(entry) = line.strip_prefix("entry ") {
                listing.add_entry(entry);
            } else if let Some((sum, path)) = line.split_once("  ")
                && let Some(description) = listing.entries.get_mut(path)
            {
                let _ = write!(description, " {sum}");
            } else if !line.is_empty() {
                // A script of the user printed it: the first word is a name.
                let (name, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
                listing.entries.insert(name.to_owned(), rest.to_owned());
            }
        }
        listing
    }

    fn add_entry(&mut self, entry: &str) {
        let fields: Vec<&str> = entry.splitn(5, '|').collect();
        let [kind, mode, size, links, name] = fields[..] else {
            return;
        };
        let unquoted = |text: &str| text.trim_matches('\'').to_owned();
        let (path, target) = match name.split_once("' -> '") {
            Some((path, target)) => (unquoted(path), Some(unquoted(target))),
            None => (unquoted(name), None),
        };
        let mut description = format!("{kind} {mode} links {links}");
        if kind.starts_with("regular") {
            description = format!("file {mode} links {links} size {size}");
        }
        if let Some(target) = target {
            let _ = write!(description, " to {target}");
        }
        self.entries.insert(path, description);
    }

    /// The description of a path.
    pub(crate) fn entry(&self, path: &str) -> Option<&str> {
        self.entries.get(path).map(String::as_str)
    }

    /// One line for each path: the path, a tab, its description.
    pub fn text(&self) -> String {
        let lines = self.entries.iter();
        lines.fold(String::new(), |mut text, (path, description)| {
            let _ = writeln!(text, "{path}\t{description}");
            text
        })
    }
}

/// What is stored after each operation.
#[derive(Clone, Debug, Default)]
pub struct Reference {
    /// The lines of the workload; 0 is the mount.
    pub lines: Lines,
    /// The symbols of the guest's kernel at the end: `/proc/kallsyms`.
    pub symbols: String,
}

impl Reference {
    /// Runs a workload on an image, which stays as it is.
    pub fn run(
        machine: &Machine,
        workload: &Workload,
        files: &Archive,
        image: &File,
        limit: Duration,
    ) -> Result<Self> {
        let mut guest = machine.start()?;
        let pm = guest.pm_file();
        let memory = open(&pm)?;
        let copied = pages::copy(image, &memory, machine.layout().pm_len);
        copied.map_err(VmError::file("write", &pm))?;
        guest.take_files(files)?;
        let answer = guest.obey("workload trees", limit);
        let answer = answer.map_err(|end| end.error("the workload fails without any crash"))?;
        succeeded(workload, &answer)?;
        let mut symbols = machine.symbols()?;
        let of_modules = guest.answer_in_exchange("symbols")?;
        symbols.push_str(&String::from_utf8_lossy(&of_modules));
        Ok(Self {
            lines: lines(&answer),
            symbols,
        })
    }
}

/// The file behind memory, to be read and written.
pub(crate) fn open(path: &Path) -> Result<File> {
    let file = File::options().read(true).write(true).open(path);
    file.map_err(VmError::file("open", path))
}

/// Fails if a line of the workload failed.
pub(crate) fn succeeded(workload: &Workload, answer: &Answer) -> Result<()> {
    let told = answer.lines.iter().filter_map(|line| match line {
        Line::Told(text) => text.strip_prefix("operation "),
        Line::Output(_) => None,
    });
    let output = match &printed(answer)[..] {
        [] => String::new(),
        lines => format!(": {}", lines[lines.len().saturating_sub(5)..].join("; ")),
    };
    for told in told {
        let Some((number, status)) = told.split_once(' ') else {
            continue;
        };
        if status != "0" {
            let number = number.parse().unwrap_or(0);
            return Err(VmError::Line {
                text: workload.name(number).to_owned(),
                status: status.to_owned(),
                output,
            });
        }
    }
    if answer.status == 0 {
        Ok(())
    } else {
        Err(VmError::Guest(format!(
            "the workload failed with status {} without any crash{output}",
            answer.status
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_has_what_matters() {
        let lines = [
            "entry directory|755|4096|3|'.'",
            "entry regular file|644|6|1|'./a b'",
            "entry symbolic link|777|1|1|'./l' -> 'a b'",
            "b1946ac92492d2347c6235b4d2611184  ./a b",
            "record-1 text of it",
        ];
        let listing = TreeListing::parse(lines.into_iter());
        assert_eq!(
            listing.text(),
            ".\tdirectory 755 links 3\n\
             ./a b\tfile 644 links 1 size 6 b1946ac92492d2347c6235b4d2611184\n\
             ./l\tsymbolic link 777 links 1 to a b\n\
             record-1\ttext of it\n"
        );
    }

    #[test]
    fn a_failed_line_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("ops.sh");
        std::fs::write(&script, "mkdir a\nmkdir a\n").unwrap();
        let workload = Workload::read(&script).unwrap();
        let told = |text: &str| Line::Told(text.to_owned());
        let answer = Answer {
            status: 1,
            lines: vec![
                told("operation 0"),
                Line::Output("entry directory|755|4096|3|'.'".into()),
                told("end"),
                told("operation 1 0"),
                Line::Output("entry directory|755|4096|3|'.'".into()),
                told("end"),
                Line::Output("mkdir: File exists".into()),
                told("operation 2 1"),
            ],
        };
        let error = succeeded(&workload, &answer).unwrap_err().to_string();
        assert_eq!(
            error,
            "the workload fails without any crash: `mkdir a` ended with status 1: mkdir: File exists"
        );
    }
}
