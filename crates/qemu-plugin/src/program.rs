//! A program under `qemu-x86_64`: what happens at its instructions.
//!
//! Every callback runs on the thread of the target that it is about, which has the turn ([`crate::turn`]).
//!
//! # Safety
//!
//! QEMU calls these functions with what was registered: data is a site, which lives forever. The state of a thread is reached
//! only from that thread, and no callback of it is interrupted by another: QEMU does not deliver signals in between.
#![allow(unsafe_code, reason = "called by QEMU")]

use core::cell::Cell;
use core::ffi::c_void;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use powerfail_protocol::EventKind;

use crate::api::{self, AccessInfo, Block, PluginId};
use crate::files::{self, Pending};
use crate::host::{self, Appender};
use crate::pieces::Pieces;
use crate::registers::{self, COUNT, Processor, RBP, RSP};
use crate::stacks::Stacks;
use crate::system_calls::{self, Call};
use crate::translate::{self, Callbacks, Site};
use crate::turn::{self, Turn};
use crate::{memory, modules, pools};

/// A thread of the target.
pub(crate) struct Thread {
    pub(crate) turn: Turn,
    pub(crate) processor: Processor,
    pub(crate) appender: Appender,
    pub(crate) stacks: Stacks,
    /// Whether a flush or a non-temporal store waits for a fence.
    is_pending: bool,
    /// A store of which more pieces may come, and its call stack.
    pieces: Option<(Pieces, u32)>,
    /// Registers that a plan begins with.
    copied: [u64; COUNT],
    /// The system call that it makes.
    pub(crate) call: Option<Call>,
    /// What it is about to do to a file of a tree, under the lock.
    pub(crate) file_call: Option<Pending>,
}

thread_local! {
    static THREAD: Cell<*mut Thread> = const { Cell::new(core::ptr::null_mut()) };
}

const CALLBACKS: Callbacks = Callbacks {
    block: Some(enter_block),
    store: Some(after_store),
    load: None,
    call: None,
    order: before_order,
    copy_at_access,
    copy_before,
};

/// Watches a program.
///
/// # Safety
/// Called by QEMU when it installs the plugin.
pub(crate) unsafe fn install(id: PluginId) {
    host::say_hello();
    // SAFETY: QEMU gave this id to this plugin, and the functions have the signatures of their kinds.
    unsafe {
        api::qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
        api::qemu_plugin_register_vcpu_syscall_cb(id, before_call);
        api::qemu_plugin_register_vcpu_syscall_ret_cb(id, after_call);
    }
}

unsafe extern "C" fn translated(_id: PluginId, block: *mut Block) {
    // SAFETY: QEMU gives the block.
    unsafe { translate::look_at(block, &CALLBACKS) }
}

/// Passes on where the state of the processor is: while translated code runs, RBP points to it.
#[unsafe(naked)]
unsafe extern "C" fn enter_block(_processor: u32, _data: *mut c_void) {
    core::arch::naked_asm!("mov rdx, rbp", "jmp {entered}", entered = sym entered_block)
}

unsafe extern "C" fn entered_block(_index: u32, _data: *mut c_void, state: *const u64) {
    let thread = THREAD.get();
    if thread.is_null() {
        return begin_thread(Processor(state));
    }
    // SAFETY: the state of this thread.
    let thread = unsafe { &mut *thread };
    if !thread.turn.is_mine() {
        thread.turn.take();
    } else if thread.turn.is_over() {
        thread.finish_pieces();
        thread.turn.pass();
    }
}

#[cold]
fn begin_thread(processor: Processor) {
    let id = unsafe { libc::gettid() }.cast_unsigned();
    let mut turn = Turn::new(id);
    turn.take();
    let is_first = std::process::id() == id;
    if is_first {
        begin_program(processor);
    }
    let thread = Thread {
        turn,
        processor,
        appender: Appender::new(None),
        stacks: Stacks::default(),
        is_pending: false,
        pieces: None,
        copied: [0; COUNT],
        call: None,
        file_call: None,
    };
    THREAD.set(Box::into_raw(Box::new(thread)));
}

/// The first instruction of the program is about to be executed.
fn begin_program(processor: Processor) {
    // SAFETY: QEMU allocates the path for the caller.
    let (path, code) = unsafe {
        let path = api::qemu_plugin_path_to_binary();
        let text = if path.is_null() {
            Vec::new()
        } else {
            core::ffi::CStr::from_ptr(path).to_bytes().to_vec()
        };
        (text, api::qemu_plugin_start_code())
    };
    let path = PathBuf::from(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(&path));
    let path = path.canonicalize().unwrap_or(path);
    let start = modules::add(&path, code, None);
    if let Some(base) = start.and_then(|start| distance_of(&path, start)) {
        memory::set_base(base);
    }
    // A program begins with the number of its arguments on its stack, and a list of them behind it.
    let rsp = processor.registers()[RSP];
    let count = memory::number(rsp, 8);
    let ends = count
        .filter(|count| (1..1 << 20).contains(count) && memory::number(rsp + 8, 8) != Some(0))
        .and_then(|count| memory::number(rsp + 8 + 8 * count, 8));
    if ends != Some(0) {
        host::fatal(
            "this version of QEMU keeps the registers of the program where powerfail does not find them; powerfail is \
             tested with QEMU 7.2",
        );
    }
}

/// How far the memory of the target is from where this process sees it: the first page of its program is at a known place in
/// both. Other pages of a file may be mapped twice.
fn distance_of(path: &std::path::Path, start: u64) -> Option<u64> {
    let inode = std::fs::metadata(path).ok()?.ino();
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let seen_at = maps.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (start, _) = words.next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let offset = number(words.nth(1)?)?;
        let is_it = offset == 0 && words.nth(1)?.parse() == Ok(inode);
        is_it.then(|| number(start))?
    });
    Some(seen_at?.wrapping_sub(start))
}

fn thread<'a>() -> Option<&'a mut Thread> {
    // SAFETY: the state of this thread; no other reference to it is alive when QEMU calls.
    unsafe { THREAD.get().as_mut() }
}

unsafe extern "C" fn copy_before(_index: u32, _data: *mut c_void) {
    if let Some(thread) = thread() {
        thread.copied = thread.processor.registers();
    }
}

unsafe extern "C" fn copy_at_access(_index: u32, _info: AccessInfo, _address: u64, _: *mut c_void) {
    if let Some(thread) = thread() {
        thread.copied = thread.processor.registers();
    }
}

unsafe extern "C" fn after_store(_index: u32, info: AccessInfo, address: u64, data: *mut c_void) {
    // SAFETY: the data is a site.
    let site: &'static Site = unsafe { &*data.cast::<Site>() };
    if !pools::may_have(address) && site.elsewhere.is_none() {
        return;
    }
    // SAFETY: QEMU's own numbers. It also tells of what an instruction loads that stores.
    let (is_store, shift) = unsafe {
        (
            api::qemu_plugin_mem_is_store(info),
            api::qemu_plugin_mem_size_shift(info),
        )
    };
    if is_store && let Some(thread) = thread() {
        thread.stored(site, address, 1 << shift);
    }
}

unsafe extern "C" fn before_order(_index: u32, data: *mut c_void) {
    if !pools::are_any() {
        return;
    }
    // SAFETY: the data is a site.
    let site: &'static Site = unsafe { &*data.cast::<Site>() };
    if let Some(thread) = thread() {
        thread.ordered(site);
    }
}

unsafe extern "C" fn before_call(
    _id: PluginId,
    _index: u32,
    number: i64,
    first: u64,
    second: u64,
    third: u64,
    fourth: u64,
    fifth: u64,
    sixth: u64,
    _seventh: u64,
    _eighth: u64,
) {
    let Some(thread) = thread() else { return };
    thread.finish_pieces();
    let call = Call {
        number,
        arguments: [first, second, third, fourth, fifth, sixth],
    };
    thread.call = Some(call);
    if !files::before(thread, call) && system_calls::before(thread, call) {
        thread.turn.give();
    }
    if system_calls::ends_thread(number) {
        let ended = THREAD.replace(core::ptr::null_mut());
        // SAFETY: made by `begin_thread`, and reached from nowhere else now.
        let ended = unsafe { Box::from_raw(ended) };
        ended.appender.end();
        ended.turn.give();
    }
}

unsafe extern "C" fn after_call(_id: PluginId, _index: u32, _number: i64, result: i64) {
    let Some(thread) = thread() else { return };
    let Some(call) = thread.call.take() else {
        return;
    };
    if result == 0 && system_calls::makes_process(call) {
        return begin_process(thread);
    }
    if !thread.turn.is_mine() {
        thread.turn.take();
    }
    if !files::after(thread, call, result) {
        system_calls::after(thread, call, result);
    }
}

/// In the child after fork, which has one thread.
fn begin_process(thread: &mut Thread) {
    // SAFETY: plain system calls.
    let (id, parent) = unsafe { (libc::gettid(), libc::getppid()) };
    turn::reset_after_fork(id.cast_unsigned());
    thread.turn = Turn::new(id.cast_unsigned());
    // That of the parent stays with the parent.
    thread.appender = Appender::new(Some(parent.cast_unsigned()));
}

impl Thread {
    /// The registers that a call stack begins with.
    pub(crate) fn frame(&self) -> (u64, u64) {
        let registers = self.processor.registers();
        (registers[RSP], registers[RBP])
    }

    /// The number of the call stack of a system call.
    pub(crate) fn stack_of_call(&mut self) -> u32 {
        const SYSCALL: u64 = 0x050f;
        // Behind the general registers.
        let next = unsafe { self.processor.0.add(COUNT).read_volatile() };
        let before = next.wrapping_sub(2);
        let address = if memory::number(before, 2) == Some(SYSCALL) {
            before
        } else {
            next
        };
        let frame = host::wants_stacks().then(|| self.frame());
        self.stacks.number_at(address, 2, frame)
    }

    fn stored(&mut self, site: &'static Site, address: u64, len: u64) {
        if !self.turn.is_mine() {
            self.turn.take();
        }
        let Some(inside) = pools::covered(address, len) else {
            return self.fenced_elsewhere(site);
        };
        // SAFETY: just stored there, to a pool that is mapped.
        let bytes = unsafe { memory::bytes(address, inside as usize) };
        if let Some((pieces, _)) = &mut self.pieces {
            if pieces.add(site, address, bytes) {
                if pieces.are_complete() {
                    self.finish_pieces();
                }
                return;
            }
            self.finish_pieces();
        }
        let stack = self.stacks.number(site, Some(self.frame()));
        let pieces = Pieces::new(site, address, bytes);
        let are_complete = pieces.are_complete();
        self.pieces = Some((pieces, stack));
        if are_complete {
            self.finish_pieces();
        }
    }

    /// Records a store all of whose pieces have come.
    pub(crate) fn finish_pieces(&mut self) {
        let Some((pieces, stack)) = self.pieces.take() else {
            return;
        };
        let (site, address, bytes) = (pieces.site, pieces.start, &pieces.bytes[..]);
        let mut kind = site.kind;
        if kind == EventKind::StoreLocked {
            let exchange = registers::exchanged(&site.instruction);
            let registers = self.processor.registers();
            // One that fails leaves what it found.
            if exchange.is_some_and(|it| registers::exchange_bytes(it, &registers) != bytes) {
                kind = EventKind::FenceLocked;
            }
            self.is_pending = false;
        }
        self.is_pending |= kind == EventKind::StoreNonTemporal;
        if kind == EventKind::FenceLocked {
            self.appender.append(kind, stack, None, &[]);
        } else {
            self.appender.append(kind, stack, Some(address), &[bytes]);
        }
    }

    /// A locked operation on other memory: a fence, which is recorded if something waits for it.
    fn fenced_elsewhere(&mut self, site: &'static Site) {
        let Some(kind) = site.elsewhere else { return };
        if !pools::are_any() || kind == EventKind::FenceLocked && !self.is_pending {
            return;
        }
        self.finish_pieces();
        let stack = self.stacks.number(site, Some(self.frame()));
        self.is_pending = false;
        self.appender.append(kind, stack, None, &[]);
    }

    /// A flush or a fence is about to be executed.
    fn ordered(&mut self, site: &'static Site) {
        if !self.turn.is_mine() {
            self.turn.take();
        }
        self.finish_pieces();
        let values = match &site.plan {
            None => self.processor.registers().map(Some),
            Some(plan) => plan.run(self.copied, memory::number),
        };
        let frame = values[RSP].zip(values[RBP]);
        let is_fence = matches!(site.kind, EventKind::Sfence | EventKind::Mfence);
        if is_fence {
            self.is_pending = false;
            let stack = self.stacks.number(site, frame);
            return self.appender.append(site.kind, stack, None, &[]);
        }
        let Some(address) = registers::address(&site.instruction, &values) else {
            host::fatal(&format!(
                "the address of the flush at {:#x} cannot be found out under QEMU: it is computed by an instruction just before \
                 it that powerfail does not follow",
                site.address
            ));
        };
        // Flushes of other memory are recorded, too: they are of no use.
        let stack = self.stacks.number(site, frame);
        self.is_pending |= site.kind != EventKind::Clflush;
        self.appender.append(site.kind, stack, Some(address), &[]);
    }
}
