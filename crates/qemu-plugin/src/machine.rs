//! A whole machine under `qemu-system-x86_64`: what it does to its persistent memory, into a file.
//!
//! The persistent memory is a file that QEMU maps shared (`memory-backend-file`), so that its bytes after a store can be read
//! from a mapping of our own. Options:
//!
//! - `log=FILE`: where events go ([`powerfail_protocol::log`]);
//! - `pm=FILE`, `len=LENGTH`: the file of the persistent memory;
//! - `ram=OFFSET`: where it begins in QEMU's memory: memory backends follow each other in the order of the command line;
//! - `gpa=ADDRESS`: where it begins in the machine's physical memory. Then addresses of the kernel's direct mapping (which
//!   begins at a fixed address with `nokaslr`) need not be looked up, and flushes of the kernel are known;
//! - `stacks=on`: events have call stacks, as far as they are in the kernel;
//! - `marks=OFFSET`: where marks begin in the file, behind the persistent memory. With an access to a mark the log is complete up to
//!   there, for a host that reads it while the machine runs;
//! - `loads=on`: only the first load of each line is noted, and again from each load of a mark on.
//!
//! Numbers are hexadecimal. A machine with one processor has one order of events.
//!
//! # Safety
//!
//! QEMU calls these functions with what was registered: data is a site, which lives forever, or an address.
#![allow(unsafe_code, reason = "called by QEMU")]

use core::ffi::c_void;
use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use powerfail_protocol::log::{FrameKind, MAGIC, head};
use powerfail_protocol::{EventKind, FLAG_ADDRESS, Header, SiteId};
use rustc_hash::FxHashMap;

use crate::api::{self, AccessInfo, Block, PluginId};
use crate::pieces::Pieces;
use crate::registers::{self, COUNT, Processor, RSP};
use crate::translate::{self, Callbacks, Site};

/// Where the kernel maps all physical memory, without randomisation.
const DIRECT: u64 = 0xffff_8880_0000_0000;
const DIRECT_LEN: u64 = 64 << 40;
const LINE: u64 = 64;
const PAGE: u64 = 4096;
/// The kernel is from here on.
const KERNEL: u64 = 0xffff_8000_0000_0000;
/// A stack of the kernel has so many bytes, as a power of two, and begins at a multiple of them.
const STACK_BITS: u32 = 14;
/// Of deeper stacks the innermost frames are kept.
const DEPTH_MAX: usize = 48;
/// How much is written to the log at a time.
const BUFFER: usize = 64 << 10;
/// Pages that were found last.
const PAGES_MAX: usize = 1 << 16;

static RAM: AtomicU64 = AtomicU64::new(0);
static LEN: AtomicU64 = AtomicU64::new(0);
/// `u64::MAX` if there are none.
static MARKS: AtomicU64 = AtomicU64::new(u64::MAX);
/// `u64::MAX` if it is not known.
static PHYSICAL: AtomicU64 = AtomicU64::new(u64::MAX);
static MEMORY: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// QEMU's state of the processor.
static PROCESSOR: AtomicPtr<u64> = AtomicPtr::new(core::ptr::null_mut());
static NOTES_STACKS: AtomicBool = AtomicBool::new(false);
static STATE: Mutex<Option<State>> = Mutex::new(None);

struct State {
    log: File,
    buffer: Vec<u8>,
    /// The numbers of call stacks: innermost first.
    numbers: FxHashMap<Vec<u64>, u32>,
    /// By stack of the kernel: the calls that have not returned, as the place that has the address of the return, and
    /// that address; the innermost is the last.
    calls: FxHashMap<u64, Vec<(u64, u64)>>,
    /// The stack that was asked for last, to use its memory again.
    stack: Vec<u64>,
    sequence: u64,
    /// By processor: whether a flush or a non-temporal store waits for a fence.
    pending: VecDeque<bool>,
    /// A store of which more pieces may come, and its processor.
    pieces: Option<(Pieces, u32)>,
    /// Lines that were loaded.
    loaded: Vec<u64>,
    /// Pages of persistent memory that are mapped elsewhere than in the direct mapping, by virtual page.
    pages: FxHashMap<u64, u64>,
    copied: [u64; COUNT],
}

/// Watches a machine.
///
/// # Safety
/// Called by QEMU when it installs the plugin.
pub(crate) unsafe fn install(id: PluginId, arguments: &[String]) -> Result<(), String> {
    let value = |name: &str| {
        arguments.iter().find_map(|it| {
            let (key, value) = it.split_once('=')?;
            (key == name).then(|| value.to_owned())
        })
    };
    let needed = |name: &str| value(name).ok_or(format!("the plugin of QEMU needs {name}=..."));
    let hexadecimal = |text: String| {
        u64::from_str_radix(text.trim_start_matches("0x"), 16)
            .map_err(|_| format!("{text} is no hexadecimal number"))
    };
    let len = hexadecimal(needed("len")?)?;
    RAM.store(hexadecimal(needed("ram")?)?, Ordering::Relaxed);
    LEN.store(len, Ordering::Relaxed);
    if let Some(address) = value("gpa") {
        PHYSICAL.store(hexadecimal(address)?, Ordering::Relaxed);
    }
    if let Some(offset) = value("marks") {
        MARKS.store(hexadecimal(offset)?, Ordering::Relaxed);
    }
    let path = needed("pm")?;
    let file = File::open(&path).map_err(|error| format!("cannot open {path}: {error}"))?;
    // SAFETY: a new mapping, at an address that the kernel chooses, which stays.
    let memory = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            len as usize,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if memory == libc::MAP_FAILED {
        return Err(format!("cannot map {path}"));
    }
    MEMORY.store(memory.cast(), Ordering::Relaxed);
    let log = needed("log")?;
    let log = File::create(&log).map_err(|error| format!("cannot create {log}: {error}"))?;
    let is_on = |name: &str| value(name).is_some_and(|it| it == "on");
    let notes_loads = is_on("loads");
    NOTES_STACKS.store(is_on("stacks"), Ordering::Relaxed);
    *lock() = Some(State {
        log,
        buffer: MAGIC.to_vec(),
        numbers: FxHashMap::default(),
        calls: FxHashMap::default(),
        stack: Vec::new(),
        sequence: 0,
        pending: VecDeque::new(),
        pieces: None,
        loaded: vec![0; (len / LINE / 64 + 1) as usize],
        pages: FxHashMap::default(),
        copied: [0; COUNT],
    });
    // SAFETY: QEMU gave this id to this plugin, and the functions have the signatures of their kinds.
    unsafe {
        let translated = if notes_loads {
            translated_with_loads
        } else {
            translated
        };
        api::qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
        api::qemu_plugin_register_atexit_cb(id, exiting, core::ptr::null_mut());
    }
    Ok(())
}

const CALLBACKS: Callbacks = Callbacks {
    block: None,
    store: Some(after_store),
    load: None,
    call: None,
    order: before_order,
    copy_at_access,
    copy_before,
};

fn lock() -> MutexGuard<'static, Option<State>> {
    STATE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn with(work: impl FnOnce(&mut State)) {
    if let Some(state) = &mut *lock() {
        work(state);
    }
}

unsafe extern "C" fn translated(_id: PluginId, block: *mut Block) {
    let notes_stacks = NOTES_STACKS.load(Ordering::Relaxed);
    let callbacks = Callbacks {
        call: notes_stacks.then_some(after_call as api::OnAccess),
        ..CALLBACKS
    };
    // SAFETY: QEMU gives the block.
    unsafe { translate::look_at(block, &callbacks) }
}

unsafe extern "C" fn after_call(
    _processor: u32,
    _info: AccessInfo,
    address: u64,
    data: *mut c_void,
) {
    if address >= KERNEL {
        with(|state| state.called(address, data as u64));
    }
}

unsafe extern "C" fn translated_with_loads(_id: PluginId, block: *mut Block) {
    let callbacks = Callbacks {
        store: None,
        load: Some(after_load),
        ..CALLBACKS
    };
    // SAFETY: QEMU gives the block.
    unsafe { translate::look_at(block, &callbacks) }
}

unsafe extern "C" fn exiting(_id: PluginId, _data: *mut c_void) {
    with(|state| {
        state.finish_pieces();
        state.write();
    });
}

/// The place in the persistent memory of an access.
fn place(info: AccessInfo, address: u64) -> Option<u64> {
    let len = LEN.load(Ordering::Relaxed);
    let physical = PHYSICAL.load(Ordering::Relaxed);
    if physical != u64::MAX && address.wrapping_sub(DIRECT) < DIRECT_LEN {
        let offset = (address - DIRECT).wrapping_sub(physical);
        return (offset < len).then_some(offset);
    }
    // SAFETY: called for the access that QEMU tells of.
    unsafe {
        let found = api::qemu_plugin_get_hwaddr(info, address);
        if found.is_null() || api::qemu_plugin_hwaddr_is_io(found) {
            return None;
        }
        let ram = api::qemu_plugin_hwaddr_phys_addr(found);
        let offset = ram.wrapping_sub(RAM.load(Ordering::Relaxed));
        (offset < len).then_some(offset)
    }
}

unsafe extern "C" fn after_load(
    _processor: u32,
    info: AccessInfo,
    address: u64,
    data: *mut c_void,
) {
    // SAFETY: QEMU's own number.
    if unsafe { api::qemu_plugin_mem_is_store(info) } {
        return;
    }
    let Some(offset) = place(info, address) else {
        return;
    };
    // SAFETY: QEMU's own number.
    let len = 1 << unsafe { api::qemu_plugin_mem_size_shift(info) };
    with(|state| {
        state.remember_page(address, offset);
        state.loaded(offset, len, data as u64);
    });
}

unsafe extern "C" fn after_store(
    processor: u32,
    info: AccessInfo,
    address: u64,
    data: *mut c_void,
) {
    // SAFETY: the data is a site.
    let site: &'static Site = unsafe { &*data.cast::<Site>() };
    // SAFETY: QEMU's own numbers.
    let (is_store, shift) = unsafe {
        (
            api::qemu_plugin_mem_is_store(info),
            api::qemu_plugin_mem_size_shift(info),
        )
    };
    if !is_store {
        return;
    }
    match place(info, address) {
        Some(offset) => with(|state| {
            state.remember_page(address, offset);
            state.stored(site, processor, offset, 1 << shift);
        }),
        None if site.elsewhere.is_some() => with(|state| state.fenced(site, processor)),
        None => {}
    }
}

/// Passes on where the state of the processor is: while translated code runs, RBP points to it.
#[unsafe(naked)]
unsafe extern "C" fn before_order(_processor: u32, _data: *mut c_void) {
    core::arch::naked_asm!("mov rdx, rbp", "jmp {ordered}", ordered = sym ordered)
}

unsafe extern "C" fn ordered(processor: u32, data: *mut c_void, state: *mut u64) {
    // SAFETY: the data is a site.
    let site: &'static Site = unsafe { &*data.cast::<Site>() };
    PROCESSOR.store(state, Ordering::Relaxed);
    with(|own| own.ordered(site, processor, Processor(state)));
}

#[unsafe(naked)]
unsafe extern "C" fn copy_before(_processor: u32, _data: *mut c_void) {
    core::arch::naked_asm!("mov rdx, rbp", "jmp {copy}", copy = sym copy)
}

unsafe extern "C" fn copy(_processor: u32, _data: *mut c_void, state: *mut u64) {
    PROCESSOR.store(state, Ordering::Relaxed);
    with(|own| own.copied = Processor(state).registers());
}

unsafe extern "C" fn copy_at_access(
    _processor: u32,
    _info: AccessInfo,
    _address: u64,
    _data: *mut c_void,
) {
    // An access of a function of QEMU does not come from translated code, so the state is the one that was seen before.
    let state = PROCESSOR.load(Ordering::Relaxed);
    with(|own| own.copied = Processor(state).registers());
}

/// What the persistent memory holds.
fn content<'a>(offset: u64, len: u64) -> &'a [u8] {
    let len = len.min(LEN.load(Ordering::Relaxed) - offset);
    let memory = MEMORY.load(Ordering::Relaxed);
    // SAFETY: inside of the mapping, which stays.
    unsafe { core::slice::from_raw_parts(memory.add(offset as usize), len as usize) }
}

impl State {
    fn frame(&mut self, kind: FrameKind, payload: &[&[u8]]) {
        let len: usize = payload.iter().map(|part| part.len()).sum();
        self.buffer.extend_from_slice(&head(kind, len as u32));
        for part in payload {
            self.buffer.extend_from_slice(part);
        }
        let padded = self.buffer.len().next_multiple_of(8);
        self.buffer.resize(padded, 0);
        if self.buffer.len() >= BUFFER {
            self.write();
        }
    }

    fn write(&mut self) {
        if self.log.write_all(&self.buffer).is_err() {
            eprintln!("powerfail: the log of events cannot be written");
            std::process::exit(1);
        }
        self.buffer.clear();
    }

    fn event(&mut self, kind: EventKind, site: &Site, processor: u32, at: Option<(u64, &[u8])>) {
        let number = self.number(site.address);
        let value = at.map_or(&[][..], |(_, value)| value);
        let header = Header {
            kind,
            flags: if at.is_some() { FLAG_ADDRESS } else { 0 },
            value_len: value.len() as u16,
            site: SiteId(number),
        };
        self.sequence += 1;
        let words = [
            u64::from(processor),
            header.word(),
            self.sequence,
            at.map_or(0, |(offset, _)| offset),
        ]
        .map(u64::to_le_bytes);
        let used = if at.is_some() { 4 } else { 3 };
        let padding = value.len().next_multiple_of(8) - value.len();
        self.frame(
            FrameKind::Event,
            &[words[..used].as_flattened(), value, &[0; 8][..padding]],
        );
    }

    /// A call stored where it returns to. All calls that were made below that place have returned.
    fn called(&mut self, place: u64, returns_to: u64) {
        let calls = self.calls.entry(place >> STACK_BITS).or_default();
        while calls.pop_if(|(below, _)| *below <= place).is_some() {}
        calls.push((place, returns_to));
    }

    /// The number of the call stack at an address of code, which the log has from then on.
    fn number(&mut self, address: u64) -> u32 {
        let mut stack = core::mem::take(&mut self.stack);
        stack.clear();
        stack.push(address);
        let rsp = Processor(PROCESSOR.load(Ordering::Relaxed)).registers()[RSP];
        if address >= KERNEL
            && let Some(calls) = self.calls.get(&(rsp >> STACK_BITS))
        {
            let live = calls.iter().rev().filter(|(place, _)| *place >= rsp);
            stack.extend(live.map(|(_, returns_to)| *returns_to).take(DEPTH_MAX));
        }
        let number = match self.numbers.get(&stack) {
            Some(number) => *number,
            None => {
                let number = self.numbers.len() as u32;
                self.numbers.insert(stack.clone(), number);
                let words: Vec<[u8; 8]> = core::iter::once(u64::from(number))
                    .chain(stack.iter().copied())
                    .map(u64::to_le_bytes)
                    .collect();
                self.frame(FrameKind::Stack, &[words.as_flattened()]);
                number
            }
        };
        self.stack = stack;
        number
    }

    fn pending(&mut self, processor: u32) -> &mut bool {
        let index = processor as usize;
        if index >= self.pending.len() {
            self.pending.resize(index + 1, false);
        }
        &mut self.pending[index]
    }

    /// Remembers where a page of user memory is: a flush of it is no access, so it cannot be looked up.
    fn remember_page(&mut self, address: u64, offset: u64) {
        if address.wrapping_sub(DIRECT) < DIRECT_LEN {
            return;
        }
        if self.pages.len() > PAGES_MAX {
            self.pages.clear();
        }
        let page = offset.wrapping_sub(address % PAGE);
        self.pages.insert(address / PAGE, page);
    }

    fn loaded(&mut self, offset: u64, len: u64, code: u64) {
        if offset >= MARKS.load(Ordering::Relaxed) {
            self.loaded.fill(0);
            let words = [offset, code].map(u64::to_le_bytes);
            self.frame(FrameKind::Load, &[words.as_flattened()]);
            return self.write();
        }
        for line in offset / LINE..=(offset + len - 1) / LINE {
            let Some(word) = self.loaded.get_mut((line / 64) as usize) else {
                return;
            };
            if *word & 1 << (line % 64) == 0 {
                *word |= 1 << (line % 64);
                let words = [line * LINE, code].map(u64::to_le_bytes);
                self.frame(FrameKind::Load, &[words.as_flattened()]);
            }
        }
    }

    fn stored(&mut self, site: &'static Site, processor: u32, offset: u64, len: u64) {
        let bytes = content(offset, len);
        if let Some((pieces, of)) = &mut self.pieces {
            if *of == processor && pieces.add(site, offset, bytes) {
                if pieces.are_complete() {
                    self.finish_pieces();
                }
                return;
            }
            self.finish_pieces();
        }
        let pieces = Pieces::new(site, offset, bytes);
        let are_complete = pieces.are_complete();
        self.pieces = Some((pieces, processor));
        if are_complete {
            self.finish_pieces();
        }
    }

    fn finish_pieces(&mut self) {
        let Some((pieces, processor)) = self.pieces.take() else {
            return;
        };
        let kind = pieces.site.kind;
        match kind {
            EventKind::StoreLocked => *self.pending(processor) = false,
            EventKind::StoreNonTemporal => *self.pending(processor) = true,
            _ => {}
        }
        let at = Some((pieces.start, &pieces.bytes[..]));
        self.event(kind, pieces.site, processor, at);
        if pieces.start >= MARKS.load(Ordering::Relaxed) {
            self.write();
        }
    }

    /// A locked operation on other memory.
    fn fenced(&mut self, site: &'static Site, processor: u32) {
        self.finish_pieces();
        if core::mem::take(self.pending(processor)) {
            let kind = site.elsewhere.unwrap_or(EventKind::FenceLocked);
            self.event(kind, site, processor, None);
        }
    }

    fn ordered(&mut self, site: &'static Site, processor: u32, registers: Processor) {
        self.finish_pieces();
        if matches!(site.kind, EventKind::Sfence | EventKind::Mfence) {
            if core::mem::take(self.pending(processor)) {
                self.event(site.kind, site, processor, None);
            }
            return;
        }
        let values = match &site.plan {
            None => registers.registers().map(Some),
            // Memory of the machine is not read: a register that was loaded is unknown.
            Some(plan) => plan.run(self.copied, |_, _| None),
        };
        let Some(address) = registers::address(&site.instruction, &values) else {
            let code = site.address.to_le_bytes();
            return self.frame(FrameKind::UnknownFlush, &[&code]);
        };
        let physical = PHYSICAL.load(Ordering::Relaxed);
        let offset = if address.wrapping_sub(DIRECT) < DIRECT_LEN {
            (address - DIRECT).wrapping_sub(physical)
        } else {
            let page = self.pages.get(&(address / PAGE));
            page.map_or(u64::MAX, |page| page + address % PAGE)
        };
        if offset < LEN.load(Ordering::Relaxed) {
            *self.pending(processor) |= site.kind != EventKind::Clflush;
            self.event(site.kind, site, processor, Some((offset, &[])));
        }
    }
}
