//! Faults: an instruction that touches hidden pages runs alone on shown ones.
//!
//! # Safety
//!
//! `on_fault` is called by the kernel only. The state is used only while this thread has the turn.
#![allow(unsafe_code, reason = "handles faults")]

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};

use iced_x86::{Instruction, Mnemonic};

use crate::platform::frame::{Frame, Greg, Info};
use crate::platform::signals::{self, OURS};
use crate::platform::sys;
use crate::record::call_stacks::Registers;

use super::access::{self, Access, Accesses, UnknownAccess};
use super::among_threads::Elsewhere;
use super::hot_sites::{self, Advice};
use super::pages::table_page;
use super::state::{PAGE, State};
use super::{ordering, shared_file, slow_sites, turn};

/// The flag that stops the processor behind the next instruction.
const TRAP_FLAG: u64 = 1 << 8;
/// A gather can touch two pages for each of its elements, and so on.
const SHOWN_MAX: usize = 40;

/// The thread that runs an instruction alone, and has the turn; zero if none does.
static ALONE: AtomicU32 = AtomicU32::new(0);

/// Whether the calling thread runs an instruction alone.
pub(super) fn runs_alone() -> bool {
    let alone = ALONE.load(Ordering::Relaxed);
    alone != 0 && alone == sys::gettid()
}

/// In a branch, whose thread has another number: it runs what its parent ran when it was made.
pub(super) fn inherit_after_fork() {
    if ALONE.load(Ordering::Relaxed) != 0 {
        ALONE.store(sys::gettid(), Ordering::Relaxed);
    }
}

/// In a copy that the recovery has made of itself: who ran something alone was another thread.
pub(super) fn reset_after_fork() {
    ALONE.store(0, Ordering::Relaxed);
}

/// A page that is shown.
#[derive(Clone, Copy)]
pub(super) struct Shown {
    pub(super) address: u64,
    pub(super) mapping: usize,
    pub(super) pool: u32,
    pub(super) offset: u64,
    /// Where its content is; zero if it is only where it is shown.
    pub(super) truth: u64,
    /// It is stepped; if not, it is shown to be written and logged.
    pub(super) is_stepped: bool,
}

/// An instruction that runs alone.
pub(super) struct SingleStep {
    site: u64,
    /// The signals that the recovery had blocked.
    mask: u64,
    pub(super) shown: [Shown; SHOWN_MAX],
    pub(super) shown_count: usize,
    pub(super) accesses: Accesses,
    is_non_temporal: bool,
    is_locked: bool,
    /// A breakpoint to put back.
    pub(super) rearm: u64,
    /// It is a copy that runs.
    pub(super) elsewhere: Option<Elsewhere>,
}

impl SingleStep {
    pub(super) const NONE: Self = Self {
        site: 0,
        mask: 0,
        shown: [Shown {
            address: 0,
            mapping: 0,
            pool: 0,
            offset: 0,
            truth: 0,
            is_stepped: false,
        }; SHOWN_MAX],
        shown_count: 0,
        accesses: Accesses::NONE,
        is_non_temporal: false,
        is_locked: false,
        rearm: 0,
        elsewhere: None,
    };

    /// Whether the instruction writes to a page.
    pub(super) fn writes_to(&self, page: &Shown) -> bool {
        self.accesses.as_slice().iter().any(|access| {
            access.is_written
                && access.address < page.address + PAGE
                && page.address < access.address + access.len
        })
    }

    /// Where a byte of a page that has a truth is.
    fn truth_of(&self, address: u64) -> u64 {
        let mut shown = self.shown[..self.shown_count].iter();
        let page = shown.find(|page| page.address == address / PAGE * PAGE);
        page.map_or(address, |page| page.truth + (address - page.address))
    }

    /// What the instruction touches is not known, or no pool.
    pub(super) fn forget_accesses(&mut self) {
        self.accesses = Accesses::NONE;
        self.is_locked = false;
    }
}

/// What becomes of a fault.
enum Outcome {
    /// It is the recovery's own.
    Deliver,
    /// The instruction was done for it.
    Done,
    /// The instruction runs alone; the turn stays taken.
    Runs,
}

pub(super) extern "C" fn on_fault(signal: i32, info: *mut c_void, context: *mut c_void) {
    let frame = Frame::new(context);
    let fault = Info::new(info);
    if !fault.is_fault() || !super::is_lazy() {
        signals::deliver(signal as usize, info, context);
        return;
    }
    let runs_alone = runs_alone();
    if !runs_alone {
        turn::enter();
    }
    // SAFETY: this thread has the turn: it was taken above, or is held since the step began.
    let state = unsafe { turn::state() };
    let outcome = state.fault(&frame, fault.address(), runs_alone);
    if !matches!(outcome, Outcome::Runs) {
        turn::leave();
    }
    if matches!(outcome, Outcome::Deliver) {
        hot_sites::undo(&frame);
        signals::deliver(signal as usize, info, context);
    }
}

/// The registers that unwinding begins with.
pub(super) fn registers_of(frame: &Frame, pc: u64) -> Registers {
    Registers {
        pc,
        rsp: frame.get(Greg::Rsp),
        rbp: frame.get(Greg::Rbp),
    }
}

impl State {
    fn fault(&mut self, frame: &Frame, address: u64, runs_alone: bool) -> Outcome {
        // Where it is, and where the recovery has it.
        let at = frame.get(Greg::Rip);
        let site = hot_sites::instruction_at(at);
        let is_ours = self.mapping_at(address).is_some();
        if runs_alone && (!is_ours || self.step.shown_count > 0) {
            if is_ours && self.needs_step(address) {
                let mnemonic = access::decode(at).mnemonic();
                super::refuse(&format!(
                    "the instruction {mnemonic:?} at {site:#x} accesses more memory than expected"
                ));
            }
            // It faults elsewhere, as it would without us.
            self.end_step(frame, false);
            return Outcome::Deliver;
        }
        if !is_ours {
            return Outcome::Deliver;
        }
        if !runs_alone && let Advice::GoTo(next) = hot_sites::trapped(at, || !self.has_company) {
            frame.set(Greg::Rip, next);
            return Outcome::Done;
        }
        shared_file::control().traps.fetch_add(1, Ordering::Relaxed);
        let instruction = access::decode(at);
        if let Some(line) = access::flushed(&instruction, frame) {
            let kind = ordering::flush_kind(&instruction);
            self.log_flush(kind, line, site);
            if runs_alone {
                self.end_step(frame, false);
            }
            frame.set(Greg::Rip, instruction.next_ip());
            return Outcome::Done;
        }
        if !runs_alone && self.run_string(frame, &instruction) {
            slow_sites::note(self, site);
            return Outcome::Done;
        }
        self.begin_step(frame, &instruction, address, runs_alone)
    }

    /// Whether an address cannot be used without us.
    fn needs_step(&self, address: u64) -> bool {
        self.mapping_at(address).is_some_and(|index| {
            let mapping = &self.mappings[index];
            let offset = (mapping.offset + (address - mapping.address)) / PAGE * PAGE;
            !mapping.own.contains(&offset) && self.is_stepped(mapping.pool, offset)
        })
    }

    /// Lets the recovery run one instruction alone.
    pub(super) fn run_alone(&mut self, frame: &Frame, site: u64) {
        ALONE.store(sys::gettid(), Ordering::Relaxed);
        self.step.site = site;
        self.step.mask = frame.signal_mask();
        self.step.shown_count = 0;
        frame.set_signal_mask(!OURS);
        frame.set(Greg::Flags, frame.get(Greg::Flags) | TRAP_FLAG);
    }

    fn begin_step(
        &mut self,
        frame: &Frame,
        instruction: &Instruction,
        address: u64,
        runs_alone: bool,
    ) -> Outcome {
        let site = hot_sites::instruction_at(frame.get(Greg::Rip));
        let Some(factory) = self.factory.as_mut() else {
            return Outcome::Deliver;
        };
        if let Err(UnknownAccess(mnemonic)) =
            access::of(instruction, frame, factory, &mut self.step.accesses)
        {
            super::refuse(&format!(
                "the instruction {mnemonic:?} at {site:#x} on a pool cannot be explored"
            ));
        }
        self.step.shown_count = 0;
        let has_right = self.collect();
        if !has_right || self.step.shown_count == 0 {
            self.step.shown_count = 0;
            if runs_alone {
                self.end_step(frame, false);
            } else if has_right && self.was_settled(address) {
                return Outcome::Done;
            }
            return Outcome::Deliver;
        }
        slow_sites::note(self, site);
        if !runs_alone {
            self.step.rearm = 0;
        }
        self.decide(registers_of(frame, site));
        if !runs_alone
            && (self.load_simply(frame, instruction) || self.store_simply(frame, instruction))
        {
            return Outcome::Done;
        }
        shared_file::control().steps.fetch_add(1, Ordering::Relaxed);
        if !self.send_elsewhere(frame, instruction) {
            self.show_all();
        }
        self.step.is_non_temporal = ordering::is_non_temporal(instruction);
        self.step.is_locked =
            instruction.has_lock_prefix() || instruction.mnemonic() == Mnemonic::Xchg;
        if !runs_alone {
            let count = self.step.shown_count;
            self.run_alone(frame, site);
            self.step.shown_count = count;
        }
        Outcome::Runs
    }

    /// Whether the page of a fault was hidden when the instruction faulted, and is not any more: another thread had the turn
    /// meanwhile, and read or overwrote the last that was to be known of it. The instruction, whose accesses were found, is
    /// executed again.
    fn was_settled(&self, address: u64) -> bool {
        let mut accesses = self.step.accesses.as_slice().iter();
        let is_access =
            accesses.any(|it| (it.address..it.address.saturating_add(it.len)).contains(&address));
        // What cannot be read is behind the end of the file, and faults again and again.
        self.has_company && is_access && sys::read_own_bytes(address, &mut [0])
    }

    /// Finds the pages that must be shown. False if the recovery has no right to what it does.
    fn collect(&mut self) -> bool {
        for number in 0..self.step.accesses.as_slice().len() {
            let access = self.step.accesses.as_slice()[number];
            let mut at = access.address;
            let end = access.address.saturating_add(access.len);
            while at < end {
                let next = (at / PAGE + 1) * PAGE;
                if !self.collect_page(at / PAGE * PAGE, &access) {
                    return false;
                }
                at = next;
            }
        }
        true
    }

    fn collect_page(&mut self, address: u64, access: &Access) -> bool {
        let Some(index) = self.mapping_at(address) else {
            return true;
        };
        let mapping = &self.mappings[index];
        let offset = mapping.offset + (address - mapping.address);
        if mapping.own.contains(&offset) {
            return true;
        }
        let (pool, is_private) = (mapping.pool, mapping.is_private);
        let may_write = mapping.protection & sys::PROT_WRITE != 0;
        if access.is_written && !may_write || mapping.protection == sys::PROT_NONE {
            return false;
        }
        let is_logged = self.is_logged && access.is_written && !is_private;
        // What lies in two pages is accessed in both of them, or in none, where the recovery sees them.
        let is_wanted =
            is_logged || access.address / PAGE != (access.address + access.len - 1) / PAGE;
        let is_wanted = is_wanted && self.has_company && !is_private;
        if is_wanted {
            self.crowd_page(pool, offset);
        }
        let is_stepped = self.is_stepped(pool, offset);
        if !is_stepped && !is_logged && !is_wanted {
            return true;
        }
        let step = &mut self.step;
        if step.shown[..step.shown_count]
            .iter()
            .any(|shown| shown.address == address)
        {
            return true;
        }
        if step.shown_count == SHOWN_MAX {
            super::refuse("an instruction touches more pages than can be shown");
        }
        let has_truth = is_stepped || is_wanted && !self.is_private && self.has_home(pool, offset);
        let truth = if has_truth {
            self.truth(pool, offset, None)
        } else {
            0
        };
        self.step.shown[self.step.shown_count] = Shown {
            address,
            mapping: index,
            pool,
            offset,
            truth,
            is_stepped,
        };
        self.step.shown_count += 1;
        true
    }

    /// Calls `work` with each part of a page of the table that the instruction reads, or writes: page, from, to.
    fn for_each_part(&mut self, is_read: bool, mut work: impl FnMut(&mut Self, usize, u64, u64)) {
        for number in 0..self.step.accesses.as_slice().len() {
            let access = self.step.accesses.as_slice()[number];
            if is_read && !access.is_read || !is_read && !access.is_written {
                continue;
            }
            for shown in 0..self.step.shown_count {
                let shown = self.step.shown[shown];
                let from = access.address.max(shown.address);
                let to = (access.address + access.len).min(shown.address + PAGE);
                if from < to
                    && let Some(page) = table_page(shown.pool, shown.offset)
                {
                    work(self, page, from - shown.address, to - shown.address);
                }
            }
        }
    }

    /// Decides what the instruction observes.
    fn decide(&mut self, code: Registers) {
        self.detach_private(code);
        self.for_each_part(true, |state, page, from, to| {
            state.observe(page, from, to, code);
        });
        // What was closed may have got another place.
        for shown in 0..self.step.shown_count {
            let Shown {
                pool,
                offset,
                is_stepped,
                ..
            } = self.step.shown[shown];
            if is_stepped {
                self.settle_truth(pool, offset, shown);
            }
        }
    }

    /// If the last line of a page was just closed, its truth may have moved.
    fn settle_truth(&mut self, pool: u32, offset: u64, shown: usize) {
        let before = self.step.shown[shown].truth;
        let now = self.truth(pool, offset, None);
        if before != now {
            super::pages::copy(before, now);
            for mapping in 0..self.mappings.len() {
                if self.mappings[mapping].pool == pool {
                    self.arrange(mapping, offset);
                }
            }
            self.step.shown[shown].truth = now;
        }
    }

    /// A private page of the recovery that it writes to is its own from now on: all that could be
    /// observed there is decided before.
    fn detach_private(&mut self, code: Registers) {
        for shown in 0..self.step.shown_count {
            let page = self.step.shown[shown];
            let is_written = self.step.writes_to(&page);
            if !page.is_stepped || !is_written || !self.mappings[page.mapping].is_private {
                continue;
            }
            if let Some(index) = table_page(page.pool, page.offset) {
                self.observe_rest(index, code);
            }
        }
    }

    /// The instruction has run, or has faulted elsewhere.
    pub(super) fn end_step(&mut self, frame: &Frame, has_run: bool) {
        frame.set(Greg::Flags, frame.get(Greg::Flags) & !TRAP_FLAG);
        frame.set_signal_mask(self.step.mask);
        ALONE.store(0, Ordering::Relaxed);
        let was_elsewhere = self.come_back(frame);
        if has_run {
            self.log_stores(was_elsewhere);
        }
        let count = self.step.shown_count;
        let mut was_open = [false; SHOWN_MAX];
        for (was_open, page) in was_open.iter_mut().zip(&self.step.shown[..count]) {
            let index = table_page(page.pool, page.offset);
            *was_open = index.is_some_and(|index| self.pages[index].open > 0);
        }
        let shown_count = if was_elsewhere { 0 } else { count };
        for number in 0..shown_count {
            let page = self.step.shown[number];
            let is_written = self.step.writes_to(&page);
            if !page.is_stepped {
                let rights = self.rights(page.mapping);
                super::pages::protect(page.address, PAGE, rights);
            } else if is_written && self.mappings[page.mapping].is_private {
                let protection = self.mappings[page.mapping].protection;
                super::pages::protect(page.address, PAGE, protection);
                self.mappings[page.mapping].own.insert(page.offset);
                self.publish(page.mapping, page.offset);
            } else {
                self.hide(page.address, page.truth, is_written);
            }
        }
        if has_run {
            self.for_each_part(false, |state, page, from, to| {
                if !state.is_own_write(page) {
                    state.overwritten(page, from, to);
                }
            });
        }
        let shown = self.step.shown;
        for (was_open, page) in was_open.into_iter().zip(&shown[..count]) {
            let index = table_page(page.pool, page.offset);
            if let Some(index) = index.filter(|_| page.is_stepped) {
                self.maybe_settle(index, was_open);
            }
        }
        self.step.shown_count = 0;
    }

    /// Whether what was written to a page of the table went to a private page of the recovery.
    fn is_own_write(&self, page: usize) -> bool {
        let entry = &shared_file::open_pages()[page];
        self.step.shown[..self.step.shown_count]
            .iter()
            .any(|shown| {
                (shown.pool, shown.offset) == (entry.pool, entry.offset)
                    && self.mappings[shown.mapping].is_private
            })
    }

    fn log_stores(&mut self, was_elsewhere: bool) {
        if !self.is_logged {
            return;
        }
        if self.step.is_locked && !ordering::sees(self.step.site) {
            self.log_fence(self.step.site);
        }
        for access in self.step.accesses.as_slice() {
            if !access.is_written {
                continue;
            }
            let mut at = access.address;
            let end = access.address + access.len;
            while at < end {
                let next = ((at / PAGE + 1) * PAGE).min(end);
                if let Some(index) = self.mapping_at(at) {
                    let mapping = &self.mappings[index];
                    if !mapping.is_private {
                        let offset = mapping.offset + (at - mapping.address);
                        let (site, len) = (self.step.site, next - at);
                        let is_non_temporal = self.step.is_non_temporal;
                        let bytes = if was_elsewhere {
                            self.step.truth_of(at)
                        } else {
                            at
                        };
                        self.log_store(is_non_temporal, mapping.pool, offset, len, site, bytes);
                    }
                }
                at = next;
            }
        }
    }
}
