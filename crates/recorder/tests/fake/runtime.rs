//! The runtime's side of the protocol, as small as possible.

use std::ffi::OsStr;
use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use powerfail_protocol::message::{MessageHeader, MessageKind, SiteTactic};
use powerfail_protocol::shared::{
    CONTROL_ADDRESS, ChunkState, MAGIC, RecordingControl, Reply, SHARED_FD_VARIABLE, SLOTS_AT,
    SLOTS_MAX, SOCKET_FD_VARIABLE, STORE_LOCKS_AT, ThreadSlot, WINDOW_ADDRESS, chunk_address,
    chunk_of, chunk_offset, file_len,
};
use powerfail_protocol::{
    EventKind, FLAG_ADDRESS, FLAG_FOUND, FLAG_MASKED, Header, PROTOCOL_VERSION, ScratchSlot,
    SiteId, chunk,
};
use rustix::cmsg_space;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::thread::futex;

/// The address of the first pool.
pub(crate) const POOL_ADDRESS: u64 = WINDOW_ADDRESS + (1 << 30);

/// The shared file and the socket.
#[derive(Clone, Copy)]
pub(crate) struct Runtime {
    base: NonNull<RecordingControl>,
    socket: BorrowedFd<'static>,
}

// SAFETY: only atomics and chunks of the calling thread are accessed through it.
unsafe impl Send for Runtime {}

fn descriptor(variable: &str) -> BorrowedFd<'static> {
    let number: RawFd = std::env::var(variable)
        .expect(variable)
        .parse()
        .expect("a number");
    // SAFETY: the host guarantees that it is open, and it is never closed here.
    unsafe { BorrowedFd::borrow_raw(number) }
}

impl Runtime {
    /// Maps the shared file.
    pub(crate) fn attach() -> Self {
        let shared = descriptor(SHARED_FD_VARIABLE);
        let len = rustix::fs::fstat(shared)
            .expect("the shared file")
            .st_size
            .cast_unsigned() as usize;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address chosen by the kernel.
        let base = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                len,
                protection,
                MapFlags::SHARED,
                shared,
                0,
            )
        };
        let base = NonNull::new(base.expect("a mapping").cast()).expect("an address");
        let runtime = Self {
            base,
            socket: descriptor(SOCKET_FD_VARIABLE),
        };
        // SAFETY: these fields do not change.
        unsafe {
            let control = &raw const *runtime.control();
            assert_eq!((*control).magic, MAGIC);
            assert_eq!((*control).protocol_version, PROTOCOL_VERSION);
            assert_eq!(file_len((*control).chunk_count), len as u64);
        }
        runtime
    }

    fn control(&self) -> *mut RecordingControl {
        self.base.as_ptr()
    }

    fn slot(&self, index: u32) -> *mut ThreadSlot {
        // SAFETY: slots are in the file from this offset on.
        unsafe {
            self.base
                .as_ptr()
                .byte_add(SLOTS_AT as usize)
                .cast::<ThreadSlot>()
                .add(index as usize)
        }
    }

    fn common_count(&self) -> u32 {
        // SAFETY: does not change.
        unsafe { (*self.control()).common_count }
    }

    fn chunk_state(&self, index: u32) -> &ChunkState {
        // SAFETY: inside the control page, and made of atomics.
        unsafe {
            &*(&raw const (*self.control()).chunks)
                .cast::<ChunkState>()
                .add(index as usize)
        }
    }

    fn word(&self, chunk: u32, offset: u64) -> &AtomicU64 {
        assert!(offset + 8 <= chunk::LEN);
        // SAFETY: inside the file, aligned, only used as an atomic.
        unsafe {
            &*self
                .base
                .as_ptr()
                .byte_add((chunk_offset(chunk) + offset) as usize)
                .cast::<AtomicU64>()
        }
    }

    /// Sends a message, with a descriptor if there is one.
    pub(crate) fn send(
        &self,
        kind: MessageKind,
        words: [u64; 5],
        text: &[u8],
        file: Option<&File>,
    ) {
        let header = MessageHeader {
            kind: kind as u32,
            text_len: text.len() as u32,
            words,
        }
        .to_bytes();
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files = file.map(|file| [file.as_fd()]);
        if let Some(files) = &files {
            assert!(control.push(SendAncillaryMessage::ScmRights(files)));
        }
        let parts = [IoSlice::new(&header), IoSlice::new(text)];
        let sent = rustix::net::sendmsg(self.socket, &parts, &mut control, SendFlags::empty());
        assert_eq!(sent.expect("a message"), header.len() + text.len());
    }

    /// Announces the process.
    pub(crate) fn hello(&self) {
        let words = [
            u64::from(PROTOCOL_VERSION),
            u64::from(std::process::id()),
            0,
            0,
            0,
        ];
        self.send(MessageKind::Hello, words, b"/fake", None);
    }

    /// Announces a site.
    pub(crate) fn site(&self, id: u32, address: u64, tactic: SiteTactic) {
        self.send(
            MessageKind::Site,
            [u64::from(id), address, 4, tactic as u64, 0],
            b"",
            None,
        );
    }

    /// Announces a module.
    pub(crate) fn module(&self, address: u64, len: u64, build_id: &[u8], path: &str) {
        let text = [build_id, path.as_bytes()].concat();
        self.send(
            MessageKind::Module,
            [address, len, build_id.len() as u64, 0, 0],
            &text,
            None,
        );
    }

    /// Registers the calling thread as recorded.
    pub(crate) fn thread(&self) -> Appender {
        // SAFETY: an atomic of the control page.
        let number = unsafe { &(*self.control()).next_thread }.fetch_add(1, Ordering::AcqRel);
        let slot = (0..SLOTS_MAX as u32)
            .find(|slot| {
                // SAFETY: an atomic of a slot.
                let thread = unsafe { &(*self.slot(*slot)).thread };
                thread
                    .compare_exchange(0, number + 1, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            })
            .expect("a free slot");
        let appender = Appender {
            runtime: *self,
            number,
            slot,
            taken: 0,
            muted: false,
        };
        appender.cursor().store(0, Ordering::Release);
        appender.depth().store(0, Ordering::Release);
        let id = u64::from(
            rustix::thread::gettid()
                .as_raw_nonzero()
                .get()
                .cast_unsigned(),
        );
        let words = [u64::from(number), id, u64::from(std::process::id()), 0, 0];
        self.send(MessageKind::ThreadStart, words, b"", None);
        appender
    }
}

/// A pool in the window, and the address where this process can write it.
#[derive(Clone, Copy)]
pub(crate) struct Mapped {
    pub(crate) address: u64,
    memory: *mut u8,
    len: usize,
}

// SAFETY: threads write disjoint bytes, or take turns.
unsafe impl Send for Mapped {}

impl Mapped {
    /// Writes bytes to the location of an address of the window.
    pub(crate) fn write(&self, address: u64, bytes: &[u8]) {
        let offset = (address - self.address) as usize;
        assert!(offset + bytes.len() <= self.len);
        // SAFETY: inside the mapping.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.memory.add(offset), bytes.len()) }
    }
}

/// A recorded thread.
pub(crate) struct Appender {
    runtime: Runtime,
    pub(crate) number: u32,
    slot: u32,
    taken: u64,
    /// Whether it ends without a message.
    pub(crate) muted: bool,
}

/// The position of the reserved record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserved {
    chunk: u32,
    offset: u64,
}

impl Appender {
    fn cursor(&self) -> &AtomicU64 {
        // SAFETY: an aligned word of this thread's slot.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.runtime.slot(self.slot)).block.cursor) }
    }

    /// The number of active handlers.
    pub(crate) fn depth(&self) -> &AtomicU32 {
        // SAFETY: an aligned word of this thread's slot.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.runtime.slot(self.slot)).block.signal_depth) }
    }

    /// Requests a pool, and maps it if it is to be recorded.
    pub(crate) fn map(&self, path: &Path, address: u64, len: u64, offset: u64) -> Option<Mapped> {
        let file = File::options()
            .read(true)
            .write(true)
            .open(path)
            .expect("the pool");
        // SAFETY: an atomic of this thread's slot.
        let reply = unsafe { &(*self.runtime.slot(self.slot)).reply };
        reply.store(0, Ordering::Release);
        let words = [address, len, offset, u64::from(self.slot), 0];
        self.runtime.send(
            MessageKind::PoolMap,
            words,
            path.as_os_str().as_bytes(),
            Some(&file),
        );
        while reply.load(Ordering::Acquire) == 0 {
            let _ = futex::wait(reply, futex::Flags::empty(), 0, None);
        }
        if reply.load(Ordering::Acquire) != Reply::Record as u32 {
            return None;
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address chosen by the kernel.
        let memory = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                len as usize,
                protection,
                MapFlags::SHARED,
                &file,
                offset,
            )
        };
        Some(Mapped {
            address,
            memory: memory.expect("a mapping").cast(),
            len: len as usize,
        })
    }

    /// Reserves a record, like emitted code.
    pub(crate) fn reserve(&mut self, len: u32) -> Reserved {
        loop {
            if self.cursor().load(Ordering::Acquire) == 0 {
                self.refill();
            }
            let at = self.cursor().fetch_add(u64::from(len), Ordering::AcqRel);
            if !chunk::overflows(at + u64::from(len) - 1) {
                let (chunk, offset) = chunk_of(at);
                return Reserved { chunk, offset };
            }
            self.refill();
        }
    }

    /// Retires the full chunk and takes a free one.
    fn refill(&mut self) {
        self.retire();
        // SAFETY: an atomic of the control page.
        let freed = unsafe { &(*self.runtime.control()).freed };
        loop {
            let seen = freed.load(Ordering::Acquire);
            let taken = (0..self.runtime.common_count()).find(|index| {
                let thread = &self.runtime.chunk_state(*index).thread;
                thread
                    .compare_exchange(0, self.number + 1, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            });
            if let Some(index) = taken {
                self.runtime
                    .chunk_state(index)
                    .sequence
                    .store(self.taken, Ordering::Release);
                self.taken += 1;
                self.cursor().store(chunk_address(index), Ordering::Release);
                return;
            }
            let _ = futex::wait(freed, futex::Flags::empty(), seen, None);
        }
    }

    fn retire(&self) {
        let cursor = self.cursor().load(Ordering::Acquire);
        if cursor == 0 {
            return;
        }
        // The cursor may be anywhere after the end, but not beyond the alignment.
        let (index, _) = chunk_of(cursor);
        self.runtime
            .chunk_state(index)
            .retired
            .store(1, Ordering::Release);
        // SAFETY: an atomic of the control page.
        let retired = unsafe { &(*self.runtime.control()).retired };
        retired.fetch_add(1, Ordering::AcqRel);
        let _ = futex::wake(retired, futex::Flags::empty(), u32::MAX >> 1);
    }

    /// Describes the reserved record.
    pub(crate) fn describe(
        &self,
        at: Reserved,
        header: Header,
        address: Option<u64>,
        images: &[&[u8]],
    ) {
        self.put(at, 0, header.word());
        let mut words: Vec<u64> = address.into_iter().collect();
        for image in images {
            for piece in image.chunks(8) {
                let mut word = [0; 8];
                word[..piece.len()].copy_from_slice(piece);
                words.push(u64::from_le_bytes(word));
            }
        }
        for (offset, word) in (16..).step_by(8).zip(words) {
            self.put(at, offset, word);
        }
    }

    /// A new stamp.
    pub(crate) fn stamp(&self) -> u64 {
        // SAFETY: an atomic of the control page.
        unsafe { (*self.runtime.control()).clock.tick() }
    }

    /// Commits the reserved record.
    pub(crate) fn commit(&self, at: Reserved, stamp: u64) {
        self.put(at, 8, stamp);
    }

    fn put(&self, at: Reserved, offset: u64, word: u64) {
        self.runtime
            .word(at.chunk, at.offset + offset)
            .store(word, Ordering::Release);
    }

    /// A complete append.
    pub(crate) fn append(
        &mut self,
        header: Header,
        address: Option<u64>,
        images: &[&[u8]],
    ) -> Reserved {
        let at = self.reserve(header.record_len());
        self.describe(at, header, address, images);
        self.commit(at, self.stamp());
        at
    }

    /// Turns a record into an empty one.
    pub(crate) fn void(&self, at: Reserved, header: Header) {
        self.put(
            at,
            0,
            Header {
                kind: EventKind::Void,
                ..header
            }
            .word(),
        );
    }

    /// From now on the thread is alone, and does not look at the clock.
    pub(crate) fn be_alone(&self) {
        // SAFETY: an aligned word of the slot.
        let stamp =
            unsafe { AtomicU64::from_ptr(&raw mut (*self.runtime.slot(self.slot)).block.stamp) };
        stamp.store(self.stamp(), Ordering::Release);
    }

    /// Takes a store lock for a record.
    pub(crate) fn lock(&self, at: Reserved) {
        let address = CONTROL_ADDRESS + STORE_LOCKS_AT;
        // SAFETY: an aligned word of the slot, and one of the table of locks.
        let [named, lock] = unsafe {
            let block = &raw mut (*self.runtime.slot(self.slot)).block;
            let table = self.runtime.control().cast::<u64>();
            [
                AtomicU64::from_ptr(&raw mut (*block).scratch[ScratchSlot::Lock.index()]),
                AtomicU64::from_ptr(table.byte_add(STORE_LOCKS_AT as usize)),
            ]
        };
        lock.store(chunk_address(at.chunk) + at.offset, Ordering::Release);
        named.store(address, Ordering::Release);
    }

    /// Writes bytes that are not a record.
    pub(crate) fn nonsense(&self, at: Reserved) {
        self.put(at, 0, 0xff);
    }

    /// Makes and records a store.
    pub(crate) fn store(&mut self, site: u32, pool: &Mapped, address: u64, bytes: &[u8]) {
        self.append(store(site, bytes.len()), Some(address), &[bytes]);
        pool.write(address, bytes);
    }

    /// Makes and records a store, and what it found.
    pub(crate) fn store_over(
        &mut self,
        site: u32,
        pool: &Mapped,
        address: u64,
        bytes: &[u8],
        found: &[u8],
    ) {
        let header = Header {
            flags: FLAG_ADDRESS | FLAG_FOUND,
            ..store(site, bytes.len())
        };
        self.append(header, Some(address), &[bytes, found]);
        pool.write(address, bytes);
    }

    /// Makes and records a masked store.
    pub(crate) fn masked(
        &mut self,
        site: u32,
        pool: &Mapped,
        address: u64,
        zeros: &[u8],
        ones: &[u8],
    ) {
        let header = Header {
            flags: FLAG_ADDRESS | FLAG_MASKED,
            ..store(site, zeros.len())
        };
        self.append(header, Some(address), &[zeros, ones]);
        for (at, (zero, one)) in (address..).zip(zeros.iter().zip(ones)) {
            if zero == one {
                pool.write(at, &[*zero]);
            }
        }
    }

    /// A record without an address.
    pub(crate) fn plain(&mut self, kind: EventKind, site: u32, value: &[u8]) {
        let header = Header {
            kind,
            flags: 0,
            value_len: value.len() as u16,
            site: SiteId(site),
        };
        self.append(header, None, &[value]);
    }

    /// A record with an address.
    pub(crate) fn at(&mut self, kind: EventKind, site: u32, address: u64, value: &[u8]) {
        let header = Header {
            kind,
            ..store(site, value.len())
        };
        self.append(header, Some(address), &[value]);
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        if self.muted {
            return;
        }
        self.retire();
        // SAFETY: an atomic of this thread's slot.
        unsafe { &(*self.runtime.slot(self.slot)).thread }.store(0, Ordering::Release);
        self.runtime.send(
            MessageKind::ThreadEnd,
            [u64::from(self.number), 0, 0, 0, 0],
            b"",
            None,
        );
    }
}

/// The header of a store.
pub(crate) fn store(site: u32, len: usize) -> Header {
    Header {
        kind: EventKind::StorePlain,
        flags: FLAG_ADDRESS,
        value_len: len as u16,
        site: SiteId(site),
    }
}

/// A path in an argument.
pub(crate) fn path(argument: &str) -> &Path {
    Path::new(OsStr::new(argument))
}
