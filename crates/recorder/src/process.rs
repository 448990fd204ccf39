//! The processes of the target: whether they are alive, and which modules and pools they have mapped where.

use powerfail_trace::{Frame, ModuleIndex};
use rustc_hash::FxHashMap;
use rustix::event::{PollFd, PollFlags};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal};
use rustix::time::Timespec;

use crate::mapping::Mappings;

/// The number of a process, in the order in which they became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessIndex(usize);

/// A module in an address space.
#[derive(Clone, Copy, Debug)]
struct LoadedModule {
    address: u64,
    len_bytes: u64,
    index: ModuleIndex,
}

/// A process of the target.
#[derive(Debug, Default)]
pub(crate) struct Process {
    /// `None` once it has ended.
    handle: Option<OwnedFd>,
    /// Its start time in ticks of the kernel, which distinguishes it from a later process with the same id.
    started: Option<u64>,
    /// Where its pools are.
    pub(crate) mappings: Mappings,
    modules: Vec<LoadedModule>,
}

impl Process {
    /// Adds a module, which replaces modules at the same addresses.
    pub(crate) fn load(&mut self, address: u64, len_bytes: u64, index: ModuleIndex) {
        let end = address.saturating_add(len_bytes);
        self.modules
            .retain(|module| module.address >= end || module.address + module.len_bytes <= address);
        self.modules.push(LoadedModule {
            address,
            len_bytes,
            index,
        });
    }

    /// The frame of an address.
    pub(crate) fn frame(&self, address: u64) -> Frame {
        let inside =
            |module: &&LoadedModule| address.wrapping_sub(module.address) < module.len_bytes;
        match self.modules.iter().find(inside) {
            Some(module) => Frame::Module {
                module: module.index,
                offset: address - module.address,
            },
            None => Frame::Absolute { address },
        }
    }

    /// Whether it, and not a later process, has an id. It may have ended.
    fn is_still(&self, id: i32) -> bool {
        let is_same = || Status::of(id).is_none_or(|now| Some(now.started) == self.started);
        !self.is_gone() || is_same()
    }

    /// Whether it has ended.
    pub(crate) const fn is_gone(&self) -> bool {
        self.handle.is_none()
    }
}

/// All processes of the target.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    all: Vec<Process>,
    by_id: FxHashMap<i32, ProcessIndex>,
}

impl Processes {
    /// How many there were.
    pub(crate) const fn count(&self) -> usize {
        self.all.len()
    }

    /// The process with an id. A process that is new and has sent no hello was forked: it has the mappings and
    /// modules of its parent.
    pub(crate) fn of(&mut self, pid: Pid) -> ProcessIndex {
        self.of_forked(pid, None)
    }

    /// Whether a process is known. It may have ended since.
    pub(crate) fn knows(&self, pid: Pid) -> bool {
        let id = pid.as_raw_nonzero().get();
        self.by_id
            .get(&id)
            .is_some_and(|index| self.all[index.0].is_still(id))
    }

    /// The same, for a process that announced its parent.
    pub(crate) fn of_forked(&mut self, pid: Pid, parent: Option<i32>) -> ProcessIndex {
        let id = pid.as_raw_nonzero().get();
        if let Some(index) = self.by_id.get(&id) {
            // It may have ended with messages still unread, or the id is used again.
            if self.all[index.0].is_still(id) {
                return *index;
            }
        }
        // If its parent is unknown, the newest process is the best guess.
        let parent = parent.or_else(|| Status::of(id).map(|status| status.parent));
        let parent = parent.and_then(|parent| self.by_id.get(&parent));
        let parent = parent.map_or(self.all.last(), |index| self.all.get(index.0));
        let (mappings, modules) = parent.map_or_else(Default::default, |parent| {
            (parent.mappings.clone(), parent.modules.clone())
        });
        self.add(pid, mappings, modules)
    }

    fn add(&mut self, pid: Pid, mappings: Mappings, modules: Vec<LoadedModule>) -> ProcessIndex {
        let id = pid.as_raw_nonzero().get();
        let handle = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok();
        let started = Status::of(id).map(|status| status.started);
        let index = ProcessIndex(self.all.len());
        self.all.push(Process {
            handle,
            started,
            mappings,
            modules,
        });
        self.by_id.insert(id, index);
        index
    }

    /// A process about which nothing is known, and which has ended.
    pub(crate) fn unknown(&mut self) -> ProcessIndex {
        let index = ProcessIndex(self.all.len());
        self.all.push(Process::default());
        index
    }

    /// Adds a process with an empty address space. If it was replaced by exec, also returns the previous one.
    pub(crate) fn begin(&mut self, pid: Pid) -> (ProcessIndex, Option<ProcessIndex>) {
        let before = self.by_id.get(&pid.as_raw_nonzero().get()).copied();
        (self.add(pid, Mappings::default(), Vec::new()), before)
    }

    pub(crate) fn get(&self, index: ProcessIndex) -> &Process {
        &self.all[index.0]
    }

    pub(crate) fn get_mut(&mut self, index: ProcessIndex) -> &mut Process {
        &mut self.all[index.0]
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Process> {
        self.all.iter_mut()
    }

    /// Finds out which processes have ended.
    pub(crate) fn look(&mut self) {
        for process in &mut self.all {
            let Some(handle) = &process.handle else {
                continue;
            };
            let mut polled = [PollFd::new(handle, PollFlags::IN)];
            let now = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            let gone = rustix::event::poll(&mut polled, Some(&now)).is_ok_and(|count| count > 0);
            if gone {
                process.handle = None;
            }
        }
    }

    /// Waits until one of those that are alive ends, or until the timeout. Returns false at once if none is alive.
    pub(crate) fn wait_for_end(&self, timeout: &Timespec) -> bool {
        let handles = self
            .all
            .iter()
            .filter_map(|process| process.handle.as_ref());
        let mut polled: Vec<_> = handles
            .map(|handle| PollFd::new(handle, PollFlags::IN))
            .collect();
        if polled.is_empty() {
            return false;
        }
        // A signal ends the wait early; the caller checks again anyway.
        let _ = rustix::event::poll(&mut polled, Some(timeout));
        true
    }

    /// The ids of all of them.
    pub(crate) fn all_ids(&self) -> Vec<i32> {
        let mut ids: Vec<i32> = self.by_id.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// The ids of those that live.
    pub(crate) fn ids(&self) -> impl Iterator<Item = i32> {
        let lives = |(_, index): &(&i32, &ProcessIndex)| !self.all[index.0].is_gone();
        self.by_id.iter().filter(lives).map(|(id, _)| *id)
    }

    /// Whether all have ended.
    pub(crate) fn all_gone(&self) -> bool {
        self.all.iter().all(Process::is_gone)
    }

    /// Sends a signal to all processes.
    pub(crate) fn signal(&self, signal: Signal) {
        for handle in self
            .all
            .iter()
            .filter_map(|process| process.handle.as_ref())
        {
            let _ = rustix::process::pidfd_send_signal(handle, signal);
        }
    }
}

/// The status of a process as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Status {
    parent: i32,
    started: u64,
}

impl Status {
    fn of(id: i32) -> Option<Self> {
        // The name of the program, in parentheses, may contain anything.
        let stat = std::fs::read(format!("/proc/{id}/stat")).ok()?;
        let behind_name = stat.iter().rposition(|byte| *byte == b')')?;
        let fields = std::str::from_utf8(stat.get(behind_name + 1..)?).ok()?;
        let mut fields = fields.split_ascii_whitespace();
        Some(Self {
            parent: fields.nth(1)?.parse().ok()?,
            started: fields.nth(17)?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Processes, Status};
    use powerfail_trace::{Frame, ModuleIndex};

    #[test]
    fn parents_and_modules() {
        let own = std::process::id().cast_signed();
        let parent = std::os::unix::process::parent_id().cast_signed();
        assert_eq!(Status::of(own).map(|status| status.parent), Some(parent));
        let mut processes = Processes::default();
        let index = processes.of(rustix::process::getpid());
        let process = processes.get_mut(index);
        process.load(0x1000, 0x1000, ModuleIndex(0));
        process.load(0x1800, 0x1000, ModuleIndex(1));
        assert_eq!(
            process.frame(0x1900),
            Frame::Module {
                module: ModuleIndex(1),
                offset: 0x100
            }
        );
        assert_eq!(process.frame(0x1100), Frame::Absolute { address: 0x1100 });
        processes.look();
        assert!(!processes.all_gone());
        let (again, before) = processes.begin(rustix::process::getpid());
        assert_eq!(before, Some(index));
        assert_eq!(
            processes.get(again).frame(0x1900),
            Frame::Absolute { address: 0x1900 }
        );
    }
}
