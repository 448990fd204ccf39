//! Instructions that meet pages without rights while other threads run.
//!
//! A page that is shown for one instruction is shown to all threads, and what they store there in that moment is neither
//! seen nor logged. So where there are other threads, the page stays as it is: a copy of the instruction runs on the
//! truth, that is, where the content of the page is ([`Displaced`]). Its own registers lead it there, or one that it does not
//! use; it gets them back when the copy has run. What cannot be copied, as a call through a pointer in a pool, is still
//! shown its page, with a warning.
//!
//! A page that is only protected from being stored to unseen may have no other place. It is brought home first, and is
//! *crowded* from then on, like one that is mapped twice; and it never becomes the recovery's own again, because that
//! would show it for the time of copying it back.
//!
//! # Safety
//!
//! Callers have the turn. Code that was made for copies stays where it is, and is not changed after it was first run. Truth
//! and mappings of pages of pools are mapped.
#![allow(unsafe_code, reason = "maps files of pools once more")]

use std::collections::BTreeMap;

use iced_x86::Instruction;
use powerfail_patch::{Displaced, Pointers};

use crate::platform::frame::{Frame, Greg};
use crate::platform::lock::Lock;
use crate::platform::sys;

use super::pages::{copy, protect};
use super::state::{self, PAGE, State};
use super::{fork, hot_sites, registers};

/// A copy that was made.
#[derive(Clone, Copy)]
struct Copy {
    instruction: Instruction,
    start: u64,
    len: u64,
    pointers: Pointers,
}

/// By the address of the instruction.
static COPIES: Lock<BTreeMap<u64, Copy>> = Lock::new(BTreeMap::new());

/// In a copy that the recovery has made of itself.
pub(super) fn reset_after_fork() {
    COPIES.reset_after_fork();
}

/// An instruction whose copy runs.
#[derive(Clone, Copy)]
pub(super) struct Elsewhere {
    start: u64,
    end: u64,
    /// Where the instruction is, and what is behind it.
    address: u64,
    next: u64,
    registers: Lent,
}

/// What was done to registers for the time of a copy.
#[derive(Clone, Copy)]
enum Lent {
    /// This one had this value.
    Spare(u8, u64),
    /// These were shifted by so much.
    Shifted(&'static [u8], [u64; 2]),
}

impl State {
    /// Sends the recovery to a copy of an instruction, to run there alone. False if it has to run where it is, on pages that
    /// are shown.
    pub(super) fn send_elsewhere(&mut self, frame: &Frame, instruction: &Instruction) -> bool {
        if !self.has_company || self.meets_own_pages() {
            return false;
        }
        let Some(made) = copy_of(instruction) else {
            return false;
        };
        let registers = match made.pointers {
            Pointers::Spare(register) => {
                let Some(address) = self.place_of_operand(frame, instruction) else {
                    return false;
                };
                let before = frame.register(register);
                frame.set_register(register, address);
                Lent::Spare(register, before)
            }
            Pointers::Own(own) => {
                let len = instruction.memory_size().size() as u64;
                let mut distances = [0; 2];
                for (distance, register) in distances.iter_mut().zip(own) {
                    match self.distance_of(frame.register(*register), len.max(1)) {
                        Some(found) => *distance = found,
                        None => return false,
                    }
                }
                shift(frame, own, distances);
                Lent::Shifted(own, distances)
            }
        };
        frame.set(Greg::Rip, made.start);
        self.step.elsewhere = Some(Elsewhere {
            start: made.start,
            end: made.start + made.len,
            address: instruction.ip(),
            next: instruction.next_ip(),
            registers,
        });
        true
    }

    /// The copy has run, or has faulted: gives the recovery its registers back. Whether there was one.
    pub(super) fn come_back(&mut self, frame: &Frame) -> bool {
        let Some(elsewhere) = self.step.elsewhere.take() else {
            return false;
        };
        match elsewhere.registers {
            Lent::Spare(register, before) => frame.set_register(register, before),
            Lent::Shifted(own, distances) => shift(frame, own, distances.map(u64::wrapping_neg)),
        }
        let at = frame.get(Greg::Rip);
        if at == elsewhere.end {
            frame.set(Greg::Rip, elsewhere.next);
        } else if at == elsewhere.start {
            // It is repeated, or has faulted.
            frame.set(Greg::Rip, elsewhere.address);
        }
        true
    }

    /// Shows the pages of an instruction, to all threads.
    pub(super) fn show_all(&mut self) {
        self.warn_of_threads();
        let shown = self.step.shown;
        for page in &shown[..self.step.shown_count] {
            if page.is_stepped {
                self.show(page.mapping, page.address, page.truth);
            } else {
                let protection = self.mappings[page.mapping].protection;
                protect(page.address, PAGE, protection);
            }
        }
    }

    fn warn_of_threads(&mut self) {
        if self.has_company && !self.has_warned_of_threads && fork::thread_count() > 1 {
            self.has_warned_of_threads = true;
            super::warn(
                "an instruction on a pool cannot run while other threads are kept from its page: what they do there in that moment is not seen",
            );
        }
    }

    /// Whether a page that is shown has no place that stays its own, or will be the recovery's for itself.
    fn meets_own_pages(&self) -> bool {
        let shown = &self.step.shown[..self.step.shown_count];
        shown.iter().any(|page| {
            let is_own = self.mappings[page.mapping].is_private && self.step.writes_to(page);
            page.truth == 0 || is_own
        })
    }

    /// Where the memory operand is in the truth; its elements, if it has several, are counted from there.
    fn place_of_operand(&self, frame: &Frame, instruction: &Instruction) -> Option<u64> {
        let operand = instruction
            .op_kinds()
            .position(|kind| kind == iced_x86::OpKind::Memory)?;
        let address = instruction.virtual_address(operand as u32, 0, |register, _, _| {
            if register.is_vector_register() {
                return Some(0);
            }
            registers::value(frame, register)
        })?;
        let mut common = None;
        for access in self.step.accesses.as_slice() {
            let distance = self.distance_of(access.address, access.len)?;
            // What is pushed or popped is not the operand.
            if distance == 0 && instruction.is_stack_instruction() {
                continue;
            }
            if common.is_some_and(|common| common != distance) {
                return None;
            }
            common = Some(distance);
        }
        Some(address.wrapping_add(common?))
    }

    /// How far away the truth of bytes is; zero for those of no page that is shown. None if that is not the same for all.
    fn distance_of(&self, address: u64, len: u64) -> Option<u64> {
        let distance_at = |at: u64| {
            let shown = &self.step.shown[..self.step.shown_count];
            let page = shown.iter().find(|page| page.address == at / PAGE * PAGE);
            page.map_or(0, |page| page.truth.wrapping_sub(page.address))
        };
        let last = address.checked_add(len - 1)?;
        let first = distance_at(address);
        let mut pages = (address / PAGE..=last / PAGE).map(|page| distance_at(page * PAGE));
        pages.all(|other| other == first).then_some(first)
    }

    /// With other threads, and a private view of the pools: a page is accessed alone from now on.
    pub(super) fn crowd_page(&mut self, pool: u32, offset: u64) {
        let is_needed = self.has_company
            && self.is_private
            && !self.is_stepped(pool, offset)
            && self.has_home(pool, offset);
        if !is_needed {
            return;
        }
        for number in 0..self.mappings.len() {
            let mapping = &self.mappings[number];
            if mapping.pool != pool || mapping.is_private {
                continue;
            }
            // A page with a second mapping would be stepped.
            if let Some(address) = mapping.address_of(offset) {
                protect(address, PAGE, sys::PROT_READ);
                copy(address, self.pools[pool as usize].home + offset);
            }
        }
        self.keep_crowded(pool, offset);
        for number in 0..self.mappings.len() {
            if self.mappings[number].pool == pool {
                self.arrange(number, offset);
            }
        }
    }

    /// Other threads would see a stepped page that becomes the recovery's own while it is copied: it stays stepped.
    pub(super) fn keep_crowded(&mut self, pool: u32, offset: u64) {
        if self.has_company && self.is_private {
            self.crowded.insert((pool, offset));
        }
    }

    /// Whether our own mapping of a pool has a page. The file may have been made or have grown since.
    pub(super) fn has_home(&mut self, pool: u32, offset: u64) -> bool {
        let file = &self.pools[pool as usize];
        if offset < file.home_len {
            return true;
        }
        // A file that grows has no private view.
        if self.is_private {
            return false;
        }
        if let Some(grown) = state::open_again(pool, file) {
            self.pools[pool as usize] = grown;
        }
        offset < self.pools[pool as usize].home_len
    }
}

/// The copy of an instruction, which is made the first time.
fn copy_of(instruction: &Instruction) -> Option<Copy> {
    let address = instruction.ip();
    let known = COPIES.with(|copies| copies.get(&address).copied());
    if let Some(known) = known.filter(|known| known.instruction == *instruction) {
        return Some(known);
    }
    let mut factory = iced_x86::InstructionInfoFactory::new();
    let displaced = Displaced::new(instruction, &mut factory)?;
    let (code, len) = displaced.code()?;
    let made = Copy {
        instruction: *instruction,
        start: hot_sites::place_copy(hot_sites::instruction_at(address), &code[..len])?,
        len: len as u64,
        pointers: displaced.pointers(),
    };
    COPIES.with(|copies| copies.insert(address, made));
    Some(made)
}

fn shift(frame: &Frame, own: &[u8], distances: [u64; 2]) {
    for (register, distance) in own.iter().zip(distances) {
        let shifted = frame.register(*register).wrapping_add(distance);
        frame.set_register(*register, shifted);
    }
}
