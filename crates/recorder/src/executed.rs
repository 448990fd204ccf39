//! Programs that processes of the target execute: each is recorded, or named.
//!
//! A process announces the program that it is about to execute, and what it gives to it. The program says hello when the
//! runtime has started in it. If it never does, it was not recorded. That is an error, unless it is known that the program
//! had no way to a pool ([`Unrecorded::way_to`]).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;
use rustix::event::{PollFd, PollFlags};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags};
use rustix::time::Timespec;

use crate::error::{RecordError, Unsupported};
use crate::inspect::inspect;
use crate::sparse::FileIdentity;

/// What a program is given.
#[derive(Debug, Default)]
struct Given {
    /// Each with a zero behind it.
    arguments: Vec<u8>,
    /// Each with a zero behind it.
    variables: Vec<u8>,
    /// The files that it can write to without opening them.
    files: Vec<FileIdentity>,
}

/// A program that has not said hello yet.
#[derive(Debug)]
struct Announced {
    program: PathBuf,
    given: Given,
    /// Why it cannot be recorded, if that is known.
    reason: Option<Unsupported>,
    /// `None` once the process has ended.
    process: Option<OwnedFd>,
}

/// The programs of all processes.
#[derive(Debug, Default)]
pub(crate) struct ExecutedPrograms {
    announced: FxHashMap<i32, Announced>,
    /// What programs are given that will be announced.
    given: FxHashMap<i32, Given>,
    /// Those that ended without a hello.
    unrecorded: Vec<Unrecorded>,
}

/// A program that was not recorded.
#[derive(Debug)]
struct Unrecorded {
    process: i32,
    program: PathBuf,
    given: Given,
    reason: Option<Unsupported>,
    has_ended: bool,
}

/// A file that a program that was not recorded must not have changed.
#[derive(Debug)]
pub(crate) struct Precious {
    pub(crate) path: PathBuf,
    pub(crate) identity: FileIdentity,
}

/// What is said of the programs that were not recorded.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// Those that may have changed a pool, in sentences.
    pub(crate) suspects: Vec<String>,
    /// The others, in sentences.
    pub(crate) harmless: Vec<String>,
}

impl Unrecorded {
    /// How the program may have got to a pool; `None` if there was no way that is known.
    fn way_to(&self, pools: &[Precious]) -> Option<&'static str> {
        if self.reason.is_none() || pools.is_empty() || !self.has_ended {
            return Some("");
        }
        for pool in pools {
            if self.given.files.contains(&pool.identity) {
                return Some("; it inherited a descriptor of a pool");
            }
            let name = pool.path.file_name().unwrap_or_default().as_bytes();
            let folder = pool.path.parent().unwrap_or(Path::new("/"));
            if names(&self.given.arguments, name)
                || names(&self.given.arguments, folder.as_os_str().as_bytes())
            {
                return Some("; its arguments name a pool or its directory");
            }
            if names(&self.given.variables, name) {
                return Some("; its environment names a pool");
            }
        }
        None
    }

    fn sentence(&self, way: &str) -> String {
        let (process, program) = (self.process, self.program.display());
        let reason = match &self.reason {
            Some(reason) => reason.to_string(),
            None => "the runtime did not start in it".to_owned(),
        };
        format!("process {process} executed {program} and was not recorded: {reason}{way}")
    }
}

/// Whether a path or a name stands in a text, and not as a part of another name.
fn names(text: &[u8], name: &[u8]) -> bool {
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    let mut places = text.windows(name.len().max(1)).enumerate();
    places.any(|(at, part)| {
        let before = at.checked_sub(1).and_then(|before| text.get(before));
        let behind = text.get(at + name.len());
        part == name && !before.is_some_and(is_of_name) && !behind.is_some_and(is_of_name)
    })
}

impl ExecutedPrograms {
    /// A process is about to execute a program, or has just started to.
    pub(crate) fn announce(&mut self, process: Pid, program: Vec<u8>) {
        let id = process.as_raw_nonzero().get();
        self.settle(id);
        let program = PathBuf::from(OsString::from_vec(program));
        let is_searched = program.components().count() == 1 && !program.is_absolute();
        let found = if is_searched {
            program.clone()
        } else {
            let folder = std::fs::read_link(format!("/proc/{id}/cwd")).unwrap_or_default();
            folder.join(&program)
        };
        let reason = match inspect(found.as_os_str()) {
            Err(RecordError::Unsupported(reason)) if is_final(&reason) => Some(reason),
            _ => None,
        };
        let process = rustix::process::pidfd_open(process, PidfdFlags::empty()).ok();
        let given = self.given.remove(&id).unwrap_or_default();
        self.announced.insert(
            id,
            Announced {
                program,
                given,
                reason,
                process,
            },
        );
    }

    /// A program that will be announced gets these words, each with a zero behind it.
    pub(crate) fn give_words(&mut self, process: Pid, are_variables: bool, words: &[u8]) {
        let given = self.given.entry(process.as_raw_nonzero().get());
        let given = given.or_default();
        if are_variables {
            given.variables.extend_from_slice(words);
        } else {
            given.arguments.extend_from_slice(words);
        }
    }

    /// A program that will be announced inherits a descriptor with which it can write to a file.
    pub(crate) fn give_file(&mut self, process: Pid, file: FileIdentity) {
        let given = self.given.entry(process.as_raw_nonzero().get());
        given.or_default().files.push(file);
    }

    /// A process that was started said hello before it was announced: what was told of its program is not needed, and is
    /// not what the next program of this process is given.
    pub(crate) fn forget_given(&mut self, process: Pid) {
        self.given.remove(&process.as_raw_nonzero().get());
    }

    /// The program said hello, or was not executed after all.
    pub(crate) fn remove(&mut self, process: Pid) {
        self.announced.remove(&process.as_raw_nonzero().get());
    }

    /// Finds out which processes have ended. To be called before messages are received.
    pub(crate) fn look(&mut self) {
        for announced in self.announced.values_mut() {
            let has_ended = |process: &OwnedFd| {
                let mut polled = [PollFd::new(process, PollFlags::IN)];
                let now = Timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                };
                rustix::event::poll(&mut polled, Some(&now)).is_ok_and(|count| count > 0)
            };
            if announced.process.as_ref().is_some_and(has_ended) {
                announced.process = None;
            }
        }
    }

    /// Those that had ended before messages were received will not say hello any more.
    pub(crate) fn settle_ended(&mut self) {
        let ended =
            |(id, announced): (&i32, &Announced)| announced.process.is_none().then_some(*id);
        let ended: Vec<i32> = self.announced.iter().filter_map(ended).collect();
        for id in ended {
            self.settle(id);
        }
    }

    fn settle(&mut self, id: i32) {
        let Some(announced) = self.announced.remove(&id) else {
            return;
        };
        self.unrecorded.push(Unrecorded {
            process: id,
            program: announced.program,
            given: announced.given,
            reason: announced.reason,
            has_ended: announced.process.is_none(),
        });
    }

    /// Whether a program may still say hello.
    pub(crate) fn is_any_expected(&self) -> bool {
        self.announced
            .values()
            .any(|announced| announced.reason.is_none())
    }

    /// What is said of the programs that were not recorded. To be called at the end, with all pools.
    pub(crate) fn judge_unrecorded(&mut self, pools: &[Precious]) -> Judged {
        self.look();
        let mut left: Vec<i32> = self.announced.keys().copied().collect();
        left.sort_unstable();
        for id in left {
            self.settle(id);
        }
        let mut judged = Judged::default();
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for unrecorded in std::mem::take(&mut self.unrecorded) {
            match (unrecorded.way_to(pools), &unrecorded.reason) {
                (None, Some(reason)) => *counts.entry(reason.to_string()).or_default() += 1,
                (way, _) => judged
                    .suspects
                    .push(unrecorded.sentence(way.unwrap_or_default())),
            }
        }
        judged.harmless = counts
            .into_iter()
            .map(|(reason, count)| {
                let times = if count == 1 { "once" } else { &format!("{count} times") };
                format!(
                    "a program that is not recorded was executed {times}: {reason}; no pool was named to it"
                )
            })
            .collect();
        judged
    }

    /// The processes that have not said hello, and that may live.
    pub(crate) fn ids(&self) -> impl Iterator<Item = i32> {
        self.announced.keys().copied()
    }

    /// Sends a signal to the processes that may still say hello.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let processes = self.announced.values();
        for process in processes.filter_map(|announced| announced.process.as_ref()) {
            let _ = rustix::process::pidfd_send_signal(process, signal);
        }
    }
}

/// Whether a program with this property is never recorded. The others are errors of exec, which the target handles.
const fn is_final(reason: &Unsupported) -> bool {
    matches!(
        reason,
        Unsupported::Static { .. }
            | Unsupported::Go { .. }
            | Unsupported::SetId { .. }
            | Unsupported::Capabilities { .. }
            | Unsupported::ThirtyTwoBit { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::{ExecutedPrograms, names};

    /// The parent tells what it gave to a process that has said hello already.
    #[test]
    fn a_program_is_not_given_what_the_one_before_was_given() {
        let process = rustix::process::getpid();
        let mut executed = ExecutedPrograms::default();
        executed.give_words(process, false, b"of the parent\0");
        executed.forget_given(process);
        executed.give_words(process, false, b"its own\0");
        executed.announce(process, b"/nonexistent".to_vec());
        let announced = executed.announced.values().next().expect("a program");
        assert_eq!(announced.given.arguments, b"its own\0");
    }

    #[test]
    fn a_name_is_not_part_of_another_one() {
        let text = b"cp\0--to=/dir/pool\0";
        assert!(names(text, b"pool"));
        assert!(names(text, b"/dir"));
        assert!(names(b"pool\0", b"pool"));
        for text in [&b"pool.bak\0"[..], b"my-pool\0", b"/spool\0", b"", b"poo"] {
            assert!(!names(text, b"pool"), "{text:?}");
        }
    }
}
