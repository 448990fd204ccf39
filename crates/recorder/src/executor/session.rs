//! One start of the target: its processes, their messages, and the orders to them.

use std::ffi::OsString;
use std::fs::File;
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use powerfail_protocol::chunk;
use powerfail_protocol::fuzz::{ARGUMENTS_AT, Area, ForkOrder, ForkServer, Phase, flag};
use powerfail_protocol::message::{MessageKind, sites_of};
use powerfail_protocol::shared::{CHUNKS_ADDRESS, ListenerName, SLOTS_MAX, chunk_of};
use powerfail_protocol::{PROTOCOL_VERSION, Records};
use rustix::process::{Pid, Signal};
use rustix::thread::futex;
use rustix::time::Timespec;

use crate::error::RecordError;
use crate::inspect::Executable;
use crate::shared_file::{ChunkIndex, ChunkOwner, SharedFile, SlotIndex};
use crate::socket::{Message, Received, Socket};
use crate::target::{Inheritance, Target, host_address, runtime_file, start};

use super::directory::Directory;
use super::error::ExecutorError;
use super::fold::{Dirty, Fold};
use super::mappings::Mappings;
use super::places::Places;

/// How a target is launched.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) executable: Executable,
    pub(super) command: OsString,
    pub(super) arguments: Vec<OsString>,
    pub(super) runtime: Vec<u8>,
    pub(super) variables: Vec<(OsString, OsString)>,
    pub(super) file_limit_bytes: u64,
    pub(super) chunk_count: u32,
    pub(super) stacks: bool,
    /// Whether operations on files in the directory are recorded.
    pub(super) records_files: bool,
    /// Bits of [`powerfail_protocol::fuzz::flag`].
    pub(super) flags: u32,
    /// The path of the input, if it is a named file.
    pub(super) input_path: Option<PathBuf>,
    /// Device and inode of the input.
    pub(super) input_identity: (u64, u64),
}

/// One start of the target.
#[derive(Debug)]
pub(super) struct Session {
    shared: SharedFile,
    socket: Socket,
    target: Target,
    places: Places,
    mappings: Mappings,
    /// The number of mappings of the template.
    template_mappings: usize,
    /// The number of messages that were read.
    messages: u32,
    /// How often threads have waited for chunks.
    starved: u32,
    /// The next thread of the target, if it has made none.
    threads: u32,
    greeted: bool,
    /// Why the runtime ended a process, until it is taken.
    fatal: Option<String>,
}

/// The result of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    /// The condition is met.
    Done,
    /// It timed out.
    Late,
    /// The started process has ended, with this status.
    Gone(powerfail_trace::recording::TargetStatus),
}

impl Session {
    /// Starts the target: as a fork server, or for a `single` execution with these words as arguments.
    pub(super) fn start(
        launch: &Launch,
        directory: &Directory,
        stdin: &File,
        single: Option<&[u8]>,
    ) -> Result<Self, ExecutorError> {
        let shared = SharedFile::create_for_executor(launch.chunk_count)?;
        let (mut socket, target_socket) = Socket::pair()
            .map_err(|error| RecordError::system("create a socket for the target", error))?;
        // For a target that closes all descriptors.
        let listener = ListenerName(host_address(&shared, None)?);
        socket
            .listen(&listener.to_string())
            .map_err(|error| RecordError::system("listen for the target", error))?;
        let area = shared.area();
        let mut flags = launch.flags;
        if let Some(words) = single {
            flags |= flag::THROUGH;
            shared.write_area(ARGUMENTS_AT, words);
            area.arguments_len
                .store(words.len() as u32, Ordering::Relaxed);
        }
        area.flags.store(flags, Ordering::Relaxed);
        let pool_path = directory.path().as_os_str().as_bytes();
        let input_path = launch.input_path.as_ref();
        let input_path = input_path.map_or(&b""[..], |path| path.as_os_str().as_bytes());
        shared.write_area(offset_of!(Area, directory) as u64, pool_path);
        shared.write_area(offset_of!(Area, input) as u64, input_path);
        area.directory_len
            .store(pool_path.len() as u32, Ordering::Relaxed);
        area.input_len
            .store(input_path.len() as u32, Ordering::Relaxed);
        let (device, inode) = launch.input_identity;
        area.input_device.store(device, Ordering::Relaxed);
        area.input_inode.store(inode, Ordering::Release);
        if launch.records_files {
            shared.record_files();
            shared.show_trees(None, std::iter::once(directory.path()));
        }
        let target = Self::start_target(launch, &shared, target_socket, stdin)?;
        Ok(Self {
            shared,
            socket,
            target,
            places: Places::new(launch.stacks),
            mappings: Mappings::default(),
            template_mappings: 0,
            messages: 0,
            starved: 0,
            threads: 0,
            greeted: false,
            fatal: None,
        })
    }

    fn start_target(
        launch: &Launch,
        shared: &SharedFile,
        socket: OwnedFd,
        stdin: &File,
    ) -> Result<Target, ExecutorError> {
        let stdin = stdin
            .try_clone()
            .map_err(|error| ExecutorError::system("pass the input to the target", error))?;
        let inheritance = Inheritance {
            shared,
            socket,
            runtime: runtime_file(&launch.runtime)?,
            variables: launch.variables.clone(),
            stdin: Some(stdin),
            discards_output: true,
            file_limit_bytes: Some(launch.file_limit_bytes),
            mounts: None,
        };
        let target = start(
            &launch.executable,
            &launch.command,
            &launch.arguments,
            inheritance,
        )?;
        Ok(target)
    }

    pub(super) fn area(&self) -> &Area {
        self.shared.area()
    }

    pub(super) const fn shared(&self) -> &SharedFile {
        &self.shared
    }

    /// Whether the runtime in the target has sent its greeting.
    pub(super) const fn is_greeted(&self) -> bool {
        self.greeted
    }

    /// Takes the reason why the runtime ended a process.
    pub(super) const fn take_fatal(&mut self) -> Option<String> {
        self.fatal.take()
    }

    /// Sends an order.
    pub(super) fn order(&self, server: impl Fn(&Area) -> &ForkServer, order: ForkOrder) {
        let server = server(self.area());
        server.phase.store(Phase::Away as u32, Ordering::Relaxed);
        server.order.store(order as u32, Ordering::Release);
        server.orders.fetch_add(1, Ordering::AcqRel);
        let _ = futex::wake(&server.orders, futex::Flags::empty(), u32::MAX >> 1);
    }

    /// Waits until a condition is met. Meanwhile reads messages, and records if the target has no free chunks. If `watch` is
    /// given, checks that often that the started process is alive.
    pub(super) fn wait(
        &mut self,
        directory: &mut Directory,
        fold: &mut Fold,
        dirty: &mut Dirty,
        until: impl Fn(&Area) -> bool,
        deadline: Instant,
        watch: Option<Duration>,
    ) -> Result<Waited, ExecutorError> {
        loop {
            let seen = self.area().host.load(Ordering::Acquire);
            self.receive(directory)?;
            if until(self.area()) {
                return Ok(Waited::Done);
            }
            let starved = self.area().starving.load(Ordering::Acquire);
            if starved != self.starved {
                self.starved = starved;
                self.drain(fold, dirty, true);
                self.shared.announce_freed();
            }
            if watch.is_some()
                && let Some(exit) = self.target.look()?
            {
                self.receive(directory)?;
                return Ok(Waited::Gone(exit.status));
            }
            let now = Instant::now();
            if now >= deadline {
                return Ok(Waited::Late);
            }
            let left = (deadline - now).min(watch.unwrap_or(Duration::MAX));
            self.sleep(seen, left);
        }
    }

    /// Sleeps until the target wakes the host, unless it did since `seen` was read.
    fn sleep(&self, seen: u32, time: Duration) {
        let time = Timespec {
            tv_sec: time.as_secs().cast_signed(),
            tv_nsec: time.subsec_nanos().into(),
        };
        let word = &self.area().host;
        let _ = futex::wait(word, futex::Flags::empty(), seen, Some(&time));
    }

    /// Reads messages of the target.
    fn receive(&mut self, directory: &mut Directory) -> Result<(), ExecutorError> {
        let sent = self.area().messages.load(Ordering::Acquire);
        if sent == self.messages {
            return Ok(());
        }
        loop {
            let received = self
                .socket
                .receive()
                .map_err(|error| ExecutorError::system("receive from the target", error))?;
            match received {
                Received::Message(message) => self.handle(message, directory)?,
                Received::Garbage => {}
                Received::Nothing | Received::End => break,
            }
        }
        self.messages = sent;
        Ok(())
    }

    fn handle(&mut self, message: Message, directory: &mut Directory) -> Result<(), ExecutorError> {
        let [first, second, third, fourth, _] = message.words;
        match message.kind {
            Some(MessageKind::Hello) if first != u64::from(PROTOCOL_VERSION) => {
                return Err(ExecutorError::Record(RecordError::ProtocolVersion {
                    found: first,
                    supported: PROTOCOL_VERSION,
                }));
            }
            Some(MessageKind::Hello) => self.greeted = true,
            Some(MessageKind::Module) => {
                let path_at = third.saturating_add(fourth) as usize;
                let path = message.text.get(path_at..).unwrap_or_default();
                self.places.load(first, second, path);
            }
            Some(MessageKind::Site) => {
                for [id, address, ..] in sites_of(message.words, &message.text) {
                    self.places.define(id, std::iter::once(address));
                }
            }
            Some(MessageKind::Stack) => {
                let callers = message.text.chunks_exact(8).map(|word| {
                    let mut bytes = [0; 8];
                    bytes.copy_from_slice(word);
                    u64::from_le_bytes(bytes)
                });
                self.places
                    .define(first, std::iter::once(third).chain(callers));
            }
            Some(MessageKind::PoolMap) => {
                let path = PathBuf::from(OsString::from_vec(message.text));
                if let Some(pool) = directory.pool(Path::new(&path)) {
                    self.mappings.map(first, second, pool, third);
                }
            }
            Some(MessageKind::PoolMove) => self.mappings.copy(first, second, third),
            Some(MessageKind::Fatal) => {
                let sentence = String::from_utf8_lossy(&message.text).into_owned();
                self.fatal.get_or_insert(sentence);
            }
            Some(
                MessageKind::Warning
                | MessageKind::ThreadStart
                | MessageKind::ThreadEnd
                | MessageKind::PoolUnmap
                | MessageKind::TreeAsk
                | MessageKind::Exec
                | MessageKind::ExecFailed
                | MessageKind::Spawned
                | MessageKind::ExecWords
                | MessageKind::ExecFile
                | MessageKind::Wrote,
            )
            | None => {}
        }
        Ok(())
    }

    /// Reads records and releases their chunks: those of all chunks, if no process writes any more, or only those of full
    /// ones.
    pub(super) fn drain(&mut self, fold: &mut Fold, dirty: &mut Dirty, full_only: bool) {
        let owned = |index| Some((index, self.shared.owner(index)?));
        let mut chunks: Vec<(ChunkIndex, ChunkOwner)> =
            self.shared.chunk_indexes().filter_map(owned).collect();
        chunks.sort_unstable_by_key(|(_, owner)| (owner.thread, owner.sequence));
        let mut cursors = Vec::new();
        if !full_only && chunks.iter().any(|(_, owner)| !owner.retired) {
            cursors = self.cursors();
        }
        for (index, owner) in chunks {
            if full_only && !owner.retired {
                continue;
            }
            let used = if owner.retired {
                chunk::LEN
            } else {
                let is_here = |cursor: &&u64| chunk_of(**cursor).0 == index.0;
                let cursor = cursors.iter().find(is_here);
                cursor.map_or(chunk::LEN, |cursor| chunk_of(*cursor).1.min(chunk::LEN))
            };
            let bytes = self.shared.view(index, used);
            let records = Records::new(bytes).map_while(Result::ok);
            let committed = records.filter(|record| record.stamp != 0);
            fold.take(owner.thread, committed, &self.places, &self.mappings, dirty);
            self.shared.free_used(index, used);
        }
    }

    /// The cursors of threads that have a chunk.
    fn cursors(&self) -> Vec<u64> {
        let slots = if self.shared.next_thread() == self.threads {
            1
        } else {
            SLOTS_MAX as u32
        };
        (0..slots)
            .map(SlotIndex)
            .map(|slot| self.shared.cursor(slot))
            .filter(|cursor| *cursor >= CHUNKS_ADDRESS)
            .collect()
    }

    /// Records the state of the template, with which its executions start.
    pub(super) fn keep_template(&mut self) {
        self.template_mappings = self.mappings.len();
    }

    /// Removes the state of the template.
    pub(super) fn forget_template(&mut self) {
        self.template_mappings = 0;
        self.forget_execution();
    }

    /// Removes the state of the last execution.
    pub(super) fn forget_execution(&mut self) {
        self.mappings.truncate(self.template_mappings);
        self.free_slots();
    }

    /// Frees the slots of threads that have ended. The first slot belongs to the forked thread.
    fn free_slots(&mut self) {
        let next = self.shared.next_thread();
        if next == self.threads {
            return;
        }
        if self.threads > 0 {
            for slot in (1..SLOTS_MAX as u32).map(SlotIndex) {
                if self.shared.slot_thread(slot).is_some() {
                    self.shared.free_slot(slot);
                }
            }
        } else {
            self.threads = next;
        }
    }

    /// Kills a process of the target.
    pub(super) fn kill(process: u32) {
        if let Some(pid) = Pid::from_raw(process.cast_signed()) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }

    /// Kills the started process and its process group.
    pub(super) fn kill_target(&mut self) {
        let _ = rustix::process::kill_process_group(self.target.id(), Signal::KILL);
        self.target.signal(Signal::KILL);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // How long processes may take to reap each other.
        const PATIENCE: Duration = Duration::from_secs(2);
        let root = &self.area().root;
        let child = root.child.load(Ordering::Acquire);
        let is_reached = root.process.load(Ordering::Acquire) != 0;
        // The root adopts orphaned processes and ends them.
        if is_reached && child != 0 && root.phase.load(Ordering::Acquire) == Phase::Away as u32 {
            Self::kill(child);
            let deadline = Instant::now() + PATIENCE;
            while self.area().root.phase.load(Ordering::Acquire) == Phase::Away as u32
                && Instant::now() < deadline
                && matches!(self.target.look(), Ok(None))
            {
                let seen = self.area().host.load(Ordering::Acquire);
                self.sleep(seen, Duration::from_millis(5));
            }
        }
        self.kill_target();
    }
}
