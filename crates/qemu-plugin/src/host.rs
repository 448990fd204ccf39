//! The connection to the host, in the protocol of the runtime: the shared file with chunks, and the socket for messages.
//!
//! # Safety
//!
//! The host creates the shared file with the length and layout of `powerfail_protocol::shared`. It is mapped once and stays
//! mapped; everything in it that changes is used as an atomic. A chunk is written by the thread that has taken it.
#![allow(unsafe_code, reason = "shares memory with the host")]

use std::os::fd::RawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use powerfail_protocol::file::TreeTable;
use powerfail_protocol::message::{MessageHeader, MessageKind, SiteTactic, TEXT_MAX};
use powerfail_protocol::shared::{
    ChunkState, HOST_VARIABLE, HostAddress, ListenerName, MAGIC, RecordingControl, Reply,
    SHARED_FD_VARIABLE, SLOTS_AT, SLOTS_MAX, SOCKET_FD_VARIABLE, Stacks, ThreadSlot, chunk_address,
    chunk_offset, file_len,
};
use powerfail_protocol::{EventKind, FLAG_ADDRESS, Header, PROTOCOL_VERSION, SiteId, chunk};

/// Where the shared file is mapped.
#[derive(Clone, Copy)]
struct Shared(*mut RecordingControl);

// SAFETY: all that changes in it is used as an atomic, or belongs to one thread.
unsafe impl Send for Shared {}
// SAFETY: shared references give out atomics and what one thread owns, nothing else.
unsafe impl Sync for Shared {}

static SHARED: OnceLock<Shared> = OnceLock::new();
static SOCKET: AtomicI32 = AtomicI32::new(-1);

/// The lowest number that our socket gets: programs choose the lowest that is free.
const SOCKET_NUMBER_MIN: i32 = 900;
const EXIT_CODE: i32 = 125;

/// Maps what the host shares. Says whether there is a host.
pub(crate) fn attach() -> bool {
    let number = |name| -> Option<RawFd> { std::env::var(name).ok()?.parse().ok() };
    let (Some(shared), Some(socket)) = (number(SHARED_FD_VARIABLE), number(SOCKET_FD_VARIABLE))
    else {
        return false;
    };
    // SAFETY: plain system calls; the mapping is a new one, at an address that the kernel chooses.
    let base = unsafe {
        let len = libc::lseek(shared, 0, libc::SEEK_END);
        if len <= 0 {
            return false;
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let base = libc::mmap(
            core::ptr::null_mut(),
            len.cast_unsigned() as usize,
            protection,
            libc::MAP_SHARED,
            shared,
            0,
        );
        if base == libc::MAP_FAILED {
            return false;
        }
        let base: *mut RecordingControl = base.cast();
        let is_ours = (*base).magic == MAGIC
            && (*base).protocol_version == PROTOCOL_VERSION
            && file_len((*base).chunk_count) <= len.cast_unsigned();
        if !is_ours {
            return false;
        }
        base
    };
    SOCKET.store(socket, Ordering::Relaxed);
    SHARED.set(Shared(base)).is_ok()
}

fn base() -> *mut RecordingControl {
    SHARED
        .get()
        .map_or(core::ptr::null_mut(), |shared| shared.0)
}

/// Takes a stamp.
pub(crate) fn tick() -> u64 {
    // SAFETY: an atomic of the control page.
    unsafe { (*base()).clock.tick() }
}

/// How much of call stacks is wanted.
pub(crate) fn wants_stacks() -> bool {
    // SAFETY: mapped, and does not change.
    unsafe { (*base()).stacks == Stacks::Full as u32 }
}

/// The trees, and the lock under which operations on their files are made.
pub(crate) fn trees() -> &'static TreeTable {
    // SAFETY: mapped, made of atomics, and stays mapped.
    unsafe { &(*base()).trees }
}

/// A new number for a site or a call stack.
pub(crate) fn next_site() -> u32 {
    // SAFETY: an atomic of the control page.
    unsafe { &(*base()).next_site }.fetch_add(1, Ordering::Relaxed)
}

/// Announces this process.
pub(crate) fn say_hello() {
    let path = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    let words = [
        u64::from(PROTOCOL_VERSION),
        u64::from(std::process::id()),
        0,
        0,
        0,
    ];
    send(
        MessageKind::Hello,
        words,
        path.as_os_str().as_encoded_bytes(),
        None,
    );
}

/// Announces an instruction, and gives its number.
pub(crate) fn announce_site(address: u64, len_bytes: usize) -> u32 {
    let id = next_site();
    let words = [
        u64::from(id),
        address,
        len_bytes as u64,
        SiteTactic::System as u64,
        0,
    ];
    send(MessageKind::Site, words, &[], None);
    id
}

/// The target does what cannot be recorded: says so and ends it.
pub(crate) fn fatal(sentence: &str) -> ! {
    send(MessageKind::Fatal, [0; 5], sentence.as_bytes(), None);
    // SAFETY: ends the process at once, whatever state QEMU is in.
    unsafe { libc::_exit(EXIT_CODE) }
}

/// Sends a message, with a descriptor if there is one. Connects again if the target has closed the socket.
pub(crate) fn send(kind: MessageKind, words: [u64; 5], text: &[u8], file: Option<RawFd>) {
    let text = &text[..text.len().min(TEXT_MAX)];
    let header = MessageHeader {
        kind: kind as u32,
        text_len: text.len() as u32,
        words,
    }
    .to_bytes();
    if send_over(SOCKET.load(Ordering::Relaxed), &header, text, file) {
        return;
    }
    if let Some(fresh) = connect()
        && send_over(fresh, &header, text, file)
    {
        SOCKET.store(fresh, Ordering::Relaxed);
        return;
    }
    // SAFETY: an atomic of the control page; ends the process at once.
    unsafe {
        (*base())
            .unreachable_from
            .store(std::process::id(), Ordering::Release);
        libc::_exit(EXIT_CODE)
    }
}

fn send_over(socket: RawFd, header: &[u8], text: &[u8], file: Option<RawFd>) -> bool {
    let mut parts = [header, text].map(|part| libc::iovec {
        iov_base: part.as_ptr().cast_mut().cast(),
        iov_len: part.len(),
    });
    let mut control = [0_u64; 3];
    // SAFETY: all that the message points to is on this stack; the control message fits into its buffer.
    unsafe {
        let mut message: libc::msghdr = core::mem::zeroed();
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len();
        if let Some(file) = file {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(4) as usize;
            let head = libc::CMSG_FIRSTHDR(&raw const message);
            (*head).cmsg_level = libc::SOL_SOCKET;
            (*head).cmsg_type = libc::SCM_RIGHTS;
            (*head).cmsg_len = libc::CMSG_LEN(4) as usize;
            libc::CMSG_DATA(head).cast::<RawFd>().write_unaligned(file);
        }
        loop {
            if libc::sendmsg(socket, &raw const message, libc::MSG_NOSIGNAL) >= 0 {
                return true;
            }
            if *libc::__errno_location() != libc::EINTR {
                return false;
            }
        }
    }
}

/// A new connection to the host.
fn connect() -> Option<RawFd> {
    let address = HostAddress::parse(&std::env::var(HOST_VARIABLE).ok()?)?;
    let name = ListenerName(address).to_string();
    // SAFETY: the address is on this stack, and its name fits: one zero byte for an abstract name, then the name.
    unsafe {
        let mut address: libc::sockaddr_un = core::mem::zeroed();
        address.sun_family = libc::AF_UNIX as u16;
        for (place, byte) in address.sun_path[1..].iter_mut().zip(name.bytes()) {
            *place = byte.cast_signed();
        }
        let len = size_of::<u16>() + 1 + name.len();
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        let moved = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, SOCKET_NUMBER_MIN);
        let fd = if moved >= 0 {
            libc::close(fd);
            moved
        } else {
            fd
        };
        let connected = libc::connect(fd, (&raw const address).cast(), len as u32);
        (fd >= 0 && connected == 0).then_some(fd)
    }
}

/// Wakes one that waits for a futex of the shared memory.
pub(crate) fn wake_one(futex: &AtomicU32) {
    // SAFETY: touches no memory.
    unsafe {
        libc::syscall(libc::SYS_futex, futex.as_ptr(), libc::FUTEX_WAKE, 1);
    }
}

/// Waits for a change of a futex of the shared memory, not for long.
pub(crate) fn wait_while(futex: &AtomicU32, value: u32) {
    let timeout = libc::timespec {
        tv_sec: 0,
        tv_nsec: 50_000_000,
    };
    // SAFETY: the futex is mapped; the kernel only reads the time.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            futex.as_ptr(),
            libc::FUTEX_WAIT,
            value,
            &raw const timeout,
        );
    }
}

/// A recorded thread: its slot and its chunk.
#[derive(Debug)]
pub(crate) struct Appender {
    number: u32,
    slot: u32,
    taken: u64,
    /// The chunk, and where its next record begins.
    chunk: Option<(u32, u64)>,
}

impl Appender {
    /// Registers the calling thread. `parent` is the process from which this one was just forked.
    pub(crate) fn new(parent: Option<u32>) -> Self {
        // SAFETY: an atomic of the control page.
        let number = unsafe { &(*base()).next_thread }.fetch_add(1, Ordering::AcqRel);
        let free = (0..SLOTS_MAX as u32).find(|slot| {
            // SAFETY: atomics of the control page and of a slot.
            let (end, thread) = unsafe { (&(*base()).slots_end, &(*slot_at(*slot)).thread) };
            end.fetch_max(*slot + 1, Ordering::AcqRel);
            thread
                .compare_exchange(0, number + 1, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        });
        let Some(slot) = free else {
            fatal(&format!("the target has more than {SLOTS_MAX} threads"));
        };
        let appender = Self {
            number,
            slot,
            taken: 0,
            chunk: None,
        };
        appender.show_cursor(0);
        // SAFETY: fields of this thread's slot.
        let id = unsafe {
            let slot = slot_at(slot);
            AtomicU32::from_ptr(&raw mut (*slot).block.signal_depth).store(0, Ordering::Release);
            let id = libc::gettid().cast_unsigned();
            (*slot).thread_id.store(id, Ordering::Release);
            (*slot)
                .process_id
                .store(std::process::id(), Ordering::Release);
            id
        };
        let words = [
            u64::from(number),
            u64::from(id),
            u64::from(std::process::id()),
            u64::from(parent.unwrap_or(0)),
            0,
        ];
        send(MessageKind::ThreadStart, words, &[], None);
        appender
    }

    /// The number of the thread.
    pub(crate) const fn number(&self) -> u32 {
        self.number
    }

    fn show_cursor(&self, address: u64) {
        // SAFETY: an aligned word of this thread's slot.
        let cursor = unsafe { AtomicU64::from_ptr(&raw mut (*slot_at(self.slot)).block.cursor) };
        cursor.store(address, Ordering::Release);
    }

    /// Appends a record. Its value consists of the parts, one behind the other.
    pub(crate) fn append(
        &mut self,
        kind: EventKind,
        site: u32,
        address: Option<u64>,
        value: &[&[u8]],
    ) {
        let len: usize = value.iter().map(|part| part.len()).sum();
        let header = Header {
            kind,
            flags: if address.is_some() { FLAG_ADDRESS } else { 0 },
            value_len: len as u16,
            site: SiteId(site),
        };
        let record_len = u64::from(header.record_len());
        let (index, at) = match self.chunk {
            Some((index, at)) if at + record_len <= chunk::LEN => (index, at),
            _ => (self.refill(), 0),
        };
        // SAFETY: the record lies inside of the chunk, which this thread has taken.
        unsafe {
            let start = chunk_at(index).add(at as usize);
            let mut place = start.add(16);
            if let Some(address) = address {
                place.cast::<[u8; 8]>().write(address.to_le_bytes());
                place = place.add(8);
            }
            for part in value {
                core::ptr::copy_nonoverlapping(part.as_ptr(), place, part.len());
                place = place.add(part.len());
            }
            self.chunk = Some((index, at + record_len));
            self.show_cursor(chunk_address(index) + at + record_len);
            start.cast::<[u8; 8]>().write(header.word().to_le_bytes());
            AtomicU64::from_ptr(start.add(8).cast()).store(tick(), Ordering::Release);
        }
    }

    /// Retires the chunk and takes a free one.
    fn refill(&mut self) -> u32 {
        self.retire();
        // SAFETY: atomics and constants of the control page.
        let (freed, count) = unsafe { (&(*base()).freed, (*base()).chunk_count) };
        loop {
            let seen = freed.load(Ordering::Acquire);
            let taken = (0..count).find(|index| {
                let thread = &chunk_state(*index).thread;
                thread
                    .compare_exchange(0, self.number + 1, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            });
            if let Some(index) = taken {
                chunk_state(index)
                    .sequence
                    .store(self.taken, Ordering::Release);
                self.taken += 1;
                self.chunk = Some((index, 0));
                self.show_cursor(chunk_address(index));
                return index;
            }
            wait_while(freed, seen);
        }
    }

    fn retire(&mut self) {
        let Some((index, _)) = self.chunk.take() else {
            return;
        };
        chunk_state(index).retired.store(1, Ordering::Release);
        // SAFETY: an atomic of the control page; waking touches no memory.
        unsafe {
            let retired = &(*base()).retired;
            retired.fetch_add(1, Ordering::AcqRel);
            libc::syscall(
                libc::SYS_futex,
                retired.as_ptr(),
                libc::FUTEX_WAKE,
                i32::MAX,
            );
        }
    }

    /// The thread ends.
    pub(crate) fn end(mut self) {
        self.retire();
        self.show_cursor(0);
        send(
            MessageKind::ThreadEnd,
            [u64::from(self.number), 0, 0, 0, 0],
            &[],
            None,
        );
        // SAFETY: an atomic of this thread's slot.
        unsafe { &(*slot_at(self.slot)).thread }.store(0, Ordering::Release);
    }

    /// Asks whether a file that was just mapped is a pool.
    pub(crate) fn asks_for_pool(
        &self,
        file: RawFd,
        path: &[u8],
        address: u64,
        len_bytes: u64,
        offset: u64,
    ) -> bool {
        let words = [address, len_bytes, offset, u64::from(self.slot), 0];
        self.asks(MessageKind::PoolMap, words, path, Some(file))
    }

    /// Asks whether a directory that is about to change is in a tree from now on.
    pub(crate) fn asks_for_tree(&self, directory: &[u8]) -> bool {
        let words = [u64::from(self.slot), 0, 0, 0, 0];
        self.asks(MessageKind::TreeAsk, words, directory, None)
    }

    /// Asks the host, and waits for its answer.
    fn asks(&self, kind: MessageKind, words: [u64; 5], text: &[u8], file: Option<RawFd>) -> bool {
        // SAFETY: an atomic of this thread's slot.
        let reply = unsafe { &(*slot_at(self.slot)).reply };
        reply.store(0, Ordering::Release);
        send(kind, words, text, file);
        while reply.load(Ordering::Acquire) == 0 {
            wait_while(reply, 0);
        }
        reply.load(Ordering::Acquire) == Reply::Record as u32
    }
}

fn slot_at(index: u32) -> *mut ThreadSlot {
    // SAFETY: slots are in the file from this offset on.
    unsafe {
        base()
            .byte_add(SLOTS_AT as usize)
            .cast::<ThreadSlot>()
            .add(index as usize)
    }
}

fn chunk_state(index: u32) -> &'static ChunkState {
    // SAFETY: inside of the control page, and made of atomics.
    unsafe {
        &*(&raw const (*base()).chunks)
            .cast::<ChunkState>()
            .add(index as usize)
    }
}

fn chunk_at(index: u32) -> *mut u8 {
    // SAFETY: chunks are in the file up to its end.
    unsafe { base().cast::<u8>().add(chunk_offset(index) as usize) }
}
