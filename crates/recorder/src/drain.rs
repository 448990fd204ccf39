//! Drains a target in passes: examines the chunks, receives messages, reads, orders and writes records.
//!
//! The order inside a pass matters. First the ends of processes, so that the chunks of a dead process are
//! examined after its death. Then the chunks, then the socket: a message about a thing is sent before the
//! first record that refers to it, so everything in the examined chunks is explained by then. Only then
//! records are read.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use powerfail_model::ThreadIndex;
use powerfail_protocol::message::{MessageKind, sites_of};
use powerfail_protocol::shared::{Reply, SLOTS_MAX};
use powerfail_protocol::{PROTOCOL_VERSION, SiteId};
use powerfail_trace::{Module, ModuleIndex, Thread};
use rustc_hash::FxHashMap;
use rustix::fd::OwnedFd;
use rustix::process::Pid;

use crate::clock::{Stamp, TakenStamps};
use crate::error::RecordError;
use crate::executed::ExecutedPrograms;
use crate::merge::{Limit, Merge};
use crate::output::Output;
use crate::pool::Admission;
use crate::process::{ProcessIndex, Processes};
use crate::reader::Scan;
use crate::shared_file::{ChunkIndex, ChunkOwner, SharedFile, SlotIndex};
use crate::site::tactic_from_number;
use crate::socket::{Message, Received, Socket};
use crate::sparse::FileIdentity;
use crate::target_thread::{Life, ReadResult, TargetThread};
use crate::unperformed::{Suspect, suspects};
use crate::waiting;
use crate::written::WrittenFiles;

/// How many bytes of records may wait to be ordered before chunks are left unread.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// How many passes in a row may be stuck at that limit before records are written out of order.
const STUCK_PASSES_MAX: u32 = 500;
/// How many processes are described.
const DESCRIBED_MAX: usize = 8;
/// How many warnings of one recording are kept.
const SENTENCES_MAX: usize = 100;

/// A recording in progress.
pub(crate) struct Drain {
    shared: Arc<SharedFile>,
    socket: Socket,
    pub(crate) output: Output,
    pub(crate) processes: Processes,
    pub(crate) executed: ExecutedPrograms,
    /// By their numbers, which are dense.
    threads: Vec<Option<TargetThread>>,
    pub(crate) thread_count: u32,
    modules: FxHashMap<(PathBuf, Vec<u8>, u64), ModuleIndex>,
    merge: Merge,
    scan: Scan,
    taken: TakenStamps,
    stuck_passes: u32,
    /// Whether no process has a connection.
    is_disconnected: bool,
    pub(crate) greeted: bool,
    pub(crate) uncommitted: u64,
    pub(crate) unperformed: u64,
    /// Stores of dead threads that may not have been made.
    suspects: Vec<Suspect>,
    pub(crate) warnings: Vec<String>,
    /// Files that the target has written with system calls.
    pub(crate) written: WrittenFiles,
    pub(crate) fatal: Vec<String>,
}

/// The result of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Whether records wait, or were just read or written.
    pub(crate) active: bool,
    /// Whether all processes that could send or append have ended.
    pub(crate) deserted: bool,
}

impl Drain {
    pub(crate) fn new(
        shared: Arc<SharedFile>,
        socket: Socket,
        output: Output,
        slack: Duration,
    ) -> Self {
        Self {
            shared,
            socket,
            output,
            processes: Processes::default(),
            executed: ExecutedPrograms::default(),
            threads: Vec::new(),
            thread_count: 0,
            modules: FxHashMap::default(),
            merge: Merge::default(),
            scan: Scan::default(),
            taken: TakenStamps::new(slack),
            stuck_passes: 0,
            is_disconnected: false,
            greeted: false,
            uncommitted: 0,
            unperformed: 0,
            suspects: Vec::new(),
            warnings: Vec::new(),
            written: WrittenFiles::default(),
            fatal: Vec::new(),
        }
    }

    /// Whether no process of the target has a connection. One may still make one.
    pub(crate) const fn is_disconnected(&self) -> bool {
        self.is_disconnected
    }

    /// Makes one pass. An interruption ends it only if all processes have ended: else it is for the target.
    pub(crate) fn pass(
        &mut self,
        is_interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Progress, RecordError> {
        self.processes.look();
        self.executed.look();
        let deserted =
            self.is_disconnected && self.processes.all_gone() && !self.executed.is_any_expected();
        self.end_threads(deserted);
        let before = self.taken.add(self.shared.tick(), Instant::now());
        let chunks = self.look();
        self.receive()?;
        self.executed.settle_ended();
        let (limit, freed) = self.read(&chunks, before);
        if freed {
            self.shared.announce_freed();
        }
        let limit = if deserted {
            self.judge(Stamp::MAX);
            Limit::Everything
        } else {
            Limit::Before(self.judge(limit))
        };
        let mut wrote = self.write(limit, &mut || deserted && is_interrupted())?;
        wrote |= self.relieve(wrote)?;
        self.finish_threads()?;
        let done = self.merge.done();
        self.processes
            .iter_mut()
            .for_each(|process| process.mappings.forget(done));
        // What waits for a thread that is alone does not become ready by waiting.
        let mut threads = self.threads.iter().flatten();
        let is_waiting = self.merge.len_bytes() > 0 && !threads.any(TargetThread::may_repeat_stamp);
        let active = wrote || freed || is_waiting;
        Ok(Progress { active, deserted })
    }

    /// What the threads of all processes do, in sentences. `target` is the process that was started.
    pub(crate) fn describe_threads(&self, target: i32) -> Vec<String> {
        let known = self.processes.ids().chain(self.executed.ids());
        let mut ids: Vec<i32> = known.chain([target]).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.truncate(DESCRIBED_MAX);
        ids.into_iter().flat_map(waiting::describe).collect()
    }

    /// Reads everything that is left, after all processes have ended, unless it is interrupted.
    pub(crate) fn finish(
        &mut self,
        is_interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<(), RecordError> {
        let chunks = self.look();
        self.receive()?;
        for (number, _) in Self::grouped(&chunks) {
            self.thread(number, None)?;
        }
        for thread in self
            .threads
            .iter_mut()
            .flatten()
            .filter(|thread| thread.life < Life::Read)
        {
            thread.abrupt |= thread.life == Life::Living;
            thread.life = Life::Ended;
        }
        self.read(&chunks, Stamp::MAX);
        self.judge(Stamp::MAX);
        self.write(Limit::Everything, is_interrupted)?;
        self.finish_threads()?;
        if let Some(process) = self.shared.unreachable_from() {
            self.fatal.push(format!(
                "process {process} lost its connection to powerfail and could not connect again"
            ));
        }
        if self.merge.late() > 0 {
            let late = self.merge.late();
            self.warn(format!(
                "{late} events are out of order, because a thread stopped for long while it recorded one"
            ));
        }
        if self.output.malformed > 0 {
            let malformed = self.output.malformed;
            self.warn(format!(
                "{malformed} records of the runtime are invalid and were skipped"
            ));
        }
        if self.output.contradictions > 0 {
            let count = self.output.contradictions;
            self.warn(format!(
                "{count} operations on files do not fit to those before them"
            ));
        }
        if self.output.unmapped_bytes > 0 {
            let bytes = self.output.unmapped_bytes;
            self.warn(format!("{bytes} stored bytes lie in no known pool"));
        }
        Ok(())
    }

    fn warn(&mut self, sentence: String) {
        if self.warnings.len() < SENTENCES_MAX && !self.warnings.contains(&sentence) {
            self.warnings.push(sentence);
        }
    }

    /// Threads that have ended are read to their end from this pass on.
    fn end_threads(&mut self, deserted: bool) {
        for thread in self.threads.iter_mut().flatten() {
            let gone = deserted || self.processes.get(thread.process).is_gone();
            match thread.life {
                Life::Living if gone => {
                    thread.abrupt = true;
                    thread.life = Life::Ended;
                }
                Life::Ending => thread.life = Life::Ended,
                _ => {}
            }
        }
    }

    /// Examines the cursors of all threads, then the owners of all chunks.
    fn look(&mut self) -> Vec<(ChunkIndex, ChunkOwner)> {
        for (number, thread) in (0..).zip(&mut self.threads) {
            if let Some(thread) = thread.as_mut().filter(|thread| thread.life < Life::Read) {
                thread.look(number, &self.shared);
            }
        }
        let owned = |index| Some((index, self.shared.owner(index)?));
        let mut chunks: Vec<_> = self.shared.chunk_indexes().filter_map(owned).collect();
        chunks.sort_unstable_by_key(|(_, owner)| (owner.thread, owner.sequence));
        chunks
    }

    fn grouped(chunks: &[(ChunkIndex, ChunkOwner)]) -> Vec<(u32, &[(ChunkIndex, ChunkOwner)])> {
        let groups = chunks.chunk_by(|one, other| one.1.thread == other.1.thread);
        groups
            .filter_map(|group| Some((group.first()?.1.thread, group)))
            .collect()
    }

    /// Reads the examined chunks. Returns the stamp below which all records are known, and whether chunks were
    /// freed.
    ///
    /// Chunks of threads that have not announced themselves have no records.
    fn read(&mut self, chunks: &[(ChunkIndex, ChunkOwner)], before: Stamp) -> (Stamp, bool) {
        let groups: FxHashMap<u32, &[(ChunkIndex, ChunkOwner)]> =
            Self::grouped(chunks).into_iter().collect();
        let room = self.merge.len_bytes() < WAITING_BYTES_MAX;
        let mut limit = before;
        let mut total = ReadResult::default();
        let mut dead = Vec::new();
        for (number, thread) in (0..).zip(&mut self.threads) {
            let Some(thread) = thread.as_mut().filter(|thread| thread.life < Life::Read) else {
                continue;
            };
            let group = groups.get(&number).copied().unwrap_or_default();
            let queue = self.merge.queue(number);
            let result = thread.read(&self.shared, group, queue, &mut self.scan, room);
            limit = limit.min(thread.bound(before, result));
            total.freed += result.freed;
            total.uncommitted += result.uncommitted;
            total.garbage = total.garbage.or(result.garbage);
            if thread.life == Life::Read && thread.abrupt {
                dead.push(number);
                // The thread cannot free it any more.
                let own = |slot: &SlotIndex| self.shared.slot_thread(*slot) == Some(number);
                if let Some(slot) = thread.take_slot().filter(own) {
                    self.shared.free_slot(slot);
                }
                // Nor can it give this back.
                self.shared.free_file_lock(number);
            }
        }
        self.uncommitted += total.uncommitted;
        if let Some(word) = total.garbage {
            self.warn(format!(
                "a chunk is damaged at word {word:#x}; the rest of it is lost"
            ));
        }
        for number in dead {
            self.suspect(number);
        }
        (limit, total.freed > 0)
    }

    /// Finds stores that a dead thread recorded and may not have made.
    fn suspect(&mut self, number: u32) {
        let Some(Some(thread)) = self.threads.get(number as usize) else {
            return;
        };
        let mappings = &self.processes.get(thread.process).mappings;
        let found = suspects(
            &mut self.merge,
            number,
            thread.final_depth,
            mappings,
            &self.output.pools,
            &self.shared,
        );
        self.suspects.extend(found);
    }

    /// Removes stores that dead threads recorded and did not make, as far as that is known when all records below
    /// a stamp are. Returns the stamp below which no store is in doubt.
    fn judge(&mut self, known: Stamp) -> Stamp {
        let mut settled = known;
        let mut suspects = std::mem::take(&mut self.suspects);
        // The newest first: a store that was not made explains nothing.
        suspects.sort_unstable_by_key(|suspect| std::cmp::Reverse(suspect.stamp));
        for suspect in suspects {
            if known <= suspect.looked_at {
                settled = settled.min(suspect.stamp);
                self.suspects.push(suspect);
            } else if suspect.is_unperformed(&self.merge) {
                self.unperformed += 1;
                let queue = self.merge.queue(suspect.thread);
                queue.retain(|position| position != suspect.position);
            }
        }
        settled
    }

    fn write(
        &mut self,
        limit: Limit,
        is_interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<bool, RecordError> {
        /// How many records are written between two looks for an interruption.
        const LOOK_EVERY: u32 = 4096;
        let mut written = 0u32;
        let Self {
            merge,
            output,
            threads,
            processes,
            ..
        } = self;
        let wrote = merge.write(limit, |number, entry, queue| {
            written = written.wrapping_add(1);
            if written.is_multiple_of(LOOK_EVERY) && is_interrupted() {
                return Err(RecordError::Interrupted);
            }
            let Some(Some(thread)) = threads.get_mut(number as usize) else {
                return Ok(());
            };
            let mappings = &processes.get(thread.process).mappings;
            Ok(output.write(thread, mappings, entry.stamp, queue.item(entry))?)
        })?;
        Ok(wrote)
    }

    /// Bounds the records that wait. A thread that stops in the middle of an append holds up all others: first
    /// they wait for chunks, and if that does not help, records are written out of order.
    fn relieve(&mut self, wrote: bool) -> Result<bool, RecordError> {
        if wrote || self.merge.len_bytes() < WAITING_BYTES_MAX {
            self.stuck_passes = 0;
            return Ok(false);
        }
        self.stuck_passes += 1;
        if self.stuck_passes < STUCK_PASSES_MAX {
            return Ok(false);
        }
        self.write(Limit::Down(WAITING_BYTES_MAX / 2), &mut || false)
    }

    /// Writes the ends of threads all of whose records are written.
    fn finish_threads(&mut self) -> Result<(), RecordError> {
        for (number, place) in (0..).zip(&mut self.threads) {
            if let Some(thread) = place
                && thread.life == Life::Read
                && !self.merge.waits(number)
            {
                self.output.write_end(thread)?;
                thread.life = Life::Written;
                self.merge.remove(number);
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<(), RecordError> {
        loop {
            match self
                .socket
                .receive()
                .map_err(|error| RecordError::system("receive from the target", error))?
            {
                Received::Message(message) => {
                    self.is_disconnected = false;
                    self.handle(message)?;
                }
                Received::Garbage => self.warn("a message of the target is damaged".into()),
                Received::Nothing => {
                    self.is_disconnected = false;
                    return Ok(());
                }
                Received::End => {
                    self.is_disconnected = true;
                    return Ok(());
                }
            }
        }
    }

    fn handle(&mut self, message: Message) -> Result<(), RecordError> {
        let Some(sender) = message.sender else {
            self.warn("a message of the target has no sender".into());
            return Ok(());
        };
        match message.kind {
            Some(MessageKind::Hello) => self.hello(sender, &message),
            Some(MessageKind::ThreadStart) => {
                let process = self
                    .processes
                    .of_forked(sender, forked_from(message.words[3]));
                self.thread_start(message.words, process)
            }
            Some(MessageKind::ThreadEnd) => {
                let number = message.words[0];
                if let Some(Some(thread)) = self.threads.get_mut(number as usize)
                    && thread.life == Life::Living
                {
                    thread.life = Life::Ending;
                }
                Ok(())
            }
            Some(MessageKind::Module) => self.module(sender, message),
            Some(MessageKind::Site) => {
                self.sites(sender, &message);
                Ok(())
            }
            Some(MessageKind::Stack) => {
                self.stack(sender, &message);
                Ok(())
            }
            Some(MessageKind::PoolMap) => self.pool_map(sender, message),
            Some(MessageKind::PoolUnmap) => {
                let process = self.processes.of(sender);
                let [address, len_bytes, ..] = message.words;
                self.processes.get_mut(process).mappings.unmap(
                    address,
                    len_bytes,
                    self.shared.tick(),
                );
                Ok(())
            }
            Some(MessageKind::PoolMove) => {
                let process = self.processes.of(sender);
                let [from, to, len_bytes, stamp, _] = message.words;
                let mappings = &mut self.processes.get_mut(process).mappings;
                mappings.copy(from, to, len_bytes, Stamp(stamp));
                Ok(())
            }
            Some(MessageKind::Exec) => {
                self.executed.announce(sender, message.text);
                Ok(())
            }
            Some(MessageKind::ExecWords) => {
                self.given_words(sender, &message);
                Ok(())
            }
            Some(MessageKind::ExecFile) => {
                self.given_file(sender, &message);
                Ok(())
            }
            Some(MessageKind::ExecFailed) => {
                self.executed.remove(sender);
                Ok(())
            }
            Some(MessageKind::Spawned) => {
                self.spawned(message);
                Ok(())
            }
            Some(MessageKind::Wrote) => {
                self.wrote(sender, message);
                Ok(())
            }
            Some(MessageKind::TreeAsk) => self.tree_ask(message),
            Some(MessageKind::Warning) => {
                self.warn(String::from_utf8_lossy(&message.text).into_owned());
                Ok(())
            }
            Some(MessageKind::Fatal) => {
                if self.fatal.len() < SENTENCES_MAX {
                    self.fatal
                        .push(String::from_utf8_lossy(&message.text).into_owned());
                }
                Ok(())
            }
            None => {
                self.warn("a message of the target has an unknown kind".into());
                Ok(())
            }
        }
    }

    /// Instructions that can append records.
    fn sites(&mut self, sender: Pid, message: &Message) {
        let process = self.processes.of(sender);
        for [id, address, _, tactic] in sites_of(message.words, &message.text) {
            let frame = self.processes.get(process).frame(address);
            match (u32::try_from(id), tactic_from_number(tactic)) {
                (Ok(id), Some(tactic)) => self.output.sites.define(SiteId(id), frame, tactic),
                _ => self.warn("a message of the target about an instruction is invalid".into()),
            }
        }
    }

    /// The target is about to change something in a directory that is not in a tree.
    fn tree_ask(&mut self, message: Message) -> Result<(), RecordError> {
        let slot = u32::try_from(message.words[0]).ok();
        let Some(slot) = slot.filter(|slot| (*slot as usize) < SLOTS_MAX) else {
            self.warn("a message of the target about a directory is invalid".into());
            return Ok(());
        };
        let path = path_of(message.text);
        let Output { trees, writer, .. } = &mut self.output;
        let is_tree = trees.ask(writer, &path)?;
        self.shared
            .show_trees(trees.candidate(), trees.root_paths());
        let reply = if is_tree {
            Reply::Record
        } else {
            Reply::Ignore
        };
        self.shared.reply(SlotIndex(slot), reply);
        Ok(())
    }

    fn wrote(&mut self, sender: Pid, message: Message) {
        let [device, inode, only_if_known, ..] = message.words;
        let file = FileIdentity { device, inode };
        let path = path_of(message.text);
        if only_if_known != 0 {
            self.written.rename(file, path);
        } else if self.output.pools.has(file) {
            let process = sender.as_raw_nonzero().get();
            self.written.insert_pool(&path, process);
        } else {
            self.written.insert(file, path);
        }
    }

    fn stack(&mut self, sender: Pid, message: &Message) {
        let [id, site, address, ..] = message.words;
        let process = self.processes.of(sender);
        let process = self.processes.get(process);
        let callers = message.text.chunks_exact(8).map(|word| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(word);
            u64::from_le_bytes(bytes)
        });
        let frames = std::iter::once(address)
            .chain(callers)
            .map(|address| process.frame(address))
            .collect();
        match (u32::try_from(id), u32::try_from(site)) {
            (Ok(id), Ok(site)) => {
                self.output
                    .sites
                    .define_stack(SiteId(id), SiteId(site), frames);
            }
            _ => self.warn("a message of the target about a call stack is invalid".into()),
        }
    }

    fn hello(&mut self, sender: Pid, message: &Message) -> Result<(), RecordError> {
        let found = message.words[0];
        if found != u64::from(PROTOCOL_VERSION) {
            return Err(RecordError::ProtocolVersion {
                found,
                supported: PROTOCOL_VERSION,
            });
        }
        self.greeted = true;
        self.executed.remove(sender);
        let (_, before) = self.processes.begin(sender);
        if before.is_some() {
            // The process was replaced by exec, and its threads ended.
            let replaced = |thread: &&mut TargetThread| Some(thread.process) == before;
            for thread in self.threads.iter_mut().flatten().filter(replaced) {
                if thread.life == Life::Living {
                    thread.abrupt = true;
                    thread.life = Life::Ending;
                }
            }
        }
        Ok(())
    }

    fn thread_start(&mut self, words: [u64; 5], process: ProcessIndex) -> Result<(), RecordError> {
        match u32::try_from(words[0]) {
            Ok(number) => self.thread(number, Some((words[1] as u32, process))),
            Err(_) => {
                self.warn("a message of the target about a thread is invalid".into());
                Ok(())
            }
        }
    }

    /// Registers a thread, with its system id and its process if it announced them.
    fn thread(
        &mut self,
        number: u32,
        known: Option<(u32, ProcessIndex)>,
    ) -> Result<(), RecordError> {
        /// Numbers are dense; a higher one is damaged.
        const THREADS_MAX: usize = 1 << 22;
        let place = number as usize;
        if place >= THREADS_MAX {
            return Ok(());
        }
        if place >= self.threads.len() {
            self.threads.resize_with(place + 1, || None);
        }
        if self.threads[place].is_none() {
            let (os_id, process) = match known {
                Some(known) => known,
                None => {
                    self.warn(
                        "a thread of the target recorded events without announcing itself".into(),
                    );
                    (0, self.processes.unknown())
                }
            };
            let index: ThreadIndex = self
                .output
                .writer
                .define_thread(&Thread { os_id, name: None })?;
            self.threads[place] = Some(TargetThread::new(index, process));
            self.thread_count += 1;
        }
        Ok(())
    }

    fn module(&mut self, sender: Pid, message: Message) -> Result<(), RecordError> {
        let [load_address, len_bytes, build_id_len, function_len, _] = message.words;
        let text = message.text;
        let parts = usize::try_from(build_id_len).ok().and_then(|len| {
            let (build_id, rest) = text.split_at_checked(len)?;
            let (function, path) = rest.split_at_checked(usize::try_from(function_len).ok()?)?;
            Some((build_id.to_vec(), function, path.to_vec()))
        });
        let Some((build_id, function, path)) = parts else {
            self.warn("a message of the target about a module is invalid".into());
            return Ok(());
        };
        let function =
            (!function.is_empty()).then(|| String::from_utf8_lossy(function).into_owned());
        let path = PathBuf::from(OsString::from_vec(path));
        let key = (path, build_id, load_address);
        let index = match self.modules.get(&key) {
            Some(index) => *index,
            None => {
                let (path, build_id, load_address) = key.clone();
                let module = Module {
                    path,
                    build_id,
                    load_address,
                    len_bytes,
                    function,
                };
                let index = self.output.writer.define_module(&module)?;
                self.modules.insert(key, index);
                index
            }
        };
        let process = self.processes.of(sender);
        self.processes
            .get_mut(process)
            .load(load_address, len_bytes, index);
        Ok(())
    }

    /// A process has started another one, which may have said hello already.
    fn spawned(&mut self, message: Message) {
        let started = i32::try_from(message.words[0]).ok().and_then(Pid::from_raw);
        match started {
            Some(started) if self.processes.knows(started) => self.executed.forget_given(started),
            Some(started) => self.executed.announce(started, message.text),
            None => {}
        }
    }

    /// A program that will be executed gets arguments or variables.
    fn given_words(&mut self, sender: Pid, message: &Message) {
        let [process, kind, ..] = message.words;
        let process = given_process(sender, process);
        self.executed.give_words(process, kind != 0, &message.text);
    }

    /// A program that will be executed gets a descriptor with which it can write to a file.
    fn given_file(&mut self, sender: Pid, message: &Message) {
        let [process, device, inode, ..] = message.words;
        let file = FileIdentity { device, inode };
        let process = given_process(sender, process);
        self.executed.give_file(process, file);
    }

    fn pool_map(&mut self, sender: Pid, message: Message) -> Result<(), RecordError> {
        let [address, len_bytes, offset, slot, imitates_dax] = message.words;
        let Some(slot) = u32::try_from(slot)
            .ok()
            .filter(|slot| (*slot as usize) < SLOTS_MAX)
            .map(SlotIndex)
        else {
            self.warn("a message of the target about a pool is invalid".into());
            return Ok(());
        };
        let path = path_of(message.text);
        let Output {
            pools,
            writer,
            trees,
            ..
        } = &mut self.output;
        let base_address = address.wrapping_sub(offset);
        let identity = message.file.as_ref().and_then(identity_of);
        let imitates_dax = imitates_dax != 0;
        let reply = match pools.admit(writer, &path, message.file, base_address, imitates_dax)? {
            Admission::Ignored => {
                if let Some(identity) = identity {
                    trees.mark_unrecorded(identity);
                }
                Reply::Ignore
            }
            Admission::Pool {
                index,
                len_bytes: pool_len_bytes,
                known,
            } => {
                let now = self.shared.tick();
                let process = self.processes.of(sender);
                self.processes
                    .get_mut(process)
                    .mappings
                    .map(address, len_bytes, index, offset, now);
                if let Some(thread) = self.shared.slot_thread(slot) {
                    let queue = self.merge.queue(thread);
                    if known {
                        queue.push_pool_length(now, index, pool_len_bytes);
                    } else {
                        queue.push_mapped(now, index);
                    }
                }
                Reply::Record
            }
        };
        self.shared.reply(slot, reply);
        Ok(())
    }
}

/// The identity of a file of the target.
fn identity_of(file: &OwnedFd) -> Option<FileIdentity> {
    let status = rustix::fs::fstat(file).ok()?;
    Some(FileIdentity {
        device: status.st_dev,
        inode: status.st_ino,
    })
}

/// The process that a message is about: the sender if it does not say.
fn given_process(sender: Pid, word: u64) -> Pid {
    let process = i32::try_from(word).ok().and_then(Pid::from_raw);
    process.unwrap_or(sender)
}

/// The process from which a new one was forked; 0 if it does not say.
fn forked_from(word: u64) -> Option<i32> {
    i32::try_from(word).ok().filter(|parent| *parent > 0)
}

/// The path that a message names.
fn path_of(text: Vec<u8>) -> PathBuf {
    PathBuf::from(OsString::from_vec(text))
}
