//! Stores that have no trampoline: at their fault they are run on a buffer of the thread.
//!
//! The handler puts the address of the buffer into a register and sends the thread to a copy of the
//! instruction that is followed by a breakpoint; there the next handler finds in the buffer what would
//! have been written, records it and writes it through the alias. Between the two the thread has all
//! signals but ours blocked, so no handler of the target sees it there. See [`Redirected`].
//!
//! # Safety
//!
//! Called by handlers, on the thread that has faulted: state and buffers are private to it, and the instruction was
//! executed, so its operands are what the processor has used. The alias of a pool is as long as the pool.
#![allow(unsafe_code, reason = "runs stores of the target on a buffer")]

use std::collections::BTreeMap;

use powerfail_patch::Redirected;
use powerfail_protocol::{MAX_VALUE_LEN, SiteId};

use crate::host;
use crate::platform::frame::{Frame, Greg};
use crate::platform::signals::OURS;
use crate::platform::sys;
use crate::record::thread_private::{self, Running};
use crate::record::window::window;
use crate::record::{append, call_stacks, schedule, threads};

/// An instruction that is run on a buffer.
#[derive(Clone, Copy)]
pub(crate) struct Emulated {
    pub(crate) site: u64,
    pub(crate) id: SiteId,
    pub(crate) redirected: Redirected,
    /// Where its copy is, and how long that is without its breakpoint. Zero if it needs none.
    pub(crate) copy: (u64, u64),
}

/// All of them, by address, and by the address of the copy.
#[derive(Default)]
pub(crate) struct EmulatedSites {
    by_site: BTreeMap<u64, Emulated>,
    by_copy: BTreeMap<u64, u64>,
}

impl EmulatedSites {
    pub(crate) fn add(&mut self, emulated: Emulated) {
        self.by_site.insert(emulated.site, emulated);
        if emulated.copy.0 != 0 {
            self.by_copy.insert(emulated.copy.0, emulated.site);
        }
    }

    pub(crate) fn at(&self, site: u64) -> Option<Emulated> {
        self.by_site.get(&site).copied()
    }

    /// The one in whose copy, or at whose breakpoint, an address is.
    pub(crate) fn with_copy_at(&self, address: u64) -> Option<Emulated> {
        let (start, site) = self.by_copy.range(..=address).next_back()?;
        let emulated = self.at(*site)?;
        (address - start <= emulated.copy.1).then_some(emulated)
    }

    pub(crate) fn forget(&mut self, from: u64, to: u64) {
        self.by_site.retain(|site, _| !(from..to).contains(site));
        self.by_copy.retain(|_, site| !(from..to).contains(site));
    }
}

/// How much an instruction writes at most.
fn len_of(redirected: &Redirected) -> usize {
    match redirected.len_bytes {
        0 => crate::record::sites::xsave_len() as usize,
        len => len,
    }
}

/// At the fault: prepares the first run.
pub(crate) fn begin(frame: &Frame, emulated: &Emulated) {
    schedule::step();
    let redirected = &emulated.redirected;
    let address = redirected.address(|number| frame.register(number), sys::fs());
    let len = len_of(redirected);
    let last = address.wrapping_add(len as u64 - 1);
    if !window().contains(address) || !window().contains(last) || len > thread_private::BUFFER_LEN {
        host::fatal(&format!(
            "the instruction at {:#x} stores across the end of the address range of pools",
            emulated.site
        ));
    }
    if redirected.writes_zeros() {
        const LINE: usize = 64;
        call_stacks::set_origin(emulated.site, frame);
        write(emulated, address, &[0; LINE], None);
        call_stacks::clear_origin();
        frame.set(Greg::Rip, redirected.next_address());
        return;
    }
    let (Some(own), Some(buffer)) = (thread_private::own(), thread_private::buffer(false)) else {
        host::fatal("a thread that is not recorded stored to a pool")
    };
    // SAFETY: state and buffer are this thread's; the length was checked.
    unsafe {
        core::ptr::write_bytes(buffer, 0, len);
        (*own).running = Running {
            site: emulated.site,
            address,
            pointer: frame.register(redirected.pointer()),
            mask: frame.signal_mask(),
            again: false,
        };
    }
    frame.set_register(redirected.pointer(), buffer as u64);
    frame.set_signal_mask(!OURS);
    frame.set(Greg::Rip, emulated.copy.0);
}

/// At the breakpoint behind the copy: prepares the second run, or records and writes.
pub(crate) fn go_on(frame: &Frame, emulated: &Emulated) {
    let redirected = &emulated.redirected;
    let len = len_of(redirected);
    let (Some(own), Some(zeros), Some(ones)) = (
        thread_private::own(),
        thread_private::buffer(false),
        thread_private::buffer(true),
    ) else {
        return;
    };
    // SAFETY: state and buffers are this thread's, and long enough: `begin` has checked.
    unsafe {
        let running = (*own).running;
        if redirected.is_masked && !running.again {
            core::ptr::write_bytes(ones, u8::MAX, len);
            (*own).running.again = true;
            frame.set_register(redirected.pointer(), ones as u64);
            frame.set(Greg::Rip, emulated.copy.0);
            return;
        }
        let zeros = core::slice::from_raw_parts(zeros, len);
        let ones = core::slice::from_raw_parts(ones, len);
        let ones = redirected.is_masked.then_some(ones);
        call_stacks::set_origin(emulated.site, frame);
        write(emulated, running.address, zeros, ones);
        call_stacks::clear_origin();
        end(frame, emulated);
    }
    frame.set(Greg::Rip, redirected.next_address());
}

/// Gives the target its register and its mask back.
fn end(frame: &Frame, emulated: &Emulated) {
    let Some(own) = thread_private::own() else {
        return;
    };
    // SAFETY: the state is this thread's.
    let running = unsafe {
        let running = (*own).running;
        (*own).running.site = 0;
        running
    };
    frame.set_register(emulated.redirected.pointer(), running.pointer);
    frame.set_signal_mask(running.mask);
}

/// The copy faulted, as the instruction itself would have: on what it reads.
pub(crate) fn undo(frame: &Frame, emulated: &Emulated) {
    end(frame, emulated);
    frame.set(Greg::Rip, emulated.site);
}

/// Records what an instruction writes and writes it, one run of bytes after the other.
fn write(emulated: &Emulated, address: u64, zeros: &[u8], ones: Option<&[u8]>) {
    let is_written = |at: usize| ones.is_none_or(|ones| zeros[at] ^ ones[at] != u8::MAX);
    let kind = emulated.redirected.kind;
    if kind == powerfail_protocol::EventKind::StoreNonTemporal
        && let Some(block) = threads::block()
    {
        // SAFETY: the block is this thread's.
        unsafe { (*block).pending = 1 };
    }
    let mut from = 0;
    while from < zeros.len() {
        if !is_written(from) {
            from += 1;
            continue;
        }
        let end = zeros.len().min(from + usize::from(MAX_VALUE_LEN));
        let to = (from..end).find(|at| !is_written(*at)).unwrap_or(end);
        let place = address + from as u64;
        append::store_with(emulated.id, kind, place, to - from, |found, new| {
            for (at, byte) in (from..to).zip(new) {
                *byte = match ones {
                    Some(ones) => found[at - from] & ones[at] | zeros[at],
                    None => zeros[at],
                };
            }
        });
        from = to;
    }
}
