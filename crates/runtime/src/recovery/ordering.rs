//! What orders stores, for the log: flushes, fences and locked operations.
//!
//! They do not fault, so they get breakpoints, in the snapshot, when it is first asked to log. A flush or
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

use std::collections::BTreeMap;

use iced_x86::{Instruction, Mnemonic};
use powerfail_patch::{Action, Classifier};
use powerfail_protocol::explore::{LogKind, flag};

use crate::patching::{code, modules};
use crate::platform::frame::{Frame, Greg};
use crate::platform::lock::Lock;

use super::{access, hot_sites, state, step, turn};

/// Breakpoints, with the bytes that they replace.
static SITES: Lock<BTreeMap<u64, u8>> = Lock::new(BTreeMap::new());
/// Copies of locked operations, by the addresses of their breakpoints.
static COPIES: Lock<BTreeMap<u64, u64>> = Lock::new(BTreeMap::new());

/// In a copy of the recovery that it has made itself.
pub(super) fn reset_after_fork() {
    SITES.reset_after_fork();
    COPIES.reset_after_fork();
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

/// Puts the breakpoints, if an execution is to log and they are not there. In the snapshot, or wherever
/// code was loaded.
pub(super) fn prepare() {
    if !super::has_flag(flag::LOG) {
        return;
    }
    let mut classifier = Classifier::new();
    modules::for_each(|module| {
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
    code::reset_after_fork();
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
        for (at, byte) in sites.range(address..address + bytes.len() as u64) {
            bytes[(at - address) as usize] = *byte;
        }
    });
}

/// Whether a breakpoint stands at an address.
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
    let is_new = SITES.with(|sites| sites.insert(address, byte).is_none());
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
    let Some(byte) = SITES.with(|sites| sites.get(&address).copied()) else {
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
