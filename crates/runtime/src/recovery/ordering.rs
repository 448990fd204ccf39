//! What orders stores, for the log: flushes, fences and locked operations.
//!
//! They do not fault, so they get breakpoints, in the snapshot, when it is asked to log. An execution that is not logged
//! has none: a recovery can make a thousand locked operations on memory of its own. A flush or
//! a fence has no effect that the recovery could see, and is left out. Of a locked operation a copy is run, or the
//! operation itself alone if it cannot be copied.
//! Locked operations of the C library are not seen: it does some with all signals blocked, where a
//! breakpoint would end the process. So the log may have fewer fences than there were, never more.
//!
//! # Safety
//!
//! Code is that of loaded modules. Breakpoints are put into it in the snapshot, where no other thread runs, and
//! taken out for one step by the thread that has the turn.
#![allow(unsafe_code, reason = "reads and restores code")]

use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::BTreeMap;

use iced_x86::{Instruction, Mnemonic};
use powerfail_patch::{Action, Classifier};
use powerfail_protocol::explore::{LogKind, flag};

use crate::patching::{code, modules};
use crate::platform::frame::{Frame, Greg};
use crate::platform::lock::Lock;

use super::{access, hot_sites, state, step, turn};

/// A place where a breakpoint stands while executions are logged.
struct Place {
    /// The instruction that it is for: that at the place, or one that has its trampoline there.
    site: u64,
    /// The byte that it replaces.
    byte: u8,
}

/// These places, by address. They stay when the breakpoints go: memory of ours is never given back.
static SITES: Lock<BTreeMap<u64, Place>> = Lock::new(BTreeMap::new());
/// Whether the breakpoints stand.
static STAND: AtomicBool = AtomicBool::new(false);
/// Copies of locked operations, by the addresses of their breakpoints.
static COPIES: Lock<BTreeMap<u64, u64>> = Lock::new(BTreeMap::new());

/// A module in which breakpoints stand.
struct Prepared {
    range: (u64, u64),
    is_loaded: bool,
}

/// Memory of ours is never given back, and searching a library takes longer than a recovery: the snapshot does it once.
static PREPARED: Lock<Vec<Prepared>> = Lock::new(Vec::new());

/// In a copy of the recovery that it has made itself.
pub(super) fn reset_after_fork() {
    SITES.reset_after_fork();
    COPIES.reset_after_fork();
    PREPARED.reset_after_fork();
}

/// What a flush is called in the log.
pub(super) fn flush_kind(instruction: &Instruction) -> LogKind {
    if instruction.mnemonic() == Mnemonic::Clflush {
        LogKind::Flush
    } else {
        LogKind::FlushOptimized
    }
}

/// Whether an instruction stores past the cache.
pub(super) fn is_non_temporal(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Movnti
            | Mnemonic::Movntq
            | Mnemonic::Movntps
            | Mnemonic::Movntpd
            | Mnemonic::Movntdq
            | Mnemonic::Vmovntps
            | Mnemonic::Vmovntpd
            | Mnemonic::Vmovntdq
            | Mnemonic::Maskmovq
            | Mnemonic::Maskmovdqu
            | Mnemonic::Vmaskmovdqu
            | Mnemonic::Movdiri
            | Mnemonic::Movdir64b
            | Mnemonic::Clzero
    )
}

/// Puts the breakpoints, if an execution is to log and they are not there, or takes them away. In the snapshot, or wherever
/// code was loaded.
pub(super) fn prepare() {
    if !super::has_flag(flag::LOG) {
        if STAND.swap(false, Ordering::Relaxed) {
            SITES.with(|sites| {
                code::set_first_bytes(sites.iter().map(|(at, place)| (*at, place.byte)));
            });
            code::reset_after_fork();
        }
        return;
    }
    if !STAND.swap(true, Ordering::Relaxed) {
        put_back();
    }
    PREPARED.with(|prepared| prepared.iter_mut().for_each(|it| it.is_loaded = false));
    let mut classifier = None;
    modules::for_each(|module| {
        if is_prepared(module.range()) {
            return;
        }
        let classifier = classifier.get_or_insert_with(Classifier::new);
        let is_system = module.is_of_the_system();
        for (from, to) in super::load_stacks::functions_of(module) {
            // SAFETY: functions of loaded modules are readable.
            let bytes = unsafe { code::view(from, to - from) };
            if !crate::record::sites::may_have_silent_sites(bytes) {
                continue;
            }
            let mut bytes = bytes.to_vec();
            hot_sites::restore(from, &mut bytes);
            // A breakpoint hides the first byte of its instruction, and what is behind a prefix looks like
            // another one.
            restore(from, &mut bytes);
            classifier.scan(&bytes, from, |scanned| {
                let Some(site) = scanned.silent else { return };
                // These matter to no log: they run as they are.
                if site.action == Action::Request {
                    return;
                }
                let is_locked = matches!(site.action, Action::Store(_));
                if is_system && is_locked {
                    return;
                }
                put(site.address(), site.bytes[0]);
                if is_locked {
                    copy(&site.instruction);
                }
            });
        }
    });
    forget_unloaded();
    code::reset_after_fork();
}

/// Puts the breakpoints back that were taken away.
fn put_back() {
    // An instruction that got a trampoline meanwhile is entered there. No other thread waits for these locks: only a
    // snapshot takes breakpoints away.
    let moved = SITES.with(|sites| {
        let is_moved = |(at, place): &(&u64, &Place)| place_of(place.site) != **at;
        let moved = sites.iter().filter(is_moved);
        moved
            .map(|(at, place)| (*at, place.site))
            .collect::<Vec<_>>()
    });
    SITES.with(|sites| {
        for (at, _) in &moved {
            sites.remove(at);
        }
        code::set_first_bytes(sites.keys().map(|at| (*at, code::BREAKPOINT)));
    });
    for (_, site) in moved {
        // SAFETY: an instruction of a loaded module, whose trampoline is there, so that this byte is not used.
        put(site, unsafe { code::view(site, 1)[0] });
    }
}

/// Whether a module that is loaded has its breakpoints, which it gets now otherwise.
fn is_prepared(range: (u64, u64)) -> bool {
    PREPARED.with(|prepared| {
        let known = prepared.iter_mut().find(|it| it.range == range);
        let is_known = known.is_some();
        match known {
            Some(known) => known.is_loaded = true,
            None => prepared.push(Prepared {
                range,
                is_loaded: true,
            }),
        }
        is_known
    })
}

/// What was unloaded has no breakpoints any more; what is loaded there later gets its own.
fn forget_unloaded() {
    PREPARED.with(|prepared| {
        for gone in prepared.iter().filter(|it| !it.is_loaded) {
            let (from, to) = gone.range;
            SITES.with(|sites| sites.retain(|at, _| !(from..to).contains(at)));
            COPIES.with(|copies| copies.retain(|at, _| !(from..to).contains(at)));
        }
        prepared.retain(|it| it.is_loaded);
    });
}

/// Where the breakpoint of an instruction is: if that was patched, at its trampoline.
fn place_of(site: u64) -> u64 {
    hot_sites::entry_of(site).unwrap_or(site)
}

/// Whether an instruction has a breakpoint.
pub(super) fn sees(site: u64) -> bool {
    stands_at(site) || stands_at(place_of(site))
}

/// Undoes what breakpoints have made of the bytes of code that lies at an address.
pub(super) fn restore(address: u64, bytes: &mut [u8]) {
    SITES.with(|sites| {
        for (at, place) in sites.range(address..address + bytes.len() as u64) {
            bytes[(at - address) as usize] = place.byte;
        }
    });
}

/// Whether a breakpoint stands at an address while executions are logged.
pub(super) fn stands_at(address: u64) -> bool {
    SITES.with(|sites| sites.contains_key(&address))
}

fn put(site: u64, byte: u8) {
    let address = place_of(site);
    let byte = if address == site {
        byte
    } else {
        // SAFETY: a trampoline of ours.
        unsafe { code::view(address, 1)[0] }
    };
    if sees(site) {
        return;
    }
    let place = Place { site, byte };
    let is_new = SITES.with(|sites| sites.insert(address, place).is_none());
    if is_new {
        code::replace(core::iter::once((address, &[code::BREAKPOINT][..])));
    }
}

/// Makes the copy of a locked operation, if its breakpoint is at its own address.
fn copy(instruction: &Instruction) {
    let address = instruction.ip();
    let is_needed = stands_at(address) && !COPIES.with(|copies| copies.contains_key(&address));
    if is_needed && let Some(place) = hot_sites::copy_of(instruction) {
        COPIES.with(|copies| copies.insert(address, place));
    }
}

/// Changes a byte of code while the recovery runs. The descriptor that this takes would be one that the
/// recovery does not expect, and a file that is open for writing, which forbids to branch.
fn write(address: u64, byte: u8) {
    code::replace(core::iter::once((address, &[byte][..])));
    code::reset_after_fork();
}

/// Whether a breakpoint is one of these; does what its instruction is for.
pub(super) fn at_breakpoint(frame: &Frame, address: u64) -> bool {
    let Some(byte) = SITES.with(|sites| sites.get(&address).map(|place| place.byte)) else {
        return false;
    };
    if step::runs_alone() {
        // The turn is taken by this thread, which would wait for itself.
        super::refuse(&format!(
            "the instruction at {address:#x} meets a breakpoint while it is single-stepped"
        ));
    }
    turn::enter();
    // SAFETY: the turn is ours.
    let state = unsafe { turn::state() };
    let instruction = decode(address, byte);
    if let Some(line) = access::flushed(&instruction, frame) {
        state.log_flush(flush_kind(&instruction), line, address);
    } else {
        state.log_fence(hot_sites::instruction_at(address));
        if !matches!(instruction.mnemonic(), Mnemonic::Sfence | Mnemonic::Mfence) {
            if let Some(place) = COPIES.with(|copies| copies.get(&address).copied()) {
                turn::leave();
                frame.set(Greg::Rip, place);
                return true;
            }
            write(address, byte);
            frame.set(Greg::Rip, address);
            state.step.forget_accesses();
            state.run_alone(frame, address);
            state.step.rearm = address;
            return true;
        }
    }
    turn::leave();
    frame.set(Greg::Rip, instruction.next_ip());
    true
}

/// The instruction whose first byte is replaced.
fn decode(address: u64, byte: u8) -> Instruction {
    const LEN_MAX: usize = 15;
    let mut bytes = [0; LEN_MAX];
    let in_page = (state::PAGE - address % state::PAGE).min(LEN_MAX as u64);
    // SAFETY: the page of an instruction that was executed is mapped; if it continues in the next one, that
    // is mapped, too, and else the bytes do not matter.
    let seen = unsafe { code::view(address, in_page) };
    bytes[..seen.len()].copy_from_slice(seen);
    bytes[0] = byte;
    let decode = |bytes: &[u8]| {
        iced_x86::Decoder::with_ip(64, bytes, address, iced_x86::DecoderOptions::NONE).decode()
    };
    let instruction = decode(&bytes[..seen.len()]);
    if !instruction.is_invalid() {
        return instruction;
    }
    // SAFETY: the instruction continues in the next page, which is mapped, because the instruction was executed.
    bytes.copy_from_slice(unsafe { code::view(address, LEN_MAX as u64) });
    bytes[0] = byte;
    decode(&bytes)
}

/// An instruction that had a breakpoint has run alone.
pub(super) fn rearm(address: u64) {
    if address != 0 {
        write(address, code::BREAKPOINT);
    }
}
