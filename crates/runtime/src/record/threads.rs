//! Threads of the target: their slots, their GS base, their chunks.
//!
//! # Safety
//!
//! A slot belongs to the thread that has exchanged its state, until that is detached; only that thread and its
//! handlers use the block in it. Callers of functions that take a block pass that of the calling thread.
#![allow(unsafe_code, reason = "keeps the blocks of threads")]

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use powerfail_protocol::message::MessageKind;
use powerfail_protocol::shared::{
    CHUNKS_ADDRESS, CLOCK_ADDRESS, ChunkState, ThreadSlot, chunk_address, chunk_of,
};
use powerfail_protocol::{
    EventKind, PROTOCOL_VERSION, ScratchSlot, SiteId, ThreadBlock, chunk, turn,
};

use crate::platform::lock::Lock;
use crate::platform::{handler_stacks, signals, sys};
use crate::record::{append, call_stacks, client_requests, schedule, store_locks, thread_private};
use crate::{fuzz, host};

/// Private memory of a thread: at its top the stack of the slow path (the state of the processor,
/// of which AVX-512 takes 2.7 KB, and the refill function), at its bottom the shield.
///
/// The **shield** is a block that the GS base points to while the thread is not to be recorded: in
/// the middle of fork, and after its end. Emitted code finds nothing pending there, and what it
/// saves there no other thread or process touches.
///
/// Between them: where the thread's stack ends, and its table of call stacks with their entries.
const PRIVATE_LEN: u64 = 2 << 20;
/// Of that, the slow stack.
const SLOW_STACK_LEN: u64 = 256 * 1024;
/// The least that is given to a handler that has interrupted the slow path.
const SLOW_PART_LEN_MIN: u64 = 32 * 1024;
const STACK_END_AT: u64 = 2048;
/// Behind what [`thread_private`] has there.
const TABLE_AT: u64 = thread_private::LEN;
/// Beside the entries: in a repeated target they are shared with those who come after.
const ENTRIES_USED_AT: u64 = TABLE_AT + call_stacks::TABLE_LEN;
const ENTRIES_AT: u64 = ENTRIES_USED_AT + 64;
const ENTRIES_LEN: u64 = PRIVATE_LEN - SLOW_STACK_LEN - ENTRIES_AT;

/// Private memory of threads that have ended, with their thread ids: used again when they are gone.
pub(crate) static ENDED: Lock<Vec<(u64, u32)>> = Lock::new(Vec::new());

/// Where emitted code goes when a chunk is full. Set when the first code is emitted.
static REFILL_ENTRY: AtomicU64 = AtomicU64::new(0);

/// The slot of the calling thread, if it has one.
pub(crate) fn slot() -> Option<&'static ThreadSlot> {
    let base = sys::gs();
    let slots = host::slots().as_ptr_range();
    // SAFETY: a GS base in this range is the address of a slot.
    slots
        .contains(&(base as *const ThreadSlot))
        .then(|| unsafe { &*(base as *const ThreadSlot) })
}

/// The block of the calling thread, if it has one. Emitted code changes it between any two
/// instructions, so it is reached by pointer.
pub(crate) fn block() -> Option<*mut ThreadBlock> {
    slot().map(|slot| core::ptr::from_ref(&slot.block).cast_mut())
}

/// Whether this process had more than one thread, ever.
pub(crate) fn has_company() -> bool {
    COMPANY.load(Ordering::Relaxed)
}

/// A second thread is about to be made.
pub(crate) fn expect_company() {
    COMPANY.store(true, Ordering::Relaxed);
    if host::attached() {
        store_locks::share_pools();
    }
}

static COMPANY: AtomicBool = AtomicBool::new(false);

/// The index of a slot.
pub(crate) fn index_of(slot: &ThreadSlot) -> u64 {
    (core::ptr::from_ref(slot) as u64 - host::slots().as_ptr() as u64)
        / size_of::<ThreadSlot>() as u64
}

/// Gives the calling thread a slot and tells the host.
pub(crate) fn attach() {
    attach_as(None);
}

/// The number of the calling thread, if it is recorded.
pub(crate) fn number() -> Option<u32> {
    // SAFETY: the block is this thread's.
    block().map(|block| unsafe { (*block).thread_index })
}

/// Takes a number for a thread that is about to be made.
pub(crate) fn reserve_number() -> u32 {
    host::control().next_thread.fetch_add(1, Ordering::Relaxed)
}

/// As `attach`, with a number that was taken before.
pub(crate) fn attach_as(number: Option<u32>) {
    // Behind the private memory lies the stack of our handlers; and one length more, because it must
    // be aligned to it.
    let fresh = || Some(sys::map_anywhere(3 * PRIVATE_LEN)?.next_multiple_of(PRIVATE_LEN));
    let Some(private) = recycled().or_else(fresh) else {
        host::fatal("out of memory for another thread")
    };
    if fuzz::is_active() {
        share_stacks(private);
    }
    // SAFETY: the memory is this thread's since just now.
    unsafe { thread_private::begin(private) };
    attach_with(private, 0, number);
}

/// Lets what a thread learns of its call stacks be known to later executions of a repeated target.
fn share_stacks(private: u64) {
    let (from, to) = (private + TABLE_AT, private + PRIVATE_LEN - SLOW_STACK_LEN);
    let both = sys::PROT_READ | sys::PROT_WRITE;
    let flags = sys::MAP_SHARED | sys::MAP_ANONYMOUS | sys::MAP_FIXED | sys::MAP_NORESERVE;
    // SAFETY: a part of the private memory, in which nothing is known yet.
    if unsafe { sys::mmap(from, to - from, both, flags, -1, 0) } < 0 {
        host::fatal("out of memory for call stacks");
    }
}

/// Gives the calling thread, which is not recorded, what our handlers need.
pub(crate) fn attach_unrecorded() {
    let Some(start) = sys::map_anywhere(3 * PRIVATE_LEN) else {
        host::fatal("out of memory for another thread")
    };
    let private = start.next_multiple_of(PRIVATE_LEN);
    // SAFETY: the memory is this thread's since just now.
    unsafe { thread_private::begin(private) };
    sys::set_gs(private);
    handler_stacks::use_own(private + PRIVATE_LEN, PRIVATE_LEN);
}

/// The private memory of the calling thread, if it is or was recorded.
pub(crate) fn private() -> Option<u64> {
    if let Some(slot) = slot() {
        return Some(private_of(slot));
    }
    // The shield is at its beginning.
    let base = sys::gs();
    (base != 0).then_some(base)
}

/// Whether an address is on the stack of our handlers of the calling thread.
pub(crate) fn is_on_own_stack(address: u64) -> bool {
    let start = private().map(|private| private + PRIVATE_LEN);
    start.is_some_and(|start| (start..=start + PRIVATE_LEN).contains(&address))
}

/// `parent` is the process that this one was forked from just now, or 0.
fn attach_with(private: u64, parent: u32, number: Option<u32>) {
    let number = number.unwrap_or_else(reserve_number);
    let slot = (1u32..).zip(host::slots()).find(|(end, slot)| {
        host::control().slots_end.fetch_max(*end, Ordering::AcqRel);
        slot.thread
            .compare_exchange(0, number + 1, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    });
    let Some((_, slot)) = slot else {
        host::fatal("the target has more threads than can be recorded")
    };
    slot.process_id.store(sys::getpid(), Ordering::Relaxed);
    slot.chunks_taken.store(0, Ordering::Relaxed);
    slot.thread_id.store(sys::gettid(), Ordering::Relaxed);
    let block = core::ptr::from_ref(&slot.block).cast_mut();
    let shield = private as *mut ThreadBlock;
    // SAFETY: the slot is ours since the exchange, and so is the private memory.
    unsafe {
        block.write(new_block(block as u64, private, number));
        shield.write(new_block(private, private, UNRECORDED));
        if parent == 0 {
            ((private + STACK_END_AT) as *mut u64).write(call_stacks::stack_end_of_new_thread());
        }
    }
    let (thread, process) = (sys::gettid().into(), sys::getpid().into());
    let words = [u64::from(number), thread, process, parent.into(), 0];
    host::send(MessageKind::ThreadStart, words, &[], None);
    sys::set_gs(block as u64);
    handler_stacks::use_own(private + PRIVATE_LEN, PRIVATE_LEN);
    if parent != 0 || !has_company() {
        schedule::begin_alone(number);
    }
}

/// Number of a thread that is not recorded.
const UNRECORDED: u32 = u32::MAX;

fn new_block(address: u64, private: u64, thread_index: u32) -> ThreadBlock {
    ThreadBlock {
        self_address: address,
        cursor: NO_CHUNK,
        refill_entry: REFILL_ENTRY.load(Ordering::Acquire),
        refill_function: refill as *const () as u64,
        slow_stack_top: private + PRIVATE_LEN,
        protocol_version: PROTOCOL_VERSION,
        thread_index,
        signal_depth: 0,
        pending: 0,
        stack_table: private + TABLE_AT,
        store_locks: store_locks::TABLE_ADDRESS,
        is_shared: store_locks::are_used().into(),
        stamp: host::control().clock.tick(),
        clock: CLOCK_ADDRESS,
        scratch: [0; powerfail_protocol::SCRATCH_SLOTS],
    }
}

/// Private memory of a thread that does not exist any more.
fn recycled() -> Option<u64> {
    let process = sys::getpid();
    ENDED.with(|ended| {
        let gone = ended
            .iter()
            .position(|&(_, thread)| !sys::is_alive(process, thread))?;
        Some(ended.swap_remove(gone).0)
    })
}

/// The private memory of a recorded thread.
fn private_of(slot: &ThreadSlot) -> u64 {
    let block = core::ptr::from_ref(&slot.block);
    // SAFETY: the block is that of the calling thread; only handlers lower the top, and not below.
    let top = unsafe { (*block).slow_stack_top };
    (top - 1) / PRIVATE_LEN * PRIVATE_LEN
}

/// The top of the slow stack while a handler runs that has interrupted code with this stack pointer.
/// If that was on the slow stack, so is the handler, and needs the next part of it for itself.
///
/// A handler that jumps out never gives its part back. When the parts become too small for the slow path, the outermost
/// one is used again: handlers that jumped out have left it, because so many are never in progress at once.
pub(crate) fn slow_stack_below(stack: u64, top: u64) -> u64 {
    let private = (top - 1) / PRIVATE_LEN * PRIVATE_LEN;
    let bottom = private + PRIVATE_LEN - SLOW_STACK_LEN;
    if !(bottom..=top).contains(&stack) {
        return top;
    }
    let len = (top - bottom) / 2 / 64 * 64;
    if len < SLOW_PART_LEN_MIN {
        private + PRIVATE_LEN
    } else {
        bottom + len
    }
}

/// Says that everything the calling thread has recorded has happened. Of a thread that is just gone
/// it is unknown whether it was killed between its last record and its last store.
pub(crate) fn conclude() {
    append::append(EventKind::Void, None, &[]);
}

/// The calling thread is recorded no more.
pub(crate) fn detach() {
    let Some(slot) = slot() else { return };
    // The others may have gone on already.
    schedule::turn();
    append::append(EventKind::ThreadEnd, None, &[]);
    schedule::end();
    conclude();
    sys::block_signals();
    let private = private_of(slot);
    sys::set_gs(private);
    // SAFETY: the block is this thread's, and its handlers cannot run.
    let number = unsafe {
        let block = core::ptr::from_ref(&slot.block);
        retire((*block).cursor);
        (*block).thread_index
    };
    host::send(
        MessageKind::ThreadEnd,
        [u64::from(number), 0, 0, 0, 0],
        &[],
        None,
    );
    slot.thread.store(0, Ordering::Release);
    ENDED.with(|ended| ended.push((private, sys::gettid())));
    // From here on no handler of the target may run on this thread: it could store to a pool.
    sys::restore_signals(!signals::OURS);
}

/// Runs `fork` so that neither process can disturb the other's block, which they share. Gives the
/// child a slot of its own.
pub(crate) fn around_fork(fork: impl FnOnce() -> i32) -> i32 {
    let Some(slot) = slot() else { return fork() };
    let block = core::ptr::from_ref(&slot.block).cast_mut();
    // SAFETY: the block is this thread's.
    if unsafe { (*block).pending } != 0 {
        // What fork does completes flushes, and will not be recorded.
        append::append(EventKind::FenceLocked, None, &[]);
        // SAFETY: `block` is the block of the calling thread, and only that thread and its handlers use it.
        unsafe { (*block).pending = 0 };
    }
    store_locks::share_pools();
    // No handler of the target may run while the thread is not recorded.
    let mask = sys::block_signals();
    sys::restore_signals(!signals::OURS);
    let private = private_of(slot);
    let parent = sys::getpid();
    sys::set_gs(private);
    let child = fork();
    if child == 0 {
        ENDED.reset_after_fork();
        attach_with(private, parent, None);
    } else {
        sys::set_gs(block as u64);
    }
    sys::restore_signals(mask);
    child
}

/// In a process that is a copy of another, whose thread is not recorded at this moment.
pub(crate) fn attach_after_fork(parent: u32) {
    ENDED.reset_after_fork();
    attach_with(sys::gs(), parent, None);
}

/// What a process of a repeated target keeps of its thread, for all that it forks.
pub(crate) struct Saved {
    slot: &'static ThreadSlot,
    block: ThreadBlock,
    next_thread: u32,
}

impl Saved {
    /// Remembers the calling thread, which continues without a chunk.
    pub(crate) fn new() -> Option<Self> {
        let slot = slot()?;
        let block = core::ptr::from_ref(&slot.block).cast_mut();
        // SAFETY: the block is this thread's, which makes no records meanwhile.
        let block = unsafe {
            retire((*block).cursor);
            (*block).cursor = NO_CHUNK;
            block.read()
        };
        Some(Self {
            slot,
            block,
            next_thread: host::control().next_thread.load(Ordering::Relaxed),
        })
    }

    /// Lets the next copy of this process begin as this one has been then.
    pub(crate) fn restore(&self) {
        // SAFETY: the copies of before are gone, and this thread makes no records.
        unsafe {
            core::ptr::from_ref(&self.slot.block)
                .cast_mut()
                .write(core::ptr::read(&raw const self.block));
        }
        self.slot.chunks_taken.store(0, Ordering::Relaxed);
        store_locks::reset();
        host::control()
            .next_thread
            .store(self.next_thread, Ordering::Relaxed);
    }

    /// In a copy: the thread is that of another process.
    pub(crate) fn inherit(&self) {
        self.slot.process_id.store(sys::getpid(), Ordering::Relaxed);
        self.slot.thread_id.store(sys::gettid(), Ordering::Relaxed);
    }
}

/// Emitted code exists from now on, and its way out when a chunk is full is at `entry`.
pub(crate) fn set_refill_entry(entry: u64) {
    REFILL_ENTRY.store(entry, Ordering::Release);
    let process = sys::getpid();
    for slot in host::used_slots() {
        let is_ours = slot.thread.load(Ordering::Acquire) != 0
            && slot.process_id.load(Ordering::Relaxed) == process;
        if is_ours {
            let block = core::ptr::from_ref(&slot.block).cast_mut();
            // SAFETY: nothing reads the entry before the first code is emitted, which is later.
            unsafe {
                (*block).refill_entry = entry;
                (*(private_of(slot) as *mut ThreadBlock)).refill_entry = entry;
            }
        }
    }
}

/// A cursor that says by itself that nothing fits, in no chunk.
const NO_CHUNK: u64 = chunk::LEN;

/// Called by emitted code, on the slow stack, when a reservation did not fit or the runtime is asked for
/// something else.
extern "C" fn refill(block: *mut ThreadBlock) {
    let mask = sys::block_signals();
    // SAFETY: the block is this thread's, and its handlers cannot run.
    unsafe {
        if (*block).scratch[ScratchSlot::Request.index()] != 0 {
            client_requests::answer(block, (*block).thread_index != UNRECORDED);
            sys::restore_signals(mask);
            return;
        }
        if (*block).thread_index == UNRECORDED {
            host::fatal("a thread stored to or flushed a pool after it had ended");
        }
        if core::mem::take(&mut (*block).scratch[ScratchSlot::LockWait.index()]) != 0 {
            store_locks::wait(block);
            sys::restore_signals(mask);
            return;
        }
        match core::mem::take(&mut (*block).scratch[ScratchSlot::Turn.index()]) {
            0 => {}
            turn::READ => schedule::read(),
            _ => schedule::step(),
        }
        let asked = &mut (*block).scratch[ScratchSlot::StackSite.index()];
        if let Some(site) = core::mem::take(asked).checked_sub(1) {
            call_stacks::remember(block, SiteId(site as u32));
        }
        // A handler that came in between may have brought a fresh chunk already.
        if chunk::overflows((*block).cursor) {
            retire((*block).cursor);
            (*block).cursor = take_chunk((*block).thread_index);
        }
        read_clock(block);
    }
    sys::restore_signals(mask);
}

/// The stamp of a record that the calling thread makes, now or since something else happened than that it made records.
///
/// # Safety
/// The block is that of the calling thread.
pub(crate) unsafe fn stamp(block: *mut ThreadBlock) -> u64 {
    // SAFETY: by the contract. Another process may change the first word.
    unsafe {
        let own = (&raw const (*block).stamp).read_volatile();
        if (&raw const (*block).is_shared).read_volatile() == 0 {
            return own;
        }
        // The host sees the reservation of the record before this thread looks at the clock.
        fence(Ordering::SeqCst);
        if host::control().clock.newest() == own {
            own
        } else {
            read_clock(block)
        }
    }
}

/// Takes a new stamp: what the calling thread records from now on is not earlier.
///
/// # Safety
/// The block is that of the calling thread.
pub(crate) unsafe fn read_clock(block: *mut ThreadBlock) -> u64 {
    let now = host::control().clock.tick();
    // SAFETY: the block is the calling thread's.
    unsafe { (&raw mut (*block).stamp).write_volatile(now) };
    now
}

/// The host has done something for the calling thread: what the thread records from now on is not earlier.
pub(crate) fn keep_up_with_host() {
    if let Some(block) = block() {
        // SAFETY: the block is this thread's.
        unsafe { read_clock(block) };
    }
}

/// Where the stack of the calling thread ends, if a stack pointer lies in it; else nothing above the
/// stack pointer is known.
pub(crate) fn stack_end(rsp: u64) -> u64 {
    const STACK_LEN_MAX: u64 = 1 << 30;
    let Some(slot) = slot() else { return rsp };
    // SAFETY: written when the thread was attached.
    let end = unsafe { ((private_of(slot) + STACK_END_AT) as *const u64).read() };
    if rsp < end && end - rsp < STACK_LEN_MAX {
        end
    } else {
        rsp
    }
}

/// Room for an entry of the thread's table of call stacks. If there is none left, the table is
/// emptied; not while a handler runs, which may have interrupted code that reads it.
///
/// # Safety
/// The block is that of the calling thread, with signals blocked.
pub(crate) unsafe fn stack_entry(block: *mut ThreadBlock, len: u64) -> u64 {
    // SAFETY: by the contract `block` is the calling thread's, and its private memory holds the table at this
    // distance.
    unsafe {
        let private = (*block).stack_table - TABLE_AT;
        let used = (private + ENTRIES_USED_AT) as *mut u64;
        if used.read() + len > ENTRIES_LEN {
            if (*block).signal_depth > 0 {
                let words = vec![0u64; (len / 8) as usize].leak();
                return words.as_ptr() as u64;
            }
            let table = (*block).stack_table as *mut u8;
            table.write_bytes(0, call_stacks::TABLE_LEN as usize);
            used.write(0);
        }
        let at = private + ENTRIES_AT + used.read();
        used.write(used.read() + len);
        at
    }
}

/// Brings a chunk in which `len` bytes fit. With signals blocked.
///
/// # Safety
/// The block is that of the calling thread.
pub(crate) unsafe fn ensure_room(block: *mut ThreadBlock, len: u64) {
    // SAFETY: by the contract `block` is the calling thread's, and its handlers cannot run.
    unsafe {
        if chunk::overflows((*block).cursor + len - 1) {
            retire((*block).cursor);
            (*block).cursor = take_chunk((*block).thread_index);
            read_clock(block);
        }
    }
}

fn retire(cursor: u64) {
    if cursor < CHUNKS_ADDRESS {
        return;
    }
    let (index, _) = chunk_of(cursor);
    let control = host::control();
    control.chunks[index as usize]
        .retired
        .store(1, Ordering::Release);
    control.retired.fetch_add(1, Ordering::Release);
    sys::futex_wake(&control.retired);
}

/// Takes a free chunk, and waits for the host if there is none.
fn take_chunk(thread: u32) -> u64 {
    let control = host::control();
    let taken = slot().map_or(0, |slot| slot.chunks_taken.fetch_add(1, Ordering::Relaxed));
    let (common, all) = (control.common_count, control.chunk_count);
    let take = |chunk: &ChunkState| {
        chunk.thread.load(Ordering::Relaxed) == 0
            && chunk
                .thread
                .compare_exchange(0, thread + 1, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    };
    loop {
        let freed = control.freed.load(Ordering::Acquire);
        for (index, chunk) in (0..common).zip(&control.chunks) {
            if take(chunk) {
                chunk.sequence.store(taken, Ordering::Release);
                return chunk_address(index);
            }
        }
        // All that have a chunk may wait for this thread. What it has retired, the host frees.
        let is_own = |chunk: &ChunkState| chunk.thread.load(Ordering::Relaxed) == thread + 1;
        if common < all && !control.chunks.iter().any(is_own) {
            for (index, chunk) in (0..all).zip(&control.chunks).skip(common as usize) {
                if take(chunk) {
                    if host::map_spare_chunk(index) {
                        chunk.sequence.store(taken, Ordering::Release);
                        return chunk_address(index);
                    }
                    chunk.thread.store(0, Ordering::Release);
                    break;
                }
            }
        }
        fuzz::starve();
        sys::futex_wait(&control.freed, freed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handlers_that_jump_out_do_not_use_up_the_slow_stack() {
        let private = 7 * PRIVATE_LEN;
        let bottom = private + PRIVATE_LEN - SLOW_STACK_LEN;
        let mut top = private + PRIVATE_LEN;
        for _ in 0..100 {
            // The slow path was interrupted, and the handler jumps out of it.
            let stack = top - 8192;
            let next = slow_stack_below(stack, top);
            assert!(next - bottom >= SLOW_PART_LEN_MIN);
            assert_eq!(private, (next - 1) / PRIVATE_LEN * PRIVATE_LEN);
            // What was interrupted is not overwritten.
            assert!(next <= stack || next - SLOW_STACK_LEN / 2 >= top);
            top = next;
        }
        // Code on another stack needs no part.
        assert_eq!(slow_stack_below(bottom - 1, top), top);
    }
}
