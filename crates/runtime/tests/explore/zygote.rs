//! Plays the role of the oracle: creates the file, starts a recovery, sends orders.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::Read;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use powerfail_protocol::explore::{
    CHOICES_AT, CONTENTS_AT, Choice, FILE_LEN, FILE_VARIABLE, LINES_AT, LOG_AT, LineEntry,
    LogHeader, MAGIC, MESSAGE_LEN, NOTES_AT, Note, OPEN_PAGES_AT, OVERWRITTEN_BYTES, OpenPage,
    POOLS_AT, PREFIX_AT, PoolEntry, RecoveryControl, RecoveryMessageKind, RecoveryOrder,
    RefusalKind, SOCKET_VARIABLE, VERSION, WATCHES_AT, Watch, flag,
};
use powerfail_test_support::runtime;

pub(crate) const POOL_LEN: usize = 16384;
const PAGE: u64 = 4096;
const LINE: usize = 64;

/// The recovery, built once.
pub(crate) fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| build("recovery", &[]))
}

/// Builds a program of the tests.
pub(crate) fn build(name: &str, flags: &[&str]) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // Several processes may build it at a time: each renames a file of its own, so that it is always whole.
    let made = path.with_extension(std::process::id().to_string());
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/explore");
    let status = Command::new("gcc")
        .args(["-O1", "-g", "-pthread", "-Wall", "-Werror"])
        .arg("-I")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include"))
        .arg("-o")
        .args([&made, &sources.join(name).with_extension("c")])
        .args(flags)
        .status()
        .unwrap();
    assert!(status.success());
    fs::rename(&made, &path).unwrap();
    path
}

/// The possible results of a crash: open lines with their contents, the newest first.
#[derive(Clone, Default)]
pub(crate) struct Table {
    pub(crate) lines: BTreeMap<u64, Vec<[u8; LINE]>>,
    pub(crate) watched: BTreeMap<u64, u64>,
    /// Bytes whose first reads are noted, by line.
    pub(crate) noted: BTreeMap<u64, u64>,
    /// The pool without the open lines; zeros if it is empty.
    pub(crate) image: Vec<u8>,
}

impl Table {
    /// A line whose contents differ by these bytes.
    pub(crate) fn line(mut self, offset: u64, contents: &[&[(usize, u8)]]) -> Self {
        let contents = contents.iter().map(|bytes| {
            let mut content = [0; LINE];
            for (at, byte) in *bytes {
                content[*at] = *byte;
            }
            content
        });
        self.lines.insert(offset, contents.collect());
        self
    }

    pub(crate) fn watch(mut self, page: u64, lines: u64) -> Self {
        self.watched.insert(page, lines);
        self
    }

    /// Bytes of a line whose first reads are noted.
    pub(crate) fn note(mut self, line: u64, bytes: u64) -> Self {
        self.noted.insert(line, bytes);
        self
    }

    /// The flags that are needed to explore it.
    fn flags(&self) -> u32 {
        if self.noted.is_empty() {
            flag::LAZY
        } else {
            flag::LAZY | flag::NOTES
        }
    }
}

/// The result of an execution.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Outcome {
    pub(crate) output: String,
    /// The signal that ended it, or its exit code.
    pub(crate) end: Result<i32, i32>,
    /// The classes that it took.
    pub(crate) classes: Vec<u16>,
    /// The log: kind, offset, bytes.
    pub(crate) log: Vec<(u32, u64, Vec<u8>)>,
    /// The number of threads in the log.
    pub(crate) log_threads: usize,
    /// The notes: number of choices before, line, bytes.
    pub(crate) notes: Vec<(u32, u64, u64)>,
}

/// A message.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) kind: u64,
    pub(crate) words: [u64; 3],
    pub(crate) text: String,
    pub(crate) sender: i32,
}

/// A recovery that the runtime ended because it cannot be explored.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) kind: RefusalKind,
    pub(crate) reason: String,
}

impl Refused {
    pub(crate) fn new(kind: RefusalKind, reason: &str) -> Self {
        Self {
            kind,
            reason: reason.to_owned(),
        }
    }
}

impl Message {
    pub(crate) fn is(&self, kind: RecoveryMessageKind) -> bool {
        self.kind == kind as u64
    }
}

/// A recovery and its file.
pub(crate) struct Zygote {
    _directory: tempfile::TempDir,
    pub(crate) pool: PathBuf,
    table: Table,
    memory: *mut u8,
    file: OwnedFd,
    socket: OwnedFd,
    theirs: Option<OwnedFd>,
    output: File,
    output_end: Option<OwnedFd>,
    child: Option<Child>,
    /// Output that has not been read yet.
    pub(crate) warnings: Vec<String>,
}

fn check(result: libc::c_int) -> libc::c_int {
    assert!(result >= 0, "{}", std::io::Error::last_os_error());
    result
}

fn owned(fd: libc::c_int) -> OwnedFd {
    // SAFETY: the descriptor is new.
    unsafe { OwnedFd::from_raw_fd(check(fd)) }
}

impl Zygote {
    pub(crate) fn new(table: Table) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let pool = directory.path().join("pool");
        let name = CString::new("explore").unwrap();
        // SAFETY: plain calls with pointers to live variables.
        unsafe {
            let file = owned(libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC));
            check(libc::ftruncate(file.as_raw_fd(), FILE_LEN as i64));
            let memory = libc::mmap(
                std::ptr::null_mut(),
                FILE_LEN as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                0,
            );
            assert_ne!(memory, libc::MAP_FAILED);
            let mut pair = [0; 2];
            check(libc::socketpair(
                libc::AF_UNIX,
                libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC,
                0,
                pair.as_mut_ptr(),
            ));
            let socket = owned(pair[0]);
            let on: libc::c_int = 1;
            check(libc::setsockopt(
                pair[0],
                libc::SOL_SOCKET,
                libc::SO_PASSCRED,
                (&raw const on).cast(),
                4,
            ));
            let mut ends = [0; 2];
            check(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC));
            check(libc::fcntl(ends[0], libc::F_SETFL, libc::O_NONBLOCK));
            check(libc::fcntl(ends[1], libc::F_SETPIPE_SZ, 1 << 20));
            let mut zygote = Self {
                _directory: directory,
                pool,
                table,
                memory: memory.cast(),
                file,
                socket,
                theirs: Some(owned(pair[1])),
                output: File::from(owned(ends[0])),
                output_end: Some(owned(ends[1])),
                child: None,
                warnings: Vec::new(),
            };
            zygote.write_table();
            zygote
        }
    }

    pub(crate) fn control(&self) -> &mut RecoveryControl {
        // SAFETY: the file begins with it, and the recovery only changes the atomic fields.
        unsafe { &mut *self.memory.cast() }
    }

    fn put<T>(&self, at: u64, index: usize, value: T) {
        // SAFETY: inside the file.
        unsafe {
            let place = self.memory.add(at as usize).cast::<T>();
            place.add(index).write(value);
        }
    }

    /// A part of the file, by its offset.
    fn get<T: Copy>(&self, at: u64, index: usize) -> T {
        // SAFETY: inside the file.
        unsafe { self.memory.add(at as usize).cast::<T>().add(index).read() }
    }

    fn write_table(&mut self) {
        let path = self.pool.to_str().unwrap().as_bytes().to_vec();
        let path_at = POOLS_AT + 4096;
        for (index, byte) in path.iter().enumerate() {
            self.put(path_at, index, *byte);
        }
        let path_len = path.len() as u64;
        self.put(POOLS_AT, 0, PoolEntry { path_at, path_len });
        let (mut contents_at, mut knowledge_at) = (0, 0);
        let mut pages: BTreeMap<u64, (u32, u64)> = BTreeMap::new();
        for (index, (offset, contents)) in self.table.lines.iter().enumerate() {
            knowledge_at += OVERWRITTEN_BYTES;
            let line = LineEntry {
                pool: 0,
                content_count: contents.len() as u32,
                offset: *offset,
                contents_at,
                knowledge_at,
            };
            self.put(LINES_AT, index, line);
            knowledge_at += 8 * contents.len().div_ceil(64) as u64;
            for content in contents {
                self.put(CONTENTS_AT + contents_at, 0, *content);
                contents_at += LINE as u64;
            }
            pages.entry(offset / PAGE * PAGE).or_default().0 += 1;
        }
        for (offset, lines) in &self.table.watched {
            pages.entry(*offset).or_default().1 = *lines;
        }
        for (index, (offset, bytes)) in self.table.noted.iter().enumerate() {
            let watch = Watch {
                pool: 0,
                reserved: 0,
                offset: *offset,
                bytes: *bytes,
            };
            self.put(WATCHES_AT, index, watch);
            pages.entry(offset / PAGE * PAGE).or_default();
        }
        for (index, (offset, (open_lines, watched))) in pages.iter().enumerate() {
            let page = OpenPage {
                pool: 0,
                open_lines: *open_lines,
                offset: *offset,
                watched: *watched,
                read: 0.into(),
            };
            self.put(OPEN_PAGES_AT, index, page);
        }
        let line_count = self.table.lines.len() as u32;
        let watch_count = self.table.noted.len() as u32;
        let control = self.control();
        control.magic = MAGIC;
        control.version = VERSION;
        control.line_bytes = LINE as u32;
        control.pool_count = 1;
        control.line_count = line_count;
        control.watch_count = watch_count;
        control.page_count = pages.len() as u32;
        control.waiting_max = 100;
    }

    /// Which lines of a page of the table were read.
    pub(crate) fn read_lines(&self, page: usize) -> u64 {
        let at = OPEN_PAGES_AT + (page * size_of::<OpenPage>() + offset_of!(OpenPage, read)) as u64;
        self.get(at, 0)
    }

    /// Clears which lines of a page of the table were read.
    pub(crate) fn forget_reads(&self, page: usize) {
        let at = OPEN_PAGES_AT + (page * size_of::<OpenPage>() + offset_of!(OpenPage, read)) as u64;
        self.put(at, 0, 0u64);
    }

    /// Creates the pool as the failure point left it: a new file with the newest content.
    pub(crate) fn prepare(&self) {
        self.prepare_with(|_| 0);
    }

    /// Creates a pool in which each line, by its number, has one of its contents.
    pub(crate) fn prepare_with(&self, content: impl Fn(usize) -> usize) {
        let mut image = self.table.image.clone();
        image.resize(image.len().max(POOL_LEN), 0);
        for (number, (offset, contents)) in self.table.lines.iter().enumerate() {
            let place = &mut image[*offset as usize..*offset as usize + LINE];
            place.copy_from_slice(&contents[content(number)]);
        }
        let new = self.pool.with_extension("new");
        fs::write(&new, image).unwrap();
        fs::rename(&new, &self.pool).unwrap();
    }

    pub(crate) fn begin(&self, flags: u32, prefix: &[u16]) {
        for (index, class) in prefix.iter().enumerate() {
            self.put(PREFIX_AT, index, u32::from(*class));
        }
        let control = self.control();
        control.flags = flags;
        control.prefix_len = prefix.len() as u32;
        for word in [
            &control.choice_count,
            &control.active,
            &control.waiting,
            &control.attached,
            &control.begun,
            &control.note_count,
            &control.attention,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        control.log_len.store(0, Ordering::Relaxed);
    }

    /// Starts the recovery.
    pub(crate) fn start(&mut self, command: &mut Command) {
        let theirs = self.theirs.take().unwrap();
        let output = self.output_end.take().unwrap();
        self.control().root.store(0, Ordering::Relaxed);
        let inherited = [self.file.as_raw_fd(), theirs.as_raw_fd()];
        // SAFETY: changes flags of descriptors, in the child.
        unsafe {
            command.pre_exec(move || {
                for fd in inherited {
                    libc::fcntl(fd, libc::F_SETFD, 0);
                }
                Ok(())
            });
        }
        let child = command
            .env("LD_PRELOAD", runtime::path())
            .env(FILE_VARIABLE, self.file.as_raw_fd().to_string())
            .env(SOCKET_VARIABLE, theirs.as_raw_fd().to_string())
            .stdin(Stdio::null())
            .stdout(output)
            // A file would be open for writing.
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.child = Some(child);
    }

    pub(crate) fn start_mode(&mut self, mode: &str) {
        let mut command = Command::new(program());
        command.arg(mode).arg(&self.pool);
        self.start(&mut command);
    }

    pub(crate) fn program_and_pool(&self) -> (String, String) {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        (text(program()), text(&self.pool))
    }

    /// The next message; none if all senders have ended.
    pub(crate) fn hear(&mut self) -> Option<Message> {
        let mut bytes = [0u8; MESSAGE_LEN];
        let mut space = [0u64; 8];
        // SAFETY: the kernel writes to live variables.
        let len = unsafe {
            let mut part = libc::iovec {
                iov_base: bytes.as_mut_ptr().cast(),
                iov_len: MESSAGE_LEN,
            };
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            message.msg_control = space.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&space);
            libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, 0)
        };
        if len <= 0 {
            return None;
        }
        assert_eq!(len as usize, MESSAGE_LEN);
        let word = |number: usize| u64::from_le_bytes(*bytes[8 * number..].first_chunk().unwrap());
        let text = bytes[32..].split(|byte| *byte == 0).next().unwrap();
        // Header of 16 bytes, then the process.
        let sender = space[2] as u32 as i32;
        let message = Message {
            kind: word(0),
            words: [word(1), word(2), word(3)],
            text: String::from_utf8_lossy(text).into_owned(),
            sender,
        };
        if message.is(RecoveryMessageKind::Warning) {
            self.warnings.push(message.text);
            return self.hear();
        }
        Some(message)
    }

    pub(crate) fn order(&self, order: RecoveryOrder) {
        let word = (order as u64).to_le_bytes();
        // SAFETY: the kernel reads the word.
        let sent = unsafe {
            libc::send(
                self.socket.as_raw_fd(),
                word.as_ptr().cast(),
                8,
                libc::MSG_NOSIGNAL,
            )
        };
        assert_eq!(sent, 8);
    }

    pub(crate) fn choices(&self) -> Vec<Choice> {
        let count = self.control().choice_count.load(Ordering::Relaxed);
        (0..count as usize)
            .map(|index| self.get(CHOICES_AT, index))
            .collect()
    }

    pub(crate) fn notes(&self) -> Vec<Note> {
        let count = self.control().note_count.load(Ordering::Relaxed);
        (0..count as usize)
            .map(|index| self.get(NOTES_AT, index))
            .collect()
    }

    /// The log: kind, offset, bytes.
    pub(crate) fn log(&self) -> Vec<(u32, u64, Vec<u8>)> {
        let events = self.logged().into_iter();
        events
            .map(|(header, bytes)| (header.kind, header.offset, bytes))
            .collect()
    }

    fn logged(&self) -> Vec<(LogHeader, Vec<u8>)> {
        let end = self.control().log_len.load(Ordering::Relaxed);
        let mut at = 0;
        let mut log = Vec::new();
        while at < end {
            let header: LogHeader = self.get(LOG_AT + at, 0);
            at += size_of::<LogHeader>() as u64;
            let mut bytes = Vec::new();
            if header.kind <= 2 {
                bytes = (0..header.len as usize)
                    .map(|index| self.get(LOG_AT + at, index))
                    .collect();
                at += header.len.next_multiple_of(8);
            }
            log.push((header, bytes));
        }
        log
    }

    /// Waits until the recovery has written something that was not asked for.
    pub(crate) fn wait_for_output(&self) {
        let mut polled = libc::pollfd {
            fd: self.output.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one descriptor of ours, on this stack.
        check(unsafe { libc::poll(&raw mut polled, 1, -1) });
        assert_ne!(polled.revents & libc::POLLIN, 0, "the recovery has ended");
    }

    pub(crate) fn output(&mut self) -> String {
        let mut bytes = Vec::new();
        // There is no writer now: all output is available, followed by an empty read or the end.
        let _ = self.output.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn outcome(&mut self, status: i32) -> Outcome {
        let status = ExitStatus::from_raw(status);
        Outcome {
            output: self.output(),
            end: status.code().ok_or_else(|| status.signal().unwrap()),
            classes: self.choices().iter().map(|choice| choice.class).collect(),
            log: self.log(),
            log_threads: {
                let logged = self.logged().into_iter();
                let threads: BTreeSet<u32> = logged.map(|(header, _)| header.thread).collect();
                threads.len()
            },
            notes: self
                .notes()
                .iter()
                .map(|note| (note.choices, note.offset, note.bytes))
                .collect(),
        }
    }

    /// Waits for the snapshot, and returns its process id.
    pub(crate) fn snapshot(&mut self) -> i32 {
        let message = self.hear().expect("a snapshot");
        assert!(message.is(RecoveryMessageKind::AtSnapshot), "{message:?}");
        message.words[0] as i32
    }

    /// Runs one execution from the snapshot, or a tree of branches; returns all outcomes, or why it is refused.
    /// `watch` is called while an execution runs.
    pub(crate) fn run(
        &mut self,
        snapshot: i32,
        mut watch: impl FnMut(&Self),
    ) -> Result<Vec<Outcome>, Refused> {
        let mut outcomes = Vec::new();
        self.order(RecoveryOrder::Run);
        loop {
            watch(self);
            let message = self.hear().expect("an end");
            if message.is(RecoveryMessageKind::Refused) {
                // All waiting processes must end.
                while self
                    .hear()
                    .is_some_and(|message| message.sender != snapshot)
                {
                    self.order(RecoveryOrder::Stop);
                }
                return Err(Refused {
                    kind: RefusalKind::from_number(message.words[1]),
                    reason: message.text,
                });
            }
            if message.is(RecoveryMessageKind::NoSnapshot) {
                // Another program of the same execution.
                continue;
            }
            assert!(message.is(RecoveryMessageKind::Ended), "{message:?}");
            outcomes.push(self.outcome(message.words[1] as i32));
            if message.sender == snapshot {
                return Ok(outcomes);
            }
            self.order(RecoveryOrder::Run);
        }
    }

    /// All outcomes, by forking.
    pub(crate) fn fork_all(table: &Table, mode: &str) -> Result<Vec<Outcome>, Refused> {
        let mut command = Command::new(program());
        Self::fork_all_of(table, command.arg(mode))
    }

    /// All outcomes of a command, to which the pool is appended.
    pub(crate) fn fork_all_of(
        table: &Table,
        command: &mut Command,
    ) -> Result<Vec<Outcome>, Refused> {
        let mut zygote = Self::new(table.clone());
        zygote.prepare();
        zygote.start(command.arg(zygote.pool.clone()));
        let snapshot = zygote.snapshot();
        zygote.begin(table.flags() | flag::FORK | flag::PRIVATE, &[]);
        let before = fs::read(&zygote.pool).unwrap();
        let outcomes = zygote.run(snapshot, |_| ())?;
        assert_eq!(fs::read(&zygote.pool).unwrap(), before);
        zygote.stop();
        Ok(outcomes)
    }

    /// All outcomes, one execution each.
    pub(crate) fn reexecute_all(table: &Table, mode: &str) -> Result<Vec<Outcome>, Refused> {
        let mut command = Command::new(program());
        Self::reexecute_all_of(table, command.arg(mode))
    }

    /// All outcomes of a command, to which the pool is appended, one execution each.
    pub(crate) fn reexecute_all_of(
        table: &Table,
        command: &mut Command,
    ) -> Result<Vec<Outcome>, Refused> {
        let mut zygote = Self::new(table.clone());
        zygote.prepare();
        zygote.start(command.arg(zygote.pool.clone()));
        let snapshot = zygote.snapshot();
        let mut outcomes = Vec::new();
        let mut left: Vec<Vec<u16>> = vec![Vec::new()];
        while let Some(prefix) = left.pop() {
            zygote.prepare();
            zygote.begin(table.flags(), &prefix);
            outcomes.extend(zygote.run(snapshot, |_| ())?);
            let choices = zygote.choices();
            let classes: Vec<u16> = choices.iter().map(|choice| choice.class).collect();
            assert!(classes.starts_with(&prefix));
            for (number, choice) in choices.iter().enumerate().filter(|it| it.1.left == 1) {
                for class in choice.class + 1..choice.class_count {
                    let mut prefix = classes[..number].to_vec();
                    prefix.push(class);
                    left.push(prefix);
                }
            }
        }
        zygote.stop();
        Ok(outcomes)
    }

    /// Discards the snapshot.
    pub(crate) fn stop(&mut self) {
        self.order(RecoveryOrder::Stop);
        let status = self.child.as_mut().unwrap().wait().unwrap();
        assert_eq!(status.code(), Some(0));
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.as_mut().unwrap().wait().unwrap()
    }
}

impl Drop for Zygote {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        // SAFETY: mapped in `new`, and there is no reference to it.
        unsafe { libc::munmap(self.memory.cast(), FILE_LEN as usize) };
    }
}
