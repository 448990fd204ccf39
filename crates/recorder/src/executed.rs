//! Programs that processes of the target execute: each is recorded, or named.
//!
//! A process announces the program that it is about to execute. The program says hello when the runtime has started in
//! it. If it never does, it was not recorded.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use rustc_hash::FxHashMap;
use rustix::event::{PollFd, PollFlags};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags};
use rustix::time::Timespec;

use crate::error::{RecordError, Unsupported};
use crate::inspect::inspect;

/// A program that has not said hello yet.
#[derive(Debug)]
struct Announced {
    program: PathBuf,
    /// Why it cannot be recorded, if that is known.
    reason: Option<Unsupported>,
    /// `None` once the process has ended.
    process: Option<OwnedFd>,
}

/// The programs of all processes.
#[derive(Debug, Default)]
pub(crate) struct ExecutedPrograms {
    announced: FxHashMap<i32, Announced>,
    /// Those that ended without a hello, in sentences.
    unrecorded: Vec<String>,
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
        self.announced.insert(
            id,
            Announced {
                program,
                reason,
                process,
            },
        );
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
        let reason = match announced.reason {
            Some(reason) => reason.to_string(),
            None => "the runtime did not start in it".to_owned(),
        };
        let program = announced.program.display();
        self.unrecorded.push(format!(
            "process {id} executed {program} and was not recorded: {reason}"
        ));
    }

    /// Whether a program may still say hello.
    pub(crate) fn is_any_expected(&self) -> bool {
        self.announced
            .values()
            .any(|announced| announced.reason.is_none())
    }

    /// The programs that were not recorded, in sentences. To be called at the end.
    pub(crate) fn take_unrecorded(&mut self) -> Vec<String> {
        let mut left: Vec<i32> = self.announced.keys().copied().collect();
        left.sort_unstable();
        for id in left {
            self.settle(id);
        }
        std::mem::take(&mut self.unrecorded)
    }

    /// The processes that have not said hello, and that may live.
    pub(crate) fn ids(&self) -> impl Iterator<Item = i32> {
        self.announced.keys().copied()
    }

    /// Kills the processes that may still say hello.
    pub(crate) fn kill(&self) {
        let processes = self.announced.values();
        for process in processes.filter_map(|announced| announced.process.as_ref()) {
            let _ = rustix::process::pidfd_send_signal(process, rustix::process::Signal::KILL);
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
