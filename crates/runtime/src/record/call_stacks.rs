//! Call stacks: unwound once, then found in the thread's table by emitted code.
//!
//! [`powerfail_protocol::stack`] says what the table is. Here is what fills it: the unwinder, the rules it
//! has looked up in unwind tables, and the numbers of the stacks that the host knows.
//!
//! A stack ends at a handler of a signal, at code without an unwind table or frame pointers, and after [`DEPTH_MAX`]
//! frames. Frames of our own are left out. Lines of Python stand for the frames of its interpreter (`python.rs`).
//!
//! # Safety
//!
//! Callers pass the block of the calling thread, with signals blocked where they say so. Stacks are read only
//! between a stack pointer and the end of the same stack; unwind tables are those of loaded modules.
#![allow(unsafe_code, reason = "reads stacks and unwind tables")]

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::collections::BTreeMap;

use powerfail_protocol::message::MessageKind;
use powerfail_protocol::shared::Stacks;
use powerfail_protocol::stack::{Check, Entry, HEADS, RBP_BELOW_TOP, head_of};
use powerfail_protocol::{ScratchSlot, SiteId, ThreadBlock};
use powerfail_unwind::{Cfa, RBP, Row, cie_distance, row_at};

use crate::fuzz::{self, derandomise};
use crate::host;
use crate::patching::code;
use crate::patching::modules::{self, Description};
use crate::platform::frame::{Frame, Greg};
use crate::platform::lock::{Lock, Word};
use crate::platform::sys;
use crate::record::append::NO_SITE;
use crate::record::python::{self, PythonStack};
use crate::record::sites::SITES;
use crate::record::{pools, threads};

/// No stack is longer; of deeper ones the innermost frames are kept.
const DEPTH_MAX: usize = 256;
/// No more stacks are told apart in one process.
const STACKS_MAX: usize = 1 << 20;
/// Rules that are kept: a power of two.
const RULES: usize = 1 << 14;

/// Length of the table of a thread.
pub(crate) const TABLE_LEN: u64 = (HEADS * 8) as u64;

/// Where the caller is in code that has no unwind table, because the target has generated it, if it keeps frame pointers:
/// the interpreter of the JVM does, and what it compiles with `-XX:+PreserveFramePointer`.
const FRAME_POINTER: Row = Row {
    cfa: Cfa::Register {
        register: RBP,
        offset: 16,
    },
    return_address: Some(-8),
    rbp: Some(-16),
};

/// No target keeps more generated code in one place.
const GENERATED_LEN: u64 = 1 << 30;

static KNOWN: Lock<Option<StackCache>> = Lock::new(None);
/// What a fork holds of it.
pub(crate) static KNOWN_WORD: &Word = KNOWN.word();
/// Grows when code is unloaded: what is known of addresses is void then.
static GENERATION: AtomicU32 = AtomicU32::new(0);
static TOO_MANY: AtomicBool = AtomicBool::new(false);
/// The highest address of the main thread's stack.
static MAIN_STACK_END: AtomicU64 = AtomicU64::new(0);

/// Whether whole call stacks are recorded.
pub(crate) fn are_wanted() -> bool {
    host::control().stacks == Stacks::Full as u32
}

/// Code was unloaded.
pub(crate) fn forget_code() {
    GENERATION.fetch_add(1, Ordering::Release);
}

/// How often code was unloaded, or found that is new.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Acquire)
}

/// Another process has given a call stack a number.
pub(crate) fn learn(key: u128, number: u32) {
    KNOWN.with(|known| {
        known
            .get_or_insert_with(StackCache::new)
            .numbers
            .insert(key, number);
    });
}

/// Another process has needed the rule at an address of code.
pub(crate) fn learn_rule(pc: u64) {
    KNOWN.with(|known| {
        let known = known.get_or_insert_with(StackCache::new);
        known.keep_up();
        known.rule(pc);
    });
}

/// Makes the tables that are made when the first stack is unwound.
pub(crate) fn prepare() {
    KNOWN.with(|known| {
        known.get_or_insert_with(StackCache::new);
    });
}

/// Where the stack of the main thread ends.
pub(crate) fn set_main_stack_end(end: u64) {
    MAIN_STACK_END.store(end, Ordering::Relaxed);
}

/// Where the stack of a thread ends that begins now.
pub(crate) fn stack_end_of_new_thread() -> u64 {
    /// Above the first frame of a thread lies what the C library keeps of it, of more than that.
    const SURELY_MAPPED: u64 = 2048;
    /// As large as a main stack usually may be.
    const MAIN_STACK_LEN: u64 = 64 << 20;
    let main = MAIN_STACK_END.load(Ordering::Relaxed);
    let here = sys::stack_pointer();
    if here < main && main - here < MAIN_STACK_LEN {
        main
    } else {
        here + SURELY_MAPPED
    }
}

/// The registers that unwinding begins with.
#[derive(Clone, Copy)]
pub(crate) struct Registers {
    pub(crate) pc: u64,
    pub(crate) rsp: u64,
    pub(crate) rbp: u64,
}

/// What was found out about call stacks: unwind rules, and the numbers that the host knows.
struct StackCache {
    generation: u32,
    rules: Vec<(u64, Option<Row>)>,
    numbers: BTreeMap<u128, u32>,
    walk: Walk,
}

/// A stack that was walked.
struct Walk {
    frames: Vec<u64>,
    /// The stack pointer in each of them.
    stack_pointers: Vec<u64>,
    /// Where the outermost C frame whose length is known ends.
    top: u64,
    checks: Vec<Check>,
    rbp_matters: bool,
    python: PythonStack,
}

impl StackCache {
    fn new() -> Self {
        Self {
            generation: 0,
            rules: vec![(0, None); RULES],
            numbers: BTreeMap::new(),
            walk: Walk {
                frames: Vec::with_capacity(DEPTH_MAX),
                stack_pointers: Vec::with_capacity(DEPTH_MAX),
                top: 0,
                checks: Vec::with_capacity(2 * DEPTH_MAX + 2),
                rbp_matters: false,
                python: PythonStack::default(),
            },
        }
    }

    /// Forgets rules of code that may be other code by now.
    fn keep_up(&mut self) {
        let generation = generation();
        if generation != self.generation {
            self.generation = generation;
            self.rules.fill((0, None));
        }
    }

    /// The rule at an address of code.
    fn rule(&mut self, pc: u64) -> Option<Row> {
        let place = (pc.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50) as usize & (RULES - 1);
        if self.rules[place].0 != pc {
            self.rules[place] = (pc, look_up(pc));
            fuzz::note_rule(pc);
        }
        self.rules[place].1
    }

    /// Walks the stack from an instruction on.
    fn walk(&mut self, from: Registers, end: u64) {
        self.walk_code(from, end);
        if python::is_loaded() {
            self.walk.name_python();
        }
    }

    fn walk_code(&mut self, from: Registers, end: u64) {
        self.walk.frames.clear();
        self.walk.stack_pointers.clear();
        self.walk.top = 0;
        self.walk.checks.clear();
        self.walk.rbp_matters = false;
        self.keep_up();
        let Registers {
            mut pc,
            mut rsp,
            mut rbp,
        } = from;
        // Where RBP was saved; none while it is the register itself.
        let mut rbp_saved_at = None;
        let memory = Memory {
            start: rsp,
            end: end.max(rsp),
        };
        let mut lookup = pc;
        while self.walk.frames.len() < DEPTH_MAX {
            let mut row = self.rule(lookup);
            let by_pointer = row.is_none() && (rsp..end).contains(&rbp) && is_generated(lookup);
            if by_pointer {
                row = Some(FRAME_POINTER);
            }
            let Some(row) = row else { return };
            let (register, base) = match row.cfa {
                Cfa::Register { register, offset } | Cfa::Saved { register, offset } => {
                    let base = if register == RBP { rbp } else { rsp };
                    (register, base.wrapping_add_signed(offset))
                }
            };
            if register == RBP {
                match rbp_saved_at {
                    Some(address) => self.walk.checks.push(Check {
                        address,
                        value: rbp,
                    }),
                    None => self.walk.rbp_matters = true,
                }
            }
            let cfa = match row.cfa {
                Cfa::Register { .. } => base,
                Cfa::Saved { .. } => {
                    let Some(value) = memory.word(base) else {
                        return;
                    };
                    self.walk.checks.push(Check {
                        address: base,
                        value,
                    });
                    value
                }
            };
            let Some(offset) = row.return_address else {
                return;
            };
            let address = cfa.wrapping_add_signed(offset);
            let Some(value) = memory.word(address) else {
                return;
            };
            if cfa <= rsp {
                return;
            }
            // A pointer that was something else leads anywhere.
            let is_near = value.abs_diff(lookup) < GENERATED_LEN && is_generated(value);
            if by_pointer && !is_near && look_up(value).is_none() {
                return;
            }
            self.walk.top = cfa;
            if value == 0 {
                return;
            }
            if let Some(offset) = row.rbp {
                let saved_at = cfa.wrapping_add_signed(offset);
                let Some(saved) = memory.word(saved_at) else {
                    return;
                };
                rbp = saved;
                rbp_saved_at = Some(saved_at);
            }
            self.walk.checks.push(Check { address, value });
            // Our own frames are left out, but not those of our callers.
            if !modules::is_own(value) {
                self.walk.frames.push(value);
                self.walk.stack_pointers.push(cfa);
            }
            pc = value;
            // The call may be the last instruction of its function.
            lookup = pc - 1;
            rsp = cfa;
        }
    }

    /// The number of the stack that was walked; `site` if there are too many.
    fn number(&mut self, site: SiteId, pc: u64) -> u32 {
        const FIRST: u64 = 0x9e37_79b9_7f4a_7c15;
        const SECOND: u64 = 0xd6e8_feb8_6659_fd93;
        let (mut low, mut high) = (FIRST, SECOND);
        for word in self.walk.frames.iter().chain([&pc, &u64::from(site.0)]) {
            low = (low.rotate_left(5) ^ word).wrapping_mul(FIRST);
            high = (high.rotate_left(23) ^ word).wrapping_mul(SECOND);
        }
        let key = u128::from(high) << 64 | u128::from(low);
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        if self.numbers.len() >= STACKS_MAX {
            if !TOO_MANY.swap(true, Ordering::Relaxed) {
                host::warn(
                    "the target has too many distinct call stacks; further ones are recorded without their callers",
                );
            }
            return site.0;
        }
        let number = host::control().next_site.fetch_add(1, Ordering::Relaxed);
        let words = [number.into(), site.0.into(), pc, 0, 0];
        // SAFETY: words as bytes.
        let text = unsafe {
            core::slice::from_raw_parts(
                self.walk.frames.as_ptr().cast::<u8>(),
                8 * self.walk.frames.len(),
            )
        };
        self.walk.python.tell();
        host::send(MessageKind::Stack, words, text, None);
        self.numbers.insert(key, number);
        fuzz::note_stack(key, number);
        number
    }
}

impl Walk {
    /// Puts lines of Python in the place of the interpreter's frames, if it is on the stack.
    fn name_python(&mut self) {
        self.python.read();
        // The frame of the C function in which an address of the stack lies.
        let frame_with = |address: u64| {
            let behind = self.stack_pointers.partition_point(|it| *it <= address);
            behind.checked_sub(1)
        };
        let is_this_stack = |(address, _): &(u64, usize)| {
            let frame = frame_with(*address).filter(|_| *address < self.top);
            frame.is_some_and(|frame| python::is_interpreter(self.frames[frame]))
        };
        if !self.python.loops.first().is_some_and(is_this_stack) {
            self.python.forget();
            return;
        }
        let mut loops = self.python.loops.iter().peekable();
        let mut named = Vec::with_capacity(self.frames.len() + self.python.lines.len());
        let mut shown = 0;
        for (number, frame) in self.frames.iter().enumerate() {
            while let Some((_, end)) = loops.next_if(|it| frame_with(it.0) == Some(number)) {
                named.extend_from_slice(&self.python.lines[shown..*end]);
                shown = *end;
            }
            if !python::is_interpreter(*frame) {
                named.push(*frame);
            }
        }
        named.truncate(DEPTH_MAX);
        self.frames = named;
        self.checks.append(&mut self.python.checks);
    }

    /// The innermost frame: the instruction, or the line for which the interpreter executes it.
    fn innermost(&mut self, pc: u64) -> u64 {
        let is_named = self.frames.first().is_some_and(|it| python::is_line(*it));
        if is_named && python::is_interpreter(pc) {
            return self.frames.remove(0);
        }
        pc
    }

    /// Takes the innermost frame, which is where we were called. To be called only if there is one.
    fn take_caller(&mut self) -> u64 {
        let caller = self.frames.remove(0);
        if python::is_line(caller) {
            caller
        } else {
            caller - 1
        }
    }

    /// Puts the stack into the thread's table.
    ///
    /// # Safety
    /// The block is that of the calling thread, whose handlers cannot run.
    unsafe fn remember_as(
        &mut self,
        block: *mut ThreadBlock,
        site: SiteId,
        id: u32,
        registers: Registers,
    ) {
        let head = head_of(site.0, registers.rsp);
        // SAFETY: the table is the thread's own.
        unsafe {
            let table = (*block).stack_table as *mut u64;
            if self.checks.is_empty() {
                // There is at least one check: something that does not change.
                self.checks.push(Check {
                    address: (&raw const (*block).self_address) as u64,
                    value: (*block).self_address,
                });
            }
            let len = size_of::<Entry>() + self.checks.len() * size_of::<Check>();
            let at = threads::stack_entry(block, len as u64);
            let first = at + size_of::<Entry>() as u64;
            for (index, check) in self.checks.iter().enumerate() {
                (first as *mut Check).add(index).write(*check);
            }
            (at as *mut Entry).write(Entry {
                site: site.0,
                id,
                rsp: registers.rsp,
                rbp: registers.rbp,
                rbp_mask: if self.rbp_matters { u64::MAX } else { 0 },
                end: at + len as u64,
                next: table.add(head).read(),
            });
            table.add(head).write(at);
        }
    }
}

/// The stack of a thread, as far as it can be read without asking the kernel.
struct Memory {
    start: u64,
    end: u64,
}

impl Memory {
    fn word(&self, address: u64) -> Option<u64> {
        if !address.is_multiple_of(8) {
            return None;
        }
        if address >= self.start && address.checked_add(8)? <= self.end {
            // SAFETY: between the stack pointer and the end of the stack everything is mapped.
            return Some(unsafe { (address as *const u64).read_volatile() });
        }
        sys::read_own_word(address)
    }
}

/// Whether an address of code lies in no module: the target has generated it.
fn is_generated(pc: u64) -> bool {
    SITES.with(|sites| !sites.as_ref().is_some_and(|it| it.is_in_module(pc)))
}

/// Finds the rule at an address in the tables of its module.
fn look_up(pc: u64) -> Option<Row> {
    let description = SITES.with(|sites| sites.as_ref()?.description_at(pc))?;
    rule_of(description, pc)
}

/// The rule at an address, by the description of the function that it lies in.
pub(crate) fn rule_of(description: Description, pc: u64) -> Option<Row> {
    match description {
        Description::Entry(at) => rule_of_entry(at, pc),
        Description::Go(function) => function.row_at(pc),
        Description::Unknown => None,
    }
}

/// The rule at an address, by the entry of the unwind table for it.
fn rule_of_entry(at: u64, pc: u64) -> Option<Row> {
    // SAFETY: an entry of the unwind table of a loaded module: its length comes first.
    let description = unsafe {
        let whole = |at: u64| {
            let len = u32::from_le_bytes(code::view(at, 4).try_into().ok()?);
            Some(code::view(at, u64::from(len) + 4))
        };
        let entry = whole(at)?;
        let common = at + 4 - cie_distance(entry)?;
        powerfail_unwind::Description::new(entry, at, whole(common)?)?
    };
    row_at(&description, pc)
}

/// Emitted code has asked for a call stack that is not in the table: adds it.
///
/// # Safety
/// The block is that of the calling thread, whose handlers cannot run.
pub(crate) unsafe fn remember(block: *mut ThreadBlock, site: SiteId) {
    // SAFETY: by the contract `block` is the calling thread's; the stub has saved these registers in it.
    let registers = unsafe {
        Registers {
            pc: (*block).scratch[ScratchSlot::StackPc.index()],
            rsp: (*block).scratch[ScratchSlot::Register(4).index()],
            rbp: (((*block).slow_stack_top - RBP_BELOW_TOP) as *const u64).read(),
        }
    };
    let end = threads::stack_end(registers.rsp);
    KNOWN.with(|known| {
        let known = known.get_or_insert_with(StackCache::new);
        known.walk(registers, end);
        let innermost = known.walk.innermost(registers.pc);
        let id = known.number(site, innermost);
        // SAFETY: by the contract `block` is the calling thread's, and its handlers cannot run.
        unsafe { known.walk.remember_as(block, site, id, registers) };
    });
}

/// Names the code that records are made for from here on: an instruction, and the registers there.
pub(crate) fn set_origin(pc: u64, frame: &Frame) {
    let parts = [pc, frame.get(Greg::Rsp), frame.get(Greg::Rbp)];
    write_origin(parts);
}

/// Records are made for our callers again.
pub(crate) fn clear_origin() {
    write_origin([0; 3]);
}

fn write_origin(parts: [u64; 3]) {
    if let Some(block) = threads::block() {
        for (part, value) in parts.into_iter().enumerate() {
            // SAFETY: the block is this thread's.
            unsafe { (*block).scratch[ScratchSlot::Origin(part as u8).index()] = value };
        }
    }
}

/// What a record that the runtime itself makes names as its site: if wanted, the call stack of the
/// code that was named, or else of our caller.
pub(crate) fn of_record(block: *mut ThreadBlock, site: SiteId) -> SiteId {
    if !are_wanted() {
        return site;
    }
    // SAFETY: the block is this thread's.
    let [pc, rsp, rbp] =
        [0, 1, 2].map(|part| unsafe { (*block).scratch[ScratchSlot::Origin(part).index()] });
    let registers = if pc == 0 {
        sys::registers()
    } else {
        Registers { pc, rsp, rbp }
    };
    let end = threads::stack_end(registers.rsp);
    SiteId(KNOWN.with(|known| {
        let known = known.get_or_insert_with(StackCache::new);
        known.walk(registers, end);
        if pc != 0 {
            let innermost = known.walk.innermost(pc);
            return known.number(site, innermost);
        }
        // Our own frames are left out: the innermost one is where we were called.
        if known.walk.frames.is_empty() {
            return site.0;
        }
        let innermost = known.walk.take_caller();
        known.number(site, innermost)
    }))
}

/// What a mark of a call names as its site: if wanted, the call stack of our caller. It is looked
/// up in the thread's table as emitted code does it; `kind` is different for each function that asks.
#[inline(never)]
pub(crate) fn of_call(block: *mut ThreadBlock, kind: u32) -> SiteId {
    if !pools::was_mapped() && (fuzz::is_active() || derandomise::is_on()) {
        // A recording usually knows nothing of code before the first pool is mapped; campaigns, which look at code
        // before, are to see the same.
        return NO_SITE;
    }
    of_file_call(block, kind)
}

/// As [`of_call`], of an operation on a file. Code is known from the beginning if these are recorded.
#[inline(never)]
pub(crate) fn of_file_call(block: *mut ThreadBlock, kind: u32) -> SiteId {
    // SAFETY: the block is this thread's.
    let is_for_other = unsafe { (*block).scratch[ScratchSlot::Origin(0).index()] } != 0;
    if is_for_other || !are_wanted() {
        return of_record(block, NO_SITE);
    }
    // No instruction has such a number.
    let key = SiteId(NO_SITE.0 - 1 - kind);
    let registers = sys::registers();
    // SAFETY: the block is this thread's; its handlers only add to the table.
    if let Some(id) = unsafe { find(block, key, registers) } {
        return id;
    }
    let end = threads::stack_end(registers.rsp);
    SiteId(KNOWN.with(|known| {
        let known = known.get_or_insert_with(StackCache::new);
        known.walk(registers, end);
        if known.walk.frames.is_empty() {
            return NO_SITE.0;
        }
        let innermost = known.walk.take_caller();
        let id = known.number(NO_SITE, innermost);
        // SAFETY: the lock is held, so all signals of this thread are blocked.
        unsafe { known.walk.remember_as(block, key, id, registers) };
        id
    }))
}

/// The number of a stack that is in the table of the thread.
///
/// # Safety
/// The block is that of the calling thread.
unsafe fn find(block: *mut ThreadBlock, site: SiteId, registers: Registers) -> Option<SiteId> {
    let head = head_of(site.0, registers.rsp);
    // SAFETY: the table is the thread's own, and what it leads to stays while this code is interrupted.
    // Words that a stack depended on lie above RSP, in a stack that was there then; a thread has one.
    unsafe {
        let mut at = ((*block).stack_table as *const u64)
            .add(head)
            .read_volatile();
        while at != 0 {
            let entry = &*(at as *const Entry);
            let same_frame = entry.rsp == registers.rsp
                && (entry.rbp ^ registers.rbp) & entry.rbp_mask == 0
                && entry.site == site.0;
            if same_frame {
                let first = at + size_of::<Entry>() as u64;
                let count = (entry.end - first) as usize / size_of::<Check>();
                let checks = core::slice::from_raw_parts(first as *const Check, count);
                let holds =
                    |check: &Check| (check.address as *const u64).read_volatile() == check.value;
                if checks.iter().all(holds) {
                    return Some(SiteId(entry.id));
                }
            }
            at = entry.next;
        }
    }
    None
}
