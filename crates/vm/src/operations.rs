//! The operations of a workload, and what is stored after each: system calls that change something, as the guest tells of them.
//!
//! A line of the script makes any number of calls. Each is an operation from the end of the one before it on, so that stores
//! through a mapping belong to the next one. A line is an operation as a whole if it makes no such call, if it makes too
//! many, or if it makes others when it runs again. Where a line leaves something else than its last call, what comes behind that
//! call is an operation, too.

use std::collections::{BTreeMap, BTreeSet};

use powerfail_trace::Durable;

use crate::file_system::{FileSystem, Promise};
use crate::guest::{Answer, Line};
use crate::reference::TreeListing;
use crate::workload::Workload;

/// A line with more calls is an operation as a whole: what is stored is listed after each call, which takes its time.
pub(crate) const CALLS_MAX: usize = 100;
/// Where guests mount the file system.
const ROOT: &str = "/mnt";

/// A system call that changes what is stored, or makes it durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its name.
    pub name: String,
    /// The file, if the call has a descriptor of it or syncs it as a whole.
    pub path: Option<String>,
}

/// An operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The line of the workload: 0 is the mount, the one behind the last is the unmount.
    pub line: usize,
    /// The call, if it is one.
    pub call: Option<Call>,
    /// Whether it is all that its line does.
    pub is_whole_line: bool,
    /// What is stored when it has ended.
    pub tree: TreeListing,
}

/// What one line does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineCalls {
    /// Its calls, each with what is stored then, if that was listed.
    pub calls: Vec<(Call, TreeListing)>,
    /// What is stored at its end, if that was listed.
    pub tree: TreeListing,
}

/// Lines by their numbers.
pub type Lines = BTreeMap<usize, LineCalls>;

/// What a guest tells of the lines of a workload.
pub(crate) fn lines(answer: &Answer) -> Lines {
    let mut told: Vec<(usize, Option<Call>, Vec<&str>)> = Vec::new();
    let mut is_listing = false;
    for line in &answer.lines {
        match line {
            Line::Output(text) => {
                if let Some((_, _, listed)) = told.last_mut().filter(|_| is_listing) {
                    listed.push(text);
                }
            }
            Line::Told(text) => {
                let line = told_line(text).map(|number| (number, None));
                let call = || told_call(text).map(|(number, call)| (number, Some(call)));
                let next = line.or_else(call);
                is_listing = next.is_some();
                told.extend(next.map(|(number, call)| (number, call, Vec::new())));
            }
        }
    }
    let mut lines = Lines::new();
    for (number, call, listed) in told {
        let tree = TreeListing::parse(listed.into_iter());
        let line = lines.entry(number).or_default();
        match call {
            Some(call) => line.calls.push((call, tree)),
            None => line.tree = tree,
        }
    }
    lines
}

/// What the workload has printed: what is not listed.
pub(crate) fn printed(answer: &Answer) -> Vec<&str> {
    let mut is_listing = false;
    let lines = answer.lines.iter().filter_map(|line| match line {
        Line::Told(text) => {
            is_listing = told_line(text).is_some() || told_call(text).is_some();
            None
        }
        Line::Output(text) => (!is_listing && !text.trim().is_empty()).then_some(text.as_str()),
    });
    lines.collect()
}

/// `operation LINE STATUS`.
fn told_line(text: &str) -> Option<usize> {
    let rest = text.strip_prefix("operation ")?;
    rest.split(' ').next()?.parse().ok()
}

/// `call LINE NUMBER NAME PATH`, where the path may be missing.
fn told_call(text: &str) -> Option<(usize, Call)> {
    let mut words = text.strip_prefix("call ")?.splitn(4, ' ');
    let line = words.next()?.parse().ok()?;
    let _number = words.next()?;
    let name = words.next()?.to_owned();
    let path = words.next().map(str::to_owned);
    Some((line, Call { name, path }))
}

/// The operations of a recording, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operations {
    /// All of them: the first is the mount, the last the unmount.
    pub all: Vec<Operation>,
    /// Lines that are operations as a whole although they make calls, and why.
    pub whole_lines: Vec<(usize, &'static str)>,
}

impl Operations {
    /// From what a run without recording has left, and the calls of the recorded one.
    pub(crate) fn new(reference: &Lines, recorded: &Lines) -> Self {
        let mut operations = Self::default();
        for (number, line) in reference {
            let names = |lines: &Lines| -> Vec<String> {
                let calls = lines.get(number).map_or(&[][..], |line| &line.calls);
                calls.iter().map(|(call, _)| call.name.clone()).collect()
            };
            let why = if line.calls.len() > CALLS_MAX {
                Some("makes too many system calls")
            } else if names(reference) != names(recorded) {
                Some("makes other system calls when it runs again")
            } else {
                None
            };
            if let Some(why) = why {
                operations.whole_lines.push((*number, why));
            }
            operations.add(*number, line, why.is_some());
        }
        // The unmount changes nothing.
        if let Some(last) = operations.all.last() {
            let (line, tree) = (last.line + 1, last.tree.clone());
            let calls = Vec::new();
            operations.add(line, &LineCalls { calls, tree }, true);
        }
        operations
    }

    fn add(&mut self, number: usize, line: &LineCalls, is_whole_line: bool) {
        let is_whole_line = is_whole_line || line.calls.is_empty();
        let calls = line.calls.iter().filter(|_| !is_whole_line);
        self.all.extend(calls.map(|(call, tree)| Operation {
            line: number,
            call: Some(call.clone()),
            is_whole_line: false,
            tree: tree.clone(),
        }));
        let before = self.all.last().map(|last| &last.tree);
        if is_whole_line || before != Some(&line.tree) {
            self.all.push(Operation {
                line: number,
                call: None,
                is_whole_line,
                tree: line.tree.clone(),
            });
        }
    }

    /// The numbers of the operations of a line.
    pub(crate) fn of_line(&self, line: usize) -> std::ops::Range<usize> {
        let begin = self.all.partition_point(|it| it.line < line);
        let end = self.all.partition_point(|it| it.line <= line);
        begin..end
    }

    /// What people call an operation.
    pub(crate) fn name(&self, number: usize, workload: &Workload) -> String {
        let Some(operation) = self.all.get(number) else {
            return String::new();
        };
        let line = workload.name(operation.line);
        match &operation.call {
            Some(call) => format!("{} in `{line}`", call.name),
            None => line.to_owned(),
        }
    }

    /// What is durable when an operation has returned.
    pub(crate) fn durable(
        &self,
        number: usize,
        workload: &Workload,
        file_system: FileSystem,
        promise: Promise,
    ) -> Durable {
        let Some(operation) = self.all.get(number) else {
            return Durable::Nothing;
        };
        if promise == Promise::Return || operation.is_whole_line {
            return workload.durable(operation.line, promise);
        }
        let Some(call) = &operation.call else {
            return Durable::Nothing;
        };
        let path = call.path.as_deref().and_then(listed_name);
        match call.name.as_str() {
            "sync" | "syncfs" => Durable::All,
            // What is stored on a device has no names that are known.
            "fsync" | "fdatasync" if file_system == FileSystem::None => Durable::All,
            "fsync" => path.map_or(Durable::Nothing, one),
            // These need not keep permissions and links.
            "fdatasync" | "msync" => path
                .filter(|name| self.changes_only_data(number, name))
                .map_or(Durable::Nothing, one),
            _ => Durable::Nothing,
        }
    }

    /// Whether a file has the same permissions and links in all operations up to this one, as far as it exists.
    fn changes_only_data(&self, number: usize, name: &str) -> bool {
        let entries = self.all[..=number].iter();
        let attributes = entries
            .filter_map(|it| it.tree.entry(name))
            .map(|entry| entry.split(" size ").next());
        attributes.collect::<BTreeSet<_>>().len() <= 1
    }
}

fn one(name: String) -> Durable {
    Durable::Paths([name].into())
}

/// The name of a file in listings, which begin at the root of the file system.
fn listed_name(path: &str) -> Option<String> {
    let rest = path.strip_prefix(ROOT)?;
    (rest.is_empty() || rest.starts_with('/')).then(|| format!(".{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Line {
        Line::Told(text.to_owned())
    }

    fn output(text: &str) -> Line {
        Line::Output(text.to_owned())
    }

    fn answer(lines: Vec<Line>) -> Answer {
        Answer { status: 0, lines }
    }

    fn file(links: u32, sum: &str) -> [Line; 2] {
        [
            output(&format!("entry regular file|644|6|{links}|'./f'")),
            output(&format!("{sum}  ./f")),
        ]
    }

    /// Mount, `echo a > f; sync f` in three calls, and `cat f`, which prints.
    fn told_lines() -> Vec<Line> {
        let mut lines = vec![told("operation 0"), told("end")];
        lines.push(told("call 1 1 openat /mnt/f"));
        lines.extend(file(1, "0"));
        lines.extend([told("end"), told("call 1 2 write /mnt/f")]);
        lines.extend(file(1, "1"));
        lines.extend([told("end"), told("call 1 3 fsync /mnt/f")]);
        lines.extend(file(1, "1"));
        lines.extend([told("end"), told("operation 1 0")]);
        lines.extend(file(1, "1"));
        lines.extend([told("end"), output("a"), told("operation 2 0")]);
        lines.extend(file(1, "1"));
        lines.push(told("end"));
        lines
    }

    fn workload() -> Workload {
        Workload::parse("echo a > f; sync f\ncat f\n".to_owned())
    }

    fn durable(operations: &Operations) -> Vec<Durable> {
        let numbers = 0..operations.all.len();
        let durable = numbers
            .map(|number| operations.durable(number, &workload(), FileSystem::Ext4, Promise::Sync));
        durable.collect()
    }

    #[test]
    fn what_is_printed_is_not_what_is_stored() {
        assert_eq!(printed(&answer(told_lines())), ["a"]);
    }

    #[test]
    fn each_call_is_an_operation() {
        let lines = lines(&answer(told_lines()));
        let mut recorded = lines.clone();
        // Nothing is told of the mount when it is recorded.
        recorded.remove(&0);
        let operations = Operations::new(&lines, &recorded);
        assert_eq!(operations.whole_lines, []);
        let names: Vec<String> = (0..operations.all.len())
            .map(|number| operations.name(number, &workload()))
            .collect();
        let line = "echo a > f; sync f";
        assert_eq!(
            names,
            [
                "mount".to_owned(),
                format!("openat in `{line}`"),
                format!("write in `{line}`"),
                format!("fsync in `{line}`"),
                "cat f".to_owned(),
                "umount".to_owned()
            ]
        );
        assert_eq!(operations.of_line(1), 1..4);
        let trees: Vec<String> = operations.all.iter().map(|it| it.tree.text()).collect();
        assert_eq!(trees[1], "./f\tfile 644 links 1 size 6 0\n");
        assert_eq!(trees[4], "./f\tfile 644 links 1 size 6 1\n");
        assert_eq!(
            durable(&operations),
            [
                Durable::All,
                Durable::Nothing,
                Durable::Nothing,
                one("./f".to_owned()),
                Durable::Nothing,
                Durable::All
            ]
        );
        let at_once = operations.durable(1, &workload(), FileSystem::None, Promise::Return);
        assert_eq!(at_once, Durable::Everything);
    }

    #[test]
    fn a_line_that_differs_the_second_time_is_one_operation() {
        let reference = lines(&answer(told_lines()));
        let mut again = told_lines();
        again.retain(|line| *line != told("call 1 2 write /mnt/f"));
        let operations = Operations::new(&reference, &lines(&answer(again)));
        assert_eq!(operations.all.len(), 4);
        assert_eq!(operations.whole_lines.len(), 1);
        // The text of the line says what it syncs.
        assert_eq!(durable(&operations)[1], one("./f".to_owned()));
    }

    #[test]
    fn a_line_with_too_many_calls_is_one_operation() {
        let calls = (0..=CALLS_MAX).map(|number| told(&format!("call 1 {number} write /mnt/f")));
        let lines = lines(&answer(calls.chain([told("operation 1 0")]).collect()));
        let operations = Operations::new(&lines, &lines);
        assert_eq!(operations.all[0].call, None);
        assert_eq!(operations.all.len(), 2);
    }

    #[test]
    fn what_a_line_leaves_behind_its_last_call_is_an_operation() {
        let mut told_lines = told_lines();
        let at = told_lines
            .iter()
            .position(|line| *line == told("operation 1 0"));
        told_lines[at.unwrap() + 2] = output("2  ./f");
        let lines = lines(&answer(told_lines));
        let operations = Operations::new(&lines, &lines);
        assert_eq!(operations.of_line(1), 1..5);
        assert_eq!(durable(&operations)[4], Durable::Nothing);
    }

    #[test]
    fn a_sync_of_data_keeps_no_permissions() {
        let synced = |links: u32| {
            let mut lines = vec![told("operation 0")];
            lines.extend(file(1, "1"));
            lines.push(told("call 1 1 fdatasync /mnt/f"));
            lines.extend(file(links, "2"));
            lines.push(told("operation 1 0"));
            lines.extend(file(links, "2"));
            let lines = super::lines(&answer(lines));
            durable(&Operations::new(&lines, &lines))[1].clone()
        };
        assert_eq!(synced(1), one("./f".to_owned()));
        assert_eq!(synced(2), Durable::Nothing);
    }

    #[test]
    fn names_begin_at_the_root() {
        assert_eq!(listed_name("/mnt"), Some(".".to_owned()));
        assert_eq!(listed_name("/mnt/a b/c"), Some("./a b/c".to_owned()));
        assert_eq!(listed_name("/mntx"), None);
        assert_eq!(listed_name("/dev/dm-2"), None);
    }
}
