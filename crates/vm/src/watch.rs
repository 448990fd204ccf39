//! Recoveries that are watched: a guest under the plugin of QEMU recovers a crash image, and the plugin notes which lines of
//! persistent memory it reads, or what it stores.
//!
//! Guests are used again, as those that only recover: marks of the guest say where a recovery begins in the log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use powerfail_image::RunDirectory;
use powerfail_protocol::log::{Frame as LogFrame, Frames, words};
use powerfail_protocol::{EventKind, Record};
use powerfail_trace::Frame;

use crate::code_map::CodeMap;
use crate::error::{Result, VmError};
use crate::guest::{Answer, Guest, Line, PluginNotes, PluginUse};
use crate::machine::{Machine, run_directory, write};
use crate::pages;
use crate::recovery::give_files;
use crate::reference::open;
use crate::traced_reads::traced_reads;

const LINE: u64 = 64;
/// The marks: where a recovery begins, and where the file system is attached.
const BEGIN_AT: u64 = 0;
const END_AT: u64 = 8;
/// How often a guest is used again.
const REUSE_MAX: u32 = 50;

/// What a recovery did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedStep {
    /// Where in the code, innermost first.
    pub frames: Vec<Frame>,
    /// A store: where, and which bytes. Nothing if it is a flush or a fence.
    pub stored: Option<(u64, Vec<u8>)>,
}

/// Guests that recover while they are watched. A guest ends with the thread that has started it, so they have threads of their
/// own.
#[derive(Debug)]
pub struct Watch {
    /// Gone when it ends.
    jobs: Mutex<Option<Sender<Job>>>,
    workers: Vec<JoinHandle<()>>,
}

/// What is asked for.
#[derive(Debug)]
struct Job {
    notes: PluginNotes,
    image: PathBuf,
    reply: Sender<Result<Noted>>,
}

/// What a watched recovery did.
#[derive(Debug)]
enum Noted {
    Reads(Vec<Range<u64>>),
    Steps(Vec<WatchedStep>),
}

/// One thread of guests.
struct Worker {
    machine: Machine,
    files: PathBuf,
    code: CodeMap,
    limit: Duration,
    plugin: PathBuf,
    /// Guests that wait: those whose loads are noted, and those whose stores are.
    loads: Option<WatchedGuest>,
    stores: Option<WatchedGuest>,
}

struct WatchedGuest {
    guest: Guest,
    /// How much of the log was read.
    read: u64,
    log: PathBuf,
    /// Stacks that the log has named before.
    stacks: Vec<Vec<u64>>,
    /// Where the code of modules was in the first recovery, as in the recording, which began in the same way.
    first_sections: Option<CodeSections>,
    uses: u32,
    // Dropped last: it has the log.
    _directory: RunDirectory,
}

impl Watch {
    /// So many guests of a machine, which get the files of an archive. `plugin` is the library.
    pub fn start(
        machine: &Machine,
        files: &Path,
        plugin: &[u8],
        code: &CodeMap,
        limit: Duration,
        count: usize,
    ) -> Result<Self> {
        let directory = run_directory()?;
        let path = directory.path().join("plugin.so");
        write(&path, plugin)?;
        // The workers have it as long as one of them is there.
        let directory = Arc::new(directory);
        let (jobs, waiting) = mpsc::channel::<Job>();
        let waiting = Arc::new(Mutex::new(waiting));
        let workers = (0..count.max(1)).map(|_| {
            let mut worker = Worker {
                machine: machine.clone(),
                files: files.to_path_buf(),
                code: code.clone(),
                limit,
                plugin: path.clone(),
                loads: None,
                stores: None,
            };
            let (waiting, directory) = (Arc::clone(&waiting), Arc::clone(&directory));
            thread::spawn(move || {
                let _directory = directory;
                loop {
                    let job = waiting.lock().map(|waiting| waiting.recv());
                    let Ok(Ok(job)) = job else { return };
                    // The one that asks may have been interrupted.
                    let _ = job.reply.send(worker.work(job.notes, &job.image));
                }
            })
        });
        Ok(Self {
            workers: workers.collect(),
            jobs: Mutex::new(Some(jobs)),
        })
    }

    /// The lines of an image that recovery reads, and what checks it afterwards: ranges of bytes, in order. The image has what
    /// recovery left afterwards.
    pub fn reads(&self, image: &Path) -> Result<Vec<Range<u64>>> {
        match self.ask(PluginNotes::Loads, image)? {
            Noted::Reads(reads) => Ok(reads),
            Noted::Steps(_) => Err(ended()),
        }
    }

    /// What recovery does until what is stored is attached. The image is left as it was.
    pub fn steps(&self, image: &Path) -> Result<Vec<WatchedStep>> {
        match self.ask(PluginNotes::Stores, image)? {
            Noted::Steps(steps) => Ok(steps),
            Noted::Reads(_) => Err(ended()),
        }
    }

    fn ask(&self, notes: PluginNotes, image: &Path) -> Result<Noted> {
        let (reply, answer) = mpsc::channel();
        let job = Job {
            notes,
            image: image.to_path_buf(),
            reply,
        };
        let jobs = self.jobs.lock().map_err(|_| ended())?;
        let sent = jobs.as_ref().map(|jobs| jobs.send(job));
        drop(jobs);
        match sent {
            Some(Ok(())) => answer.recv().map_err(|_| ended())?,
            _ => Err(ended()),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Ok(mut jobs) = self.jobs.lock() {
            *jobs = None;
        }
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

fn ended() -> VmError {
    VmError::Guest("the guests that are watched have ended".to_owned())
}

impl Worker {
    fn work(&mut self, notes: PluginNotes, image: &Path) -> Result<Noted> {
        let image = open(image)?;
        match notes {
            PluginNotes::Loads => self.reads(&image).map(Noted::Reads),
            PluginNotes::Stores => self.steps(&image).map(Noted::Steps),
        }
    }

    fn reads(&mut self, file: &File) -> Result<Vec<Range<u64>>> {
        let (guest, log, answer) = self.recover(PluginNotes::Loads, file)?;
        let mut lines = Vec::new();
        let mut marks = 0;
        for frame in frames(&log)? {
            let LogFrame::Load { offset, .. } = frame else {
                continue;
            };
            if offset >= self.machine.layout().pm_len {
                marks += 1;
            } else if marks == 1 {
                lines.push(offset..offset + LINE);
            }
        }
        if marks != 2 {
            return Err(incomplete());
        }
        if answer.status != 0 {
            // What it read until it failed. Nothing checks the image then.
            return Ok(joined(lines));
        }
        self.loads = guest.kept();
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        if let Some(command) = self.machine.file_system().check_command(Path::new(&path))? {
            // In a thread whose only children are those of the command.
            let traced = thread::scope(|scope| {
                let thread = scope.spawn(|| traced_reads(command, file));
                thread.join().unwrap_or_else(|_| Err(ended()))
            });
            lines.extend(traced?);
        }
        Ok(joined(lines))
    }

    fn steps(&mut self, file: &File) -> Result<Vec<WatchedStep>> {
        let (mut guest, log, answer) = self.recover(PluginNotes::Stores, file)?;
        if answer.status != 0 {
            return Err(VmError::Guest(
                "recovery fails while it is watched".to_owned(),
            ));
        }
        let sections = CodeSections::told_in(&answer);
        let first = guest
            .first_sections
            .get_or_insert_with(|| sections.clone())
            .clone();
        let mut steps = Vec::new();
        let mut is_recovering = false;
        for frame in frames(&log)? {
            match frame {
                LogFrame::Stack { number, addresses } => {
                    let number = number as usize;
                    if guest.stacks.len() <= number {
                        guest.stacks.resize(number + 1, Vec::new());
                    }
                    guest.stacks[number] = words(addresses).collect();
                }
                LogFrame::Event { record, .. } => {
                    let marks = self.machine.layout().pm_len;
                    match record.address.and_then(|at| at.checked_sub(marks)) {
                        Some(BEGIN_AT) => is_recovering = true,
                        Some(END_AT) => is_recovering = false,
                        None if is_recovering => {
                            let place = |at| self.code.place(sections.address_in(&first, at));
                            steps.push(step(&guest, &record, place));
                        }
                        Some(_) | None => {}
                    }
                }
                LogFrame::UnknownFlush { .. } | LogFrame::Load { .. } => {}
            }
        }
        self.stores = guest.kept();
        Ok(steps)
    }

    /// Recovers an image, and gives what the plugin has written meanwhile, and what the guest answered.
    fn recover(
        &mut self,
        notes: PluginNotes,
        image: &File,
    ) -> Result<(WatchedGuest, Vec<u8>, Answer)> {
        let kept = match notes {
            PluginNotes::Loads => self.loads.take(),
            PluginNotes::Stores => self.stores.take(),
        };
        let mut guest = match kept {
            Some(guest) => guest,
            None => self.start(notes)?,
        };
        let len = self.machine.layout().pm_len;
        let pm = guest.guest.pm_file();
        let memory = open(&pm)?;
        pages::copy(image, &memory, len).map_err(VmError::file("write", &pm))?;
        let command = match notes {
            PluginNotes::Loads => "recover loads",
            PluginNotes::Stores => "recover stores",
        };
        let answer = guest.guest.obey(command, self.limit);
        let answer = answer.map_err(|end| VmError::Guest(end.to_string()))?;
        if notes == PluginNotes::Loads {
            pages::copy(&memory, image, len).map_err(VmError::file("read", &pm))?;
        }
        let log = guest.take_log()?;
        Ok((guest, log, answer))
    }

    fn start(&self, notes: PluginNotes) -> Result<WatchedGuest> {
        let directory = run_directory()?;
        let log = directory.path().join("log");
        let plugin = PluginUse {
            plugin: self.plugin.clone(),
            log: log.clone(),
            notes,
        };
        let mut guest = Guest::start(&self.machine, Some(&plugin))?;
        give_files(&mut guest, &self.files)?;
        Ok(WatchedGuest {
            guest,
            read: 0,
            log,
            stacks: Vec::new(),
            first_sections: None,
            uses: 0,
            _directory: directory,
        })
    }
}

impl WatchedGuest {
    /// The guest, unless it was used often.
    fn kept(mut self) -> Option<Self> {
        self.uses += 1;
        (self.uses < REUSE_MAX).then_some(self)
    }

    /// What the log has that was not read: whole frames, because it is written up to the last mark.
    fn take_log(&mut self) -> Result<Vec<u8>> {
        let failed = VmError::file("read", &self.log);
        let read = || -> std::io::Result<Vec<u8>> {
            let mut file = File::open(&self.log)?;
            file.seek(SeekFrom::Start(self.read))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let mut bytes = read().map_err(failed)?;
        let is_first = self.read == 0;
        self.read += bytes.len() as u64;
        if !is_first {
            // Each part is read as a log of its own.
            bytes.splice(..0, powerfail_protocol::log::MAGIC.iter().copied());
        }
        Ok(bytes)
    }
}

/// A step of a recovery. `place` says where in the code an address is.
fn step(guest: &WatchedGuest, record: &Record<'_>, place: impl Fn(u64) -> Frame) -> WatchedStep {
    let stack = guest.stacks.get(record.header.site.0 as usize);
    let addresses = stack.map_or(&[][..], Vec::as_slice);
    let is_store = matches!(
        record.header.kind,
        EventKind::StorePlain
            | EventKind::StoreNonTemporal
            | EventKind::StoreLocked
            | EventKind::StoreSystem
    );
    let at = record.address.filter(|_| is_store);
    WatchedStep {
        frames: addresses.iter().map(|it| place(*it)).collect(),
        stored: at.map(|at| (at, record.value().to_vec())),
    }
}

/// Where the sections with code of modules are: a module that is loaded again is elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct CodeSections {
    names: BTreeMap<u64, String>,
}

impl CodeSections {
    /// Reads what the guest has told, one line for each section: its file and its address.
    fn told_in(answer: &Answer) -> Self {
        let sections = answer.lines.iter().filter_map(|line| {
            let Line::Output(text) = line else {
                return None;
            };
            let (name, address) = text.strip_prefix("/sys/module/")?.split_once(":0x")?;
            Some((u64::from_str_radix(address, 16).ok()?, name.to_owned()))
        });
        Self {
            names: sections.collect(),
        }
    }

    /// The address that code has where the sections are as in `other`. That of the kernel stays: it is below all modules.
    fn address_in(&self, other: &Self, address: u64) -> u64 {
        let Some((begin, name)) = self.names.range(..=address).next_back() else {
            return address;
        };
        let there = other.names.iter().find(|(_, other)| *other == name);
        there.map_or(address, |(there, _)| there + (address - begin))
    }
}

fn frames(log: &[u8]) -> Result<Frames<'_>> {
    Frames::new(log).ok_or_else(incomplete)
}

fn incomplete() -> VmError {
    VmError::Guest("the log of the QEMU plugin is incomplete".to_owned())
}

/// Ranges in order, without overlaps.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_found_where_it_was_in_the_first_recovery() {
        let told = |lines: &[&str]| {
            let lines = lines.iter().map(|it| Line::Output((*it).to_owned()));
            CodeSections::told_in(&Answer {
                status: 0,
                lines: lines.collect(),
            })
        };
        let first = told(&[
            "/sys/module/ext4/sections/.text:0xffffffffc0100000",
            "/sys/module/toy/sections/.text:0xffffffffc0200000",
            "/sys/module/toy/sections/.init.text:0xffffffffc0300000",
        ]);
        let again = told(&[
            "mounted",
            "/sys/module/ext4/sections/.text:0xffffffffc0100000",
            "/sys/module/toy/sections/.text:0xffffffffc0400000",
            "/sys/module/toy/sections/.init.text:0xffffffffc0380000",
        ]);
        let there = |at| again.address_in(&first, at);
        assert_eq!(there(0xffff_ffff_8100_0010), 0xffff_ffff_8100_0010);
        assert_eq!(there(0xffff_ffff_c010_0010), 0xffff_ffff_c010_0010);
        assert_eq!(there(0xffff_ffff_c040_0123), 0xffff_ffff_c020_0123);
        assert_eq!(there(0xffff_ffff_c038_0001), 0xffff_ffff_c030_0001);
    }

    #[test]
    #[allow(clippy::single_range_in_vec_init, reason = "ranges are what is joined")]
    fn ranges_are_joined() {
        assert_eq!(
            joined(vec![64..128, 0..64, 256..320, 300..310]),
            [0..128, 256..320]
        );
    }
}
