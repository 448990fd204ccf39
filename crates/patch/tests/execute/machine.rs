//! A piece of address space in which snippets run, patched and unpatched.
//!
//! # Safety
//!
//! Snippets are machine code made from random instructions. They run on their own stack, with their own registers and
//! memory: the frame loads and stores every register around them, and every address that they use is in mappings that
//! only [`Machine`] owns. All of these have fixed addresses, so only one machine exists at a time ([`LOCK`]). A wrong
//! snippet can only fault, which ends the test program.
//!
//! Rust and the C library do not use GS on this architecture: a thread may change its base freely.

#![allow(unsafe_code)]

use core::arch::asm;
use core::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::frame::{self, Context, State};
use powerfail_protocol::clock::Clock;
use powerfail_protocol::stack::{self, Check, Entry};
use powerfail_protocol::{
    EventKind, PoolWindow, Record, Records, ScratchSlot, SiteId, ThreadBlock, chunk, request,
    store_lock,
};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap};

static LOCK: Mutex<()> = Mutex::new(());

/// Length of the pool, of the volatile memory and of the stack.
pub(crate) const MEMORY_LEN: usize = 0x4000;
/// Length of the code.
pub(crate) const CODE_LEN: usize = 0x20000;
/// Offset of snippets in the code.
pub(crate) const SNIPPET_AT: usize = 0x2000;
/// Offset of trampolines in the code.
pub(crate) const TRAMPOLINE_AT: usize = 0x10000;

const EPILOGUE_AT: usize = 0x1000;
const STOP_AFTER_EXIT: u64 = 0x400;
const STUB_AT: usize = 0x1800;
const CODE: u64 = 0x6000_0000;
const EXIT: u64 = CODE + EPILOGUE_AT as u64;
const VOLATILE: u64 = 0x7000_0000;
const STACK: u64 = 0x7100_0000;
const CONTEXT: u64 = 0x7200_0000;
const BLOCK: u64 = 0x7300_0000;
const SLOW_STACK: u64 = 0x7400_0000;
const SLOW_STACK_LEN: usize = 0x10000;
const STACK_TABLE: u64 = 0x7500_0000;
const STACK_TABLE_LEN: usize = 0x10_0000;
const CLOCK: u64 = 0x7710_0000;
const STORE_LOCKS: u64 = 0x7700_0000;
const CHUNKS: u64 = 0x7800_0000;
const CHUNK_COUNT: u64 = 2;
/// The stamp that the block has: others have taken some since.
pub(crate) const FIRST_STAMP: u64 = 1;
/// How much of a chunk a run can fill, from its start and up to its end.
const USED_START_LEN: usize = 0x6000;
const USED_END_LEN: usize = 0x100;

/// The location of the window and its alias.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Layout {
    /// Window below 4 GiB, aligned, the alias within 32-bit range.
    Near,
    /// Window anywhere, not aligned, the alias out of that range.
    Far,
}

impl Layout {
    /// The window.
    pub(crate) fn window(self) -> PoolWindow {
        match self {
            Self::Near => PoolWindow {
                base: 0x4000_0000,
                len_bytes: 0x0400_0000,
                alias_delta: 0x0800_0000,
            },
            Self::Far => PoolWindow {
                base: 0x2000_0000_0000,
                len_bytes: 0x0300_0000,
                alias_delta: 0x1000_0000_0000,
            },
        }
    }

    /// First address of the pool in the window.
    pub(crate) fn pool(self) -> u64 {
        self.window().base + 0x10_0000
    }
}

/// Owns the mappings.
pub(crate) struct Machine {
    layout: Layout,
    mappings: Vec<(u64, usize)>,
    _lock: MutexGuard<'static, ()>,
}

/// Called by the refill stub: exchanges the chunks and counts.
extern "C" fn refill(block: *mut ThreadBlock) {
    // SAFETY: the stub passes the block at the GS base, which `Machine` mapped and which is not borrowed while a
    // snippet runs; the same holds for the context.
    unsafe {
        if core::mem::take(&mut (*block).scratch[ScratchSlot::Turn.index()]) != 0 {
            (*(CONTEXT as *mut Context)).turns += 1;
        }
        if core::mem::take(&mut (*block).scratch[ScratchSlot::LockWait.index()]) != 0 {
            std::thread::yield_now();
            return;
        }
        remember_stack(block);
        answer_request(block);
        if chunk::overflows((*block).cursor) {
            let used = ((*block).cursor - CHUNKS) / chunk::ALIGNMENT;
            (*block).cursor = CHUNKS + (used + 1) % CHUNK_COUNT * chunk::ALIGNMENT;
            (*(CONTEXT as *mut Context)).refills += 1;
        }
        // Values that this function leaves in vector registers must not matter.
        asm!("vpxor xmm0, xmm0, xmm0", "vpcmpeqd ymm1, ymm1, ymm1", out("ymm0") _, out("ymm1") _);
    }
}

/// The answer to a client request: some number that depends on all of its inputs.
pub(crate) fn answer(site: SiteId, words: [u64; request::WORDS], default: u64) -> u64 {
    words
        .into_iter()
        .fold(default ^ u64::from(site.0), |sum, word| {
            sum.rotate_left(7).wrapping_add(word)
        })
}

/// If a client request was made, answers it.
///
/// # Safety
/// As `refill`; RAX points to the words of the request.
unsafe fn answer_request(block: *mut ThreadBlock) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let scratch = &mut (*block).scratch;
        let asked = core::mem::take(&mut scratch[ScratchSlot::Request.index()]);
        let Some(site) = asked.checked_sub(1) else {
            return;
        };
        let words = scratch[ScratchSlot::Register(0).index()] as *const [u64; request::WORDS];
        let default = scratch[ScratchSlot::Register(2).index()];
        scratch[ScratchSlot::RdxOut.index()] =
            answer(SiteId(site as u32), words.read_unaligned(), default);
    }
}

/// How many words of the stack determine the number of a call stack.
const STACK_WORDS: usize = 3;

/// Some number that depends on everything that determines a call stack.
fn stack_number(site: u32, rsp: u64, rbp: u64, words: [u64; STACK_WORDS]) -> u32 {
    words
        .into_iter()
        .chain([site.into(), rsp, rbp])
        .fold(0u64, |sum, word| {
            (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        })
        .wrapping_shr(33) as u32
}

/// If a call stack was requested, adds an entry for it to the table.
///
/// # Safety
/// As `refill`.
unsafe fn remember_stack(block: *mut ThreadBlock) {
    // SAFETY: guaranteed by the caller; the table is mapped and long enough for the entries of a test.
    unsafe {
        let asked = &mut (*block).scratch[ScratchSlot::StackSite.index()];
        let Some(site) = core::mem::take(asked).checked_sub(1) else {
            return;
        };
        let site = site as u32;
        let rsp = (*block).scratch[ScratchSlot::Register(4).index()];
        let rbp = (((*block).slow_stack_top - stack::RBP_BELOW_TOP) as *const u64).read();
        let words = (STACK as *const [u64; STACK_WORDS]).read();
        let used = STACK_TABLE as *mut u64;
        let heads = used.add(1);
        let first = STACK_TABLE + 8 + 8 * stack::HEADS as u64;
        let at = used.read().max(first);
        let checks = at + size_of::<Entry>() as u64;
        let end = checks + (STACK_WORDS * size_of::<Check>()) as u64;
        used.write(end);
        let head = heads.add(stack::head_of(site, rsp));
        (at as *mut Entry).write(Entry {
            site,
            id: stack_number(site, rsp, rbp, words),
            rsp,
            rbp,
            rbp_mask: u64::MAX,
            end,
            next: head.read(),
        });
        for (index, value) in words.into_iter().enumerate() {
            (checks as *mut Check).add(index).write(Check {
                address: STACK + 8 * index as u64,
                value,
            });
        }
        head.write(at);
    }
}

impl Machine {
    /// The number of the call stack in a state, with the current stack.
    pub(crate) fn stack_number(&mut self, site: u32, state: &State) -> u32 {
        let words = core::array::from_fn(|index| {
            let word = self.memory(STACK + 8 * index as u64, 8);
            u64::from_le_bytes(word.try_into().unwrap())
        });
        stack_number(site, state.registers[4], state.registers[5], words)
    }

    /// Clears all call stacks; returns how many were known.
    pub(crate) fn forget_stacks(&mut self) -> u64 {
        let table = self.memory(STACK_TABLE, STACK_TABLE_LEN);
        let used = u64::from_le_bytes(table[..8].try_into().unwrap());
        table.fill(0);
        let entry = size_of::<Entry>() + STACK_WORDS * size_of::<Check>();
        let first = STACK_TABLE + 8 + 8 * stack::HEADS as u64;
        used.saturating_sub(first) / entry as u64
    }

    /// Maps everything, loads the GS base and writes the frame.
    pub(crate) fn new(layout: Layout) -> Self {
        let lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        let fsgsbase = rustix::param::linux_hwcap().1 & 2 != 0;
        assert!(
            fsgsbase,
            "this machine cannot write the GS base from user space"
        );
        let mut machine = Self {
            layout,
            mappings: Vec::new(),
            _lock: lock,
        };
        let read_write = ProtFlags::READ | ProtFlags::WRITE;
        let pool = memfd_create("pool", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&pool, MEMORY_LEN as u64).unwrap();
        for (at, protection) in [
            (layout.pool(), ProtFlags::READ),
            (layout.window().alias(layout.pool()), read_write),
        ] {
            // SAFETY: `FIXED_NOREPLACE` takes only what is free.
            let mapped = unsafe {
                let flags = MapFlags::SHARED | MapFlags::FIXED_NOREPLACE;
                mmap(at as *mut c_void, MEMORY_LEN, protection, flags, &pool, 0)
            };
            assert_eq!(mapped.unwrap() as u64, at);
            machine.mappings.push((at, MEMORY_LEN));
        }
        machine.map(CODE, CODE_LEN, read_write | ProtFlags::EXEC);
        machine.map(VOLATILE, MEMORY_LEN, read_write);
        machine.map(STACK, MEMORY_LEN, read_write);
        machine.map(
            CONTEXT,
            size_of::<Context>().next_multiple_of(4096),
            read_write,
        );
        machine.map(
            BLOCK,
            size_of::<ThreadBlock>().next_multiple_of(4096),
            read_write,
        );
        machine.map(SLOW_STACK, SLOW_STACK_LEN, read_write);
        machine.map(CLOCK, 4096, read_write);
        machine.tick();
        machine.tick();
        machine.map(STACK_TABLE, STACK_TABLE_LEN, read_write);
        for index in 0..CHUNK_COUNT {
            machine.map(
                CHUNKS + index * chunk::ALIGNMENT,
                chunk::LEN as usize,
                read_write,
            );
        }
        let block = machine.block();
        block.self_address = BLOCK;
        block.cursor = CHUNKS;
        block.stamp = FIRST_STAMP;
        block.clock = CLOCK;
        block.stack_table = STACK_TABLE + 8;
        block.refill_entry = CODE + STUB_AT as u64;
        block.refill_function = refill as extern "C" fn(*mut ThreadBlock) as usize as u64;
        block.slow_stack_top = SLOW_STACK + SLOW_STACK_LEN as u64;
        machine.write_frame();
        // SAFETY: see the module header; the CPU and the kernel allow it, as was asserted.
        unsafe { asm!("wrgsbase {}", in(reg) BLOCK) };
        machine
    }

    fn map(&mut self, at: u64, len: usize, protection: ProtFlags) {
        // SAFETY: `FIXED_NOREPLACE` takes only what is free.
        let mapped = unsafe {
            let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
            mmap_anonymous(at as *mut c_void, len, protection, flags)
        };
        assert_eq!(mapped.unwrap() as u64, at);
        self.mappings.push((at, len));
    }

    /// Maps more executable memory, of at least a page.
    pub(crate) fn map_code(&mut self, at: u64, len: usize) {
        self.map(
            at,
            len,
            ProtFlags::READ | ProtFlags::WRITE | ProtFlags::EXEC,
        );
    }

    /// Memory that the machine owns.
    pub(crate) fn memory(&mut self, at: u64, len: usize) -> &mut [u8] {
        let owned = self
            .mappings
            .iter()
            .any(|(from, size)| *from <= at && at + len as u64 <= from + *size as u64);
        assert!(owned, "{at:#x} is not memory of this machine");
        // SAFETY: the range is mapped, as was asserted, by this machine, which is borrowed
        // mutably as long as the slice; no snippet runs meanwhile. Any bytes are valid `u8`.
        unsafe { core::slice::from_raw_parts_mut(at as *mut u8, len) }
    }

    fn context(&mut self) -> &mut Context {
        let context = self.memory(CONTEXT, size_of::<Context>()).as_mut_ptr();
        // SAFETY: mapped, aligned, large enough; any bytes are a valid `Context`. As for `memory`.
        unsafe { &mut *context.cast() }
    }

    /// The block at the GS base.
    pub(crate) fn block(&mut self) -> &mut ThreadBlock {
        let block = self.memory(BLOCK, size_of::<ThreadBlock>()).as_mut_ptr();
        // SAFETY: mapped, aligned, large enough; any bytes are a valid block. As for `memory`.
        unsafe { &mut *block.cast() }
    }

    /// Takes a stamp, as another thread does.
    pub(crate) fn tick(&mut self) -> u64 {
        let clock = self.memory(CLOCK, size_of::<Clock>()).as_mut_ptr();
        // SAFETY: mapped, aligned, large enough; any bytes are a valid clock. As for `memory`.
        unsafe { &*clock.cast::<c_void>().cast::<Clock>() }.tick()
    }

    /// Lets stores take locks, as those of a process with several threads do.
    pub(crate) fn share_pool(&mut self) {
        self.map(
            STORE_LOCKS,
            store_lock::TABLE_LEN,
            ProtFlags::READ | ProtFlags::WRITE,
        );
        self.block().store_locks = STORE_LOCKS;
        self.block().is_shared = 1;
    }

    /// The words of all locks that are held, or none if the pool is not shared.
    pub(crate) fn held_locks(&mut self) -> Vec<u64> {
        if self.block().is_shared == 0 {
            return Vec::new();
        }
        let words = self.memory(STORE_LOCKS, store_lock::TABLE_LEN).chunks(8);
        words
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
            .filter(|word| *word != 0)
            .collect()
    }

    /// Gives all locks back, as the code that delivers a signal does.
    pub(crate) fn release_locks(&mut self) {
        self.memory(STORE_LOCKS, store_lock::TABLE_LEN).fill(0);
        self.block().scratch[ScratchSlot::SecondLock.index()] = 0;
    }

    /// The record at an address is of a store that did not happen.
    pub(crate) fn void_record(&mut self, record: u64) {
        let bytes = self.memory(record, 16);
        bytes[0] = EventKind::Void as u8;
        bytes[8] |= 1;
    }

    /// Makes the store that the record at an address describes, and commits it.
    pub(crate) fn complete_record(&mut self, record: u64) {
        let bytes = self.memory(record, USED_START_LEN / 2);
        bytes[8] |= 1;
        let bytes = bytes.to_vec();
        let described = Records::new(&bytes).next().unwrap().unwrap();
        let at = (described.address.unwrap() - self.layout.pool()) as usize;
        for (offset, bytes) in described.runs() {
            self.pool()[at + offset..][..bytes.len()].copy_from_slice(bytes);
        }
    }

    /// The pool, writable.
    pub(crate) fn pool(&mut self) -> &mut [u8] {
        let alias = self.layout.window().alias(self.layout.pool());
        self.memory(alias, MEMORY_LEN)
    }

    /// Memory outside the window.
    pub(crate) fn volatile(&mut self) -> &mut [u8] {
        self.memory(VOLATILE, MEMORY_LEN)
    }

    /// The address of this memory.
    pub(crate) fn volatile_address() -> u64 {
        VOLATILE
    }

    /// The memory that snippets use as their stack.
    pub(crate) fn stack(&mut self) -> &mut [u8] {
        self.memory(STACK, MEMORY_LEN)
    }

    /// The address of this memory.
    pub(crate) fn stack_address() -> u64 {
        STACK
    }

    /// Address of an offset in the code.
    pub(crate) fn code_address(offset: usize) -> u64 {
        CODE + offset as u64
    }

    /// Writes code.
    pub(crate) fn write_code(&mut self, at: u64, bytes: &[u8]) {
        self.memory(at, bytes.len()).copy_from_slice(bytes);
    }

    /// Reads code.
    pub(crate) fn read_code(&mut self, at: u64, len: usize) -> Vec<u8> {
        self.memory(at, len).to_vec()
    }

    /// The address of the refill stub.
    pub(crate) fn stub_address() -> u64 {
        CODE + STUB_AT as u64
    }

    /// The length of the save area for all components of this machine.
    pub(crate) fn xsave_len() -> u32 {
        core::arch::x86_64::__cpuid_count(13, 0).ebx
    }

    /// The parts of the ring that a run can reach if it begins at the start or near the end of a chunk.
    fn used_parts() -> impl Iterator<Item = (u64, usize)> {
        (0..CHUNK_COUNT)
            .map(|index| CHUNKS + index * chunk::ALIGNMENT)
            .flat_map(|at| {
                [
                    (at, USED_START_LEN),
                    (at + chunk::LEN - USED_END_LEN as u64, USED_END_LEN),
                ]
            })
    }

    /// Empties the ring: the next record begins at the start of a chunk of zeros, or `before_end`
    /// bytes before its end.
    pub(crate) fn reset_ring(&mut self, before_end: Option<u64>) {
        for (at, len) in Self::used_parts() {
            self.memory(at, len).fill(0);
        }
        self.block().stamp = FIRST_STAMP;
        self.block().cursor = CHUNKS + before_end.map_or(0, |before| chunk::LEN - before);
        self.context().refills = 0;
        self.context().turns = 0;
    }

    /// Empties the ring to its end.
    pub(crate) fn clear_ring(&mut self) {
        for index in 0..CHUNK_COUNT {
            self.memory(CHUNKS + index * chunk::ALIGNMENT, chunk::LEN as usize)
                .fill(0);
        }
    }

    /// How often the ring was refilled since it was reset.
    pub(crate) fn refills(&mut self) -> u64 {
        self.context().refills
    }

    /// How often a turn was requested since the ring was reset.
    pub(crate) fn turns(&mut self) -> u64 {
        self.context().turns
    }

    /// The records since the ring was reset, chunk after chunk.
    pub(crate) fn records(&mut self) -> Vec<Record<'_>> {
        let mut records = Vec::new();
        for (at, len) in Self::used_parts() {
            let bytes = self.memory(at, len).as_ptr();
            // SAFETY: as for `memory`, but shared, and the parts are distinct.
            let bytes = unsafe { core::slice::from_raw_parts(bytes, len) };
            records.extend(Records::new(bytes).map(|record| record.expect("a record")));
        }
        records
    }

    /// Makes the target's view of the pool writable or read-only.
    pub(crate) fn protect_pool(&mut self, writable: bool) {
        let flags = if writable {
            MprotectFlags::READ | MprotectFlags::WRITE
        } else {
            MprotectFlags::READ
        };
        // SAFETY: the range is the machine's own mapping.
        unsafe { mprotect(self.layout.pool() as *mut c_void, MEMORY_LEN, flags) }.unwrap();
    }

    /// Makes the target's view of the pool inaccessible.
    pub(crate) fn hide_pool(&mut self) {
        let flags = MprotectFlags::empty();
        // SAFETY: the range is the machine's own mapping.
        unsafe { mprotect(self.layout.pool() as *mut c_void, MEMORY_LEN, flags) }.unwrap();
    }

    /// Maps zeroed memory.
    pub(crate) fn map_table(&mut self, at: u64, len: usize) {
        self.map(at, len, ProtFlags::READ | ProtFlags::WRITE);
    }

    /// Zeroed memory.
    pub(crate) fn table(&mut self, at: u64, len: usize) -> &mut [u8] {
        self.memory(at, len)
    }

    /// Writes the code that loads the state, and the code that stores it again.
    fn write_frame(&mut self) {
        let prologue = frame::prologue(CODE, CONTEXT);
        assert!(prologue.len() < EPILOGUE_AT);
        self.write_code(CODE, &prologue);
        let epilogue = frame::epilogue(CONTEXT);
        assert!(epilogue.len() < STOP_AFTER_EXIT as usize);
        self.write_code(EXIT, &epilogue);
        self.write_code(
            EXIT + STOP_AFTER_EXIT,
            &frame::stop(EXIT + STOP_AFTER_EXIT, EXIT, CONTEXT),
        );
    }

    /// The address to which code jumps to end a run early.
    pub(crate) fn stop_address() -> u64 {
        EXIT + STOP_AFTER_EXIT
    }

    /// Whether the last run ended early.
    pub(crate) fn was_stopped(&mut self) -> bool {
        self.context().stopped != 0
    }

    /// The address to which a snippet jumps when it is done.
    pub(crate) fn exit_address() -> u64 {
        EXIT
    }

    /// Runs the code at an address, from one state to another.
    pub(crate) fn run(&mut self, entry: u64, state: &State) -> State {
        let context = self.context();
        context.extended.fill(0);
        context.extended[..state.extended.len()].copy_from_slice(&state.extended);
        context.registers = state.registers;
        context.flags = state.flags;
        context.entry = entry;
        context.stopped = 0;
        // SAFETY: the frame follows the C calling convention: it saves the required registers, and restores the stack,
        // a clear direction flag and the default states of x87 and MXCSR (snippets do not change the latter). For the
        // snippet see the module header.
        unsafe { core::mem::transmute::<u64, extern "C" fn()>(CODE)() };
        let context = self.context();
        State {
            registers: context.registers,
            flags: context.flags,
            extended: context.extended[..state.extended.len()].to_vec(),
        }
    }

    /// Calls the function at `entry` with the address of the pool, a number and a count of iterations, in two threads
    /// at once, each with its own block. Returns the chunk of each.
    pub(crate) fn race(&mut self, entry: u64, rounds: u64) -> Vec<Vec<u8>> {
        let pool = self.layout.pool();
        let (store_locks, is_shared) = (self.block().store_locks, self.block().is_shared);
        // A barrier that sleeps would let one thread finish before the other wakes.
        let started = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2u64)
                .map(|thread| {
                    let started = &started;
                    scope.spawn(move || {
                        let at = CHUNKS + thread * chunk::ALIGNMENT;
                        let slow_stack = vec![0u8; SLOW_STACK_LEN];
                        let mut block = Box::new(ThreadBlock {
                            self_address: 0,
                            cursor: at,
                            stack_table: 0,
                            store_locks,
                            is_shared,
                            stamp: FIRST_STAMP,
                            clock: CLOCK,
                            refill_entry: Self::stub_address(),
                            refill_function: refill as *const () as u64,
                            slow_stack_top: slow_stack.as_ptr_range().end as u64 / 64 * 64,
                            protocol_version: powerfail_protocol::PROTOCOL_VERSION,
                            thread_index: thread as u32,
                            signal_depth: 0,
                            pending: 0,
                            scratch: [0; powerfail_protocol::SCRATCH_SLOTS],
                        });
                        let base = &raw mut *block as u64;
                        block.self_address = base;
                        // SAFETY: the chunks are mapped, each is used by this thread only, and the records fit into
                        // it; the block lives until the base is changed back. The function follows the C calling
                        // convention.
                        unsafe {
                            asm!("wrgsbase {}", in(reg) base);
                            let function =
                                core::mem::transmute::<u64, extern "C" fn(u64, u64, u64)>(entry);
                            started.fetch_add(1, Ordering::SeqCst);
                            while started.load(Ordering::SeqCst) < 2 {
                                core::hint::spin_loop();
                            }
                            function(pool, thread + 1, rounds);
                            asm!("wrgsbase {}", in(reg) 0u64);
                            drop((block, slow_stack));
                            core::slice::from_raw_parts(at as *const u8, chunk::LEN as usize)
                                .to_vec()
                        }
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        })
    }

    /// The FS base, which belongs to the C library.
    pub(crate) fn fs_base() -> u64 {
        let base: u64;
        // SAFETY: reads a register.
        unsafe { asm!("rdfsbase {}", out(reg) base) };
        base
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // SAFETY: the block is not in use any more.
        unsafe { asm!("wrgsbase {}", in(reg) 0u64) };
        for (at, len) in self.mappings.drain(..) {
            // SAFETY: the machine's own mappings, which are not referenced any more.
            unsafe { munmap(at as *mut c_void, len) }.unwrap();
        }
    }
}
