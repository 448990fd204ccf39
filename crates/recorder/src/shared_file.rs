//! The shared file, as the host sees it: control page, thread slots, chunks.
//!
//! # Safety
//!
//! The mapping lives as long as the [`SharedFile`] and has the length of the file, which is sealed: no process can
//! shrink it below the mapping. Other processes write to it at any time, so nothing here
//! makes a reference to anything but atomics; bulk copies are only made of records that were seen
//! committed, and of chunks that belong to the host.

#![allow(unsafe_code, reason = "a mapping that other processes write to")]

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use powerfail_protocol::file::{LOCK_WAITED_FOR, PATHS_MAX, TreeTable};
use powerfail_protocol::fuzz::{AREA_LEN, Area, area_offset};
use powerfail_protocol::shared::{
    CHUNKS_ADDRESS, CHUNKS_MAX, CONTROL_ADDRESS, ChunkState, Doubt, MAGIC, Mode, RecordingControl,
    Reply, RequestCounts, SLOTS_AT, SLOTS_MAX, STORE_LOCKS_AT, Schedule, Stacks, ThreadSlot,
    chunk_of, chunk_offset, file_len,
};
use powerfail_protocol::{PROTOCOL_VERSION, ScratchSlot, chunk, store_lock};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::futex;
use rustix::time::Timespec;

use crate::clock::Stamp;
use crate::error::RecordError;

/// A chunk of the shared file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChunkIndex(pub(crate) u32);

/// A slot of the shared file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotIndex(pub(crate) u32);

/// The state of a chunk at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkOwner {
    /// The number of the thread that has it.
    pub(crate) thread: u32,
    /// Whether its thread has retired it.
    pub(crate) retired: bool,
    /// Its position among the chunks of its thread. Reliable only if the chunk is retired or the cursor is in it.
    pub(crate) sequence: u64,
}

/// What freed chunks have as their sequence, so that one that was just taken is not mistaken.
const NO_SEQUENCE: u64 = u64::MAX;

/// How many chunks a file may have within the limit of this process. Those that are not used take no memory.
fn chunks_that_fit() -> u32 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    let room = limit.unwrap_or(u64::MAX).saturating_sub(file_len(0));
    (room / chunk::LEN).min(CHUNKS_MAX as u64) as u32
}

/// Where every process of the target has the block of a thread.
const fn block_address(index: SlotIndex) -> u64 {
    let slot = SLOTS_AT + index.0 as u64 * size_of::<ThreadSlot>() as u64;
    CONTROL_ADDRESS + slot + std::mem::offset_of!(ThreadSlot, block) as u64
}

/// The shared file and its mapping.
#[derive(Debug)]
pub(crate) struct SharedFile {
    base: NonNull<RecordingControl>,
    len_bytes: usize,
    chunk_count: u32,
    file: OwnedFd,
}

// SAFETY: all access goes through atomics or is to chunks that only the host uses at that time; the
// mapping is not bound to a thread.
unsafe impl Send for SharedFile {}
// SAFETY: `&SharedFile` gives no other access than an owned one: atomics, and chunks that only the host uses.
unsafe impl Sync for SharedFile {}

impl SharedFile {
    /// Creates a shared file.
    pub(crate) fn create(
        chunk_count: u32,
        mode: Mode,
        stacks: Stacks,
        schedule: Schedule,
        plays_valgrind: bool,
    ) -> Result<Self, RecordError> {
        let common_count = chunk_count.clamp(2, CHUNKS_MAX as u32);
        let all = common_count.max(chunks_that_fit());
        let shared = Self::with_area(all, common_count, stacks, 0)?;
        let control = shared.control();
        // SAFETY: the file has a control page, and no other process has the file yet.
        unsafe {
            (*control).mode = mode as u32;
            (*control).schedule = schedule;
            (*control).plays_valgrind = plays_valgrind.into();
        }
        Ok(shared)
    }

    /// Creates one for the target of an executor.
    pub(crate) fn create_for_executor(chunk_count: u32) -> Result<Self, RecordError> {
        let chunk_count = chunk_count.clamp(2, CHUNKS_MAX as u32);
        Self::with_area(chunk_count, chunk_count, Stacks::Full, AREA_LEN)
    }

    fn with_area(
        chunk_count: u32,
        common_count: u32,
        stacks: Stacks,
        area_len: u64,
    ) -> Result<Self, RecordError> {
        let failed = |error| RecordError::system("create the shared memory", error);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("powerfail-shared", flags).map_err(failed)?;
        let len_bytes = file_len(chunk_count) + area_len;
        rustix::fs::ftruncate(&file, len_bytes).map_err(failed)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(failed)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                len_bytes as usize,
                protection,
                MapFlags::SHARED,
                &file,
                0,
            )
        }
        .map_err(failed)?;
        let base = NonNull::new(base.cast()).ok_or_else(|| failed(rustix::io::Errno::NOMEM))?;
        let shared = Self {
            base,
            len_bytes: len_bytes as usize,
            chunk_count,
            file,
        };
        let control = shared.control();
        // SAFETY: the file has a control page, and no other process has the file yet.
        unsafe {
            (*control).magic = MAGIC;
            (*control).protocol_version = PROTOCOL_VERSION;
            (*control).chunk_count = chunk_count;
            (*control).common_count = common_count;
            (*control).stacks = stacks as u32;
            if area_len > 0 {
                (*control).area_at = area_offset(chunk_count);
            }
        }
        for index in shared.chunk_indexes() {
            shared
                .chunk_state(index)
                .sequence
                .store(NO_SEQUENCE, Ordering::Release);
        }
        Ok(shared)
    }

    /// What is shared with the target of an executor. Only for files that were made for one.
    pub(crate) fn area(&self) -> &Area {
        let area = self.in_area(0, size_of::<Area>());
        // SAFETY: it lies inside the file, at a multiple of pages. Its paths are written before a target has the
        // file, and everything else in it is atomic.
        unsafe { &*area.cast::<std::ffi::c_void>().cast::<Area>() }
    }

    /// A part of the area.
    fn in_area(&self, offset: u64, len: usize) -> *mut u8 {
        let at = area_offset(self.chunk_count) + offset;
        assert!(
            offset + len as u64 <= AREA_LEN && (at as usize) + len <= self.len_bytes,
            "a part of an area that is there"
        );
        // SAFETY: inside the mapping by the assertion.
        unsafe { self.base.as_ptr().cast::<u8>().add(at as usize) }
    }

    /// Copies bytes from the area while no process writes them.
    pub(crate) fn read_area(&self, offset: u64, out: &mut [u8]) {
        // SAFETY: inside the mapping, and of another allocation.
        unsafe {
            let source = self.in_area(offset, out.len());
            ptr::copy_nonoverlapping(source, out.as_mut_ptr(), out.len());
        }
    }

    /// Copies bytes to the area while no process reads them.
    pub(crate) fn write_area(&self, offset: u64, bytes: &[u8]) {
        // SAFETY: `in_area` checks that the bytes lie in the area, and by the sentence above no process reads them.
        unsafe {
            let target = self.in_area(offset, bytes.len());
            ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len());
        }
    }

    /// The first bytes of a chunk of a target all of whose processes are dead or waiting for an order.
    pub(crate) fn view(&self, index: ChunkIndex, len_bytes: u64) -> &[u8] {
        assert!(
            index.0 < self.chunk_count && len_bytes <= chunk::LEN,
            "a part of a chunk that exists"
        );
        // SAFETY: inside the mapping by the assertion; no process writes there now.
        unsafe {
            let start = self
                .base
                .as_ptr()
                .byte_add(chunk_offset(index.0) as usize)
                .cast::<u8>();
            std::slice::from_raw_parts(start, len_bytes as usize)
        }
    }

    /// Gives a chunk back of which only the first bytes were used.
    pub(crate) fn free_used(&self, index: ChunkIndex, used_bytes: u64) {
        let used = used_bytes.min(chunk::LEN);
        let state = self.chunk_state(index);
        // SAFETY: the chunk lies inside the mapping, and its thread has retired it or is dead: until
        // `thread` is zero again it belongs to the host alone.
        unsafe {
            let chunk = self
                .base
                .as_ptr()
                .byte_add(chunk_offset(index.0) as usize)
                .cast::<u8>();
            ptr::write_bytes(chunk, 0, used as usize);
        }
        state.sequence.store(NO_SEQUENCE, Ordering::Relaxed);
        state.retired.store(0, Ordering::Relaxed);
        state.thread.store(0, Ordering::Release);
    }

    /// The number that the next thread of the target gets.
    pub(crate) fn next_thread(&self) -> u32 {
        // SAFETY: a field of the control page that is an atomic.
        unsafe { (*self.control()).next_thread.load(Ordering::Acquire) }
    }

    /// The number that the next site or call stack of the target gets.
    pub(crate) fn next_site(&self) -> u32 {
        // SAFETY: a field of the control page that is an atomic.
        unsafe { (*self.control()).next_site.load(Ordering::Acquire) }
    }

    /// How many operations of the target were counted by its scheduler.
    pub(crate) fn schedule_steps(&self) -> u64 {
        // SAFETY: the control page is mapped, and the number only used as an atomic.
        unsafe { (*self.control()).schedule_steps.load(Ordering::Relaxed) }
    }

    /// A process that ended because it could not reach this one.
    pub(crate) fn unreachable_from(&self) -> Option<u32> {
        // SAFETY: a field of the control page that is an atomic.
        let process = unsafe { (*self.control()).unreachable_from.load(Ordering::Acquire) };
        (process != 0).then_some(process)
    }

    /// How often the scheduler timed out on a thread.
    pub(crate) fn schedule_lapses(&self) -> u64 {
        // SAFETY: the control page is mapped, and the number is only used as an atomic.
        unsafe { (*self.control()).schedule_lapses.load(Ordering::Relaxed) }
    }

    /// The counts of client requests of the target.
    pub(crate) fn requests(&self) -> &RequestCounts {
        // SAFETY: the control page is mapped, and the numbers are only used as atomics.
        unsafe { &(*self.control()).requests }
    }

    fn doubt_word(&self) -> &AtomicU32 {
        // SAFETY: the control page is mapped, and the word only used as an atomic.
        unsafe { &(*self.control()).schedule_doubts }
    }

    /// Changes when a doubt is to be answered.
    pub(crate) fn doubts(&self) -> u32 {
        self.doubt_word().load(Ordering::Acquire)
    }

    /// Waits until that is no longer what [`Self::doubts`] gave.
    pub(crate) fn wait_for_doubt(&self, seen: u32) {
        let _ = futex::wait(self.doubt_word(), futex::Flags::empty(), seen, None);
    }

    /// Ends [`Self::wait_for_doubt`].
    pub(crate) fn announce_doubt(&self) {
        self.doubt_word().fetch_add(1, Ordering::AcqRel);
        let _ = futex::wake(self.doubt_word(), futex::Flags::empty(), u32::MAX >> 1);
    }

    /// Answers the threads that ask whether another thread sleeps; `sleeps` gets its process and thread.
    pub(crate) fn answer_doubts(&self, sleeps: impl Fn(u32, u32) -> bool) {
        for index in (0..SLOTS_MAX as u32).map(SlotIndex) {
            let slot = self.slot(index);
            // SAFETY: these fields of a slot are only used as atomics.
            let (doubt, process, thread) =
                unsafe { (&(*slot).doubt, &(*slot).process_id, &(*slot).thread_id) };
            if doubt.load(Ordering::Acquire) == Doubt::Asked as u32 {
                let (process, thread) = (
                    process.load(Ordering::Relaxed),
                    thread.load(Ordering::Relaxed),
                );
                let answer = if sleeps(process, thread) {
                    Doubt::Sleeps
                } else {
                    Doubt::Runs
                };
                doubt.store(answer as u32, Ordering::Release);
            }
        }
    }

    fn control(&self) -> *mut RecordingControl {
        self.base.as_ptr()
    }

    fn chunk_state(&self, index: ChunkIndex) -> &ChunkState {
        assert!(index.0 < self.chunk_count, "a chunk that exists");
        // SAFETY: the index is below `CHUNKS_MAX`, and a `ChunkState` consists of atomics.
        unsafe {
            &*(&raw const (*self.control()).chunks)
                .cast::<ChunkState>()
                .add(index.0 as usize)
        }
    }

    fn slot(&self, index: SlotIndex) -> *mut ThreadSlot {
        assert!((index.0 as usize) < SLOTS_MAX, "a slot that exists");
        // SAFETY: slots lie in the file from `SLOTS_AT` on, `SLOTS_MAX` of them.
        unsafe {
            self.base
                .as_ptr()
                .byte_add(SLOTS_AT as usize)
                .cast::<ThreadSlot>()
                .add(index.0 as usize)
        }
    }

    fn word(&self, index: ChunkIndex, offset: u64) -> &AtomicU64 {
        assert!(
            index.0 < self.chunk_count && offset <= chunk::LEN - 8 && offset.is_multiple_of(8),
            "a word of a chunk that exists"
        );
        // SAFETY: the word lies inside the file, aligned, and is only used as an atomic.
        unsafe {
            &*self
                .base
                .as_ptr()
                .byte_add((chunk_offset(index.0) + offset) as usize)
                .cast::<AtomicU64>()
        }
    }

    /// All chunks.
    pub(crate) fn chunk_indexes(&self) -> impl Iterator<Item = ChunkIndex> + use<> {
        (0..self.chunk_count).map(ChunkIndex)
    }

    /// The futex that grows when a thread retires a chunk.
    fn retired(&self) -> &AtomicU32 {
        // SAFETY: a field of the control page that is an atomic.
        unsafe { &(*self.control()).retired }
    }

    fn freed(&self) -> &AtomicU32 {
        // SAFETY: a field of the control page that is an atomic.
        unsafe { &(*self.control()).freed }
    }

    /// The number of retirements so far, for [`SharedFile::wait_for_retirement`].
    pub(crate) fn retirements(&self) -> u32 {
        self.retired().load(Ordering::Acquire)
    }

    /// Waits until a chunk is retired after `seen` was read, the doorbell rings, or the timeout passes.
    pub(crate) fn wait_for_retirement(&self, seen: u32, timeout: Timespec) {
        // Whatever the result, the caller checks again.
        let _ = futex::wait(self.retired(), futex::Flags::empty(), seen, Some(&timeout));
    }

    /// Wakes the thread that waits for a retirement.
    pub(crate) fn ring(&self) {
        self.retired().fetch_add(1, Ordering::AcqRel);
        let _ = futex::wake(self.retired(), futex::Flags::empty(), u32::MAX >> 1);
    }

    /// The owner of a chunk.
    pub(crate) fn owner(&self, index: ChunkIndex) -> Option<ChunkOwner> {
        let state = self.chunk_state(index);
        let thread = state.thread.load(Ordering::Acquire).checked_sub(1)?;
        let retired = state.retired.load(Ordering::Acquire) != 0;
        Some(ChunkOwner {
            thread,
            retired,
            sequence: state.sequence.load(Ordering::Acquire),
        })
    }

    /// Reads a word of a chunk.
    pub(crate) fn load(&self, index: ChunkIndex, offset: u64) -> u64 {
        self.word(index, offset).load(Ordering::Acquire)
    }

    /// Appends bytes of a chunk that are not written any more to `out`.
    pub(crate) fn copy(&self, index: ChunkIndex, offset: u64, len_bytes: u64, out: &mut Vec<u8>) {
        assert!(
            index.0 < self.chunk_count
                && offset
                    .checked_add(len_bytes)
                    .is_some_and(|end| end <= chunk::LEN),
            "a part of a chunk that exists"
        );
        let len = len_bytes as usize;
        out.reserve(len);
        // SAFETY: the source lies inside the mapping by the assertion, the target was reserved, and
        // they are different allocations. The caller has seen these records committed with an
        // acquiring load, after which their thread does not write them.
        unsafe {
            let source = self
                .base
                .as_ptr()
                .byte_add((chunk_offset(index.0) + offset) as usize)
                .cast::<u8>();
            ptr::copy_nonoverlapping(source, out.as_mut_ptr().add(out.len()), len);
            out.set_len(out.len() + len);
        }
    }

    /// Gives a chunk back, full of zeros.
    pub(crate) fn free(&self, index: ChunkIndex) {
        self.free_used(index, chunk::LEN);
    }

    /// Tells waiting threads that chunks were freed.
    pub(crate) fn announce_freed(&self) {
        self.freed().fetch_add(1, Ordering::AcqRel);
        let _ = futex::wake(self.freed(), futex::Flags::empty(), u32::MAX >> 1);
    }

    /// The slot of a thread.
    pub(crate) fn find_slot(&self, thread: u32) -> Option<SlotIndex> {
        (0..SLOTS_MAX as u32)
            .map(SlotIndex)
            .find(|slot| self.slot_thread(*slot) == Some(thread))
    }

    /// The thread that has a slot.
    pub(crate) fn slot_thread(&self, index: SlotIndex) -> Option<u32> {
        // SAFETY: a field of a slot that is an atomic.
        let thread = unsafe { &(*self.slot(index)).thread };
        thread.load(Ordering::Acquire).checked_sub(1)
    }

    /// Gives back the store locks that a dead thread held. Its chunks and its slot are still its own.
    pub(crate) fn release_store_locks(&self, index: SlotIndex) {
        // SAFETY: a field of the control page that is an atomic.
        let used = unsafe { (*self.control()).store_locks_used.load(Ordering::Acquire) };
        if used == 0 {
            return;
        }
        let block = block_address(index);
        for lock in 0..store_lock::COUNT as u64 {
            let address = CONTROL_ADDRESS + STORE_LOCKS_AT + lock * store_lock::STRIDE as u64;
            if let Some(lock) = self.store_lock(address) {
                let _ = lock.compare_exchange(block, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
        for slot in [ScratchSlot::Lock, ScratchSlot::SecondLock] {
            // SAFETY: an aligned word of the slot, of a thread that does not change it any more.
            let named =
                unsafe { (&raw const (*self.slot(index)).block.scratch[slot.index()]).read() };
            if let Some(lock) = self.store_lock(named) {
                let record = lock.load(Ordering::Acquire);
                let owner = (record >= CHUNKS_ADDRESS)
                    .then(|| ChunkIndex(chunk_of(record).0))
                    .filter(|chunk| chunk.0 < self.chunk_count)
                    .and_then(|chunk| self.owner(chunk));
                if owner.is_some_and(|owner| Some(owner.thread) == self.slot_thread(index)) {
                    let _ = lock.compare_exchange(record, 0, Ordering::AcqRel, Ordering::Relaxed);
                }
            }
        }
    }

    /// Whether the thread in a slot holds a store lock for a record, which is at this address in the target.
    pub(crate) fn holds_store_lock(&self, index: SlotIndex, record: u64) -> bool {
        [ScratchSlot::Lock, ScratchSlot::SecondLock]
            .into_iter()
            .any(|slot| {
                // SAFETY: an aligned word of the slot that its thread changes with single instructions.
                let named = unsafe {
                    AtomicU64::from_ptr(&raw mut (*self.slot(index)).block.scratch[slot.index()])
                };
                let lock = self.store_lock(named.load(Ordering::Acquire));
                lock.is_some_and(|lock| lock.load(Ordering::Acquire) == record)
            })
    }

    /// The store lock that is at an address in every process of the target.
    fn store_lock(&self, address: u64) -> Option<&AtomicU64> {
        let offset = address.checked_sub(CONTROL_ADDRESS + STORE_LOCKS_AT)?;
        if offset >= store_lock::TABLE_LEN as u64 || !offset.is_multiple_of(8) {
            return None;
        }
        // SAFETY: the table lies inside the file, and its words are only used as atomics.
        Some(unsafe {
            &*self
                .base
                .as_ptr()
                .byte_add((STORE_LOCKS_AT + offset) as usize)
                .cast::<AtomicU64>()
        })
    }

    /// Frees the slot of a dead thread.
    pub(crate) fn free_slot(&self, index: SlotIndex) {
        // SAFETY: a field of a slot that is an atomic.
        let thread = unsafe { &(*self.slot(index)).thread };
        thread.store(0, Ordering::Release);
    }

    /// The cursor of the thread in a slot.
    pub(crate) fn cursor(&self, index: SlotIndex) -> u64 {
        // SAFETY: an aligned word of the slot that its thread changes with single instructions.
        let cursor = unsafe { AtomicU64::from_ptr(&raw mut (*self.slot(index)).block.cursor) };
        cursor.load(Ordering::Acquire)
    }

    /// Takes a stamp: what is not reserved yet has a later one.
    pub(crate) fn tick(&self) -> Stamp {
        // SAFETY: a field of the control page that is an atomic.
        Stamp(unsafe { (*self.control()).clock.tick() })
    }

    /// Whether the thread in a slot does not look at the clock for each record.
    pub(crate) fn is_alone(&self, index: SlotIndex) -> bool {
        let block = self.slot(index);
        // SAFETY: aligned words of the slot. The first one is changed by its thread and others, with single instructions.
        let (is_shared, stamp) = unsafe {
            let block = &raw mut (*block).block;
            (
                AtomicU32::from_ptr(&raw mut (*block).is_shared),
                AtomicU64::from_ptr(&raw mut (*block).stamp),
            )
        };
        is_shared.load(Ordering::Acquire) == 0 && stamp.load(Ordering::Relaxed) != 0
    }

    /// How many handlers are active on the thread in a slot.
    pub(crate) fn signal_depth(&self, index: SlotIndex) -> u32 {
        // SAFETY: an aligned word of the slot that its thread changes with single instructions.
        let depth = unsafe { AtomicU32::from_ptr(&raw mut (*self.slot(index)).block.signal_depth) };
        depth.load(Ordering::Acquire)
    }

    /// Lets the target record operations on files, if it does not.
    pub(crate) fn record_files(&self) {
        self.trees().is_on.store(1, Ordering::Release);
    }

    /// Shows the target where the trees are: the directory below which more are made, and the roots.
    pub(crate) fn show_trees<'a>(
        &self,
        candidate: Option<&'a Path>,
        roots: impl Iterator<Item = &'a Path>,
    ) {
        let table = self.trees();
        let paths = core::iter::once(candidate.unwrap_or(Path::new(""))).chain(roots);
        let mut at = 0;
        for path in paths {
            let path = path.as_os_str().as_bytes();
            let Ok(len) = u16::try_from(path.len()) else {
                continue;
            };
            if at + 2 + path.len() > PATHS_MAX {
                break;
            }
            for byte in len.to_le_bytes().iter().chain(path) {
                table.paths[at].store(*byte, Ordering::Relaxed);
                at += 1;
            }
        }
        table.paths_len.store(at as u32, Ordering::Release);
    }

    /// Gives back the lock of operations on files, if a thread that does not exist any more has it.
    pub(crate) fn free_file_lock(&self, thread: u32) {
        let lock = &self.trees().lock;
        let found = lock.load(Ordering::Acquire);
        if found & !LOCK_WAITED_FOR == thread + 1 {
            lock.store(0, Ordering::Release);
            let _ = futex::wake(lock, futex::Flags::empty(), i32::MAX as u32);
        }
    }

    /// Releases the lock of operations on files, which a process may have held when it ended. No process is left that
    /// uses it.
    pub(crate) fn reset_file_lock(&self) {
        self.trees().lock.store(0, Ordering::Release);
    }

    fn trees(&self) -> &TreeTable {
        // SAFETY: the file has a control page, and everything in the table is atomic.
        unsafe { &(*self.control()).trees }
    }

    /// Answers the thread in a slot.
    pub(crate) fn reply(&self, index: SlotIndex, reply: Reply) {
        // SAFETY: a field of a slot that is an atomic.
        let place = unsafe { &(*self.slot(index)).reply };
        place.store(reply as u32, Ordering::Release);
        let _ = futex::wake(place, futex::Flags::empty(), u32::MAX >> 1);
    }
}

impl AsFd for SharedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `create`, nothing refers to it any more.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len_bytes) };
    }
}
