//! Instructions that met pages without access rights, patched so that they need not meet them again.
//!
//! A fault, a single step and two changes of rights cost some microseconds, which is nothing for the first
//! access to a line and everything for a loop. So an instruction that was noted gets a trampoline
//! ([`powerfail_patch::AccessEmitter`]) that goes to the content of the page by itself wherever the
//! [`access_table`] allows it:
//!
//! - The snapshot patches what earlier executions have noted, before it forks the next one.
//! - An execution patches an instruction that has trapped [`TRAPS_MAX`] times, if it runs alone.
//!
//! A trampoline that may not go on by itself executes a copy of the instruction, with all registers as
//! the recovery had them. That one faults as the instruction would, at an address that
//! [`instruction_at`] knows.
//!
//! How a jump takes the place of an instruction is the same as for recordings ([`powerfail_patch::tactic`]),
//! but for what cannot be a jump: that goes to its trampoline at the fault. Flushes and fences are left alone,
//! and so are their bytes: they may get breakpoints when an execution is logged. A locked operation may get
//! its breakpoint where its trampoline begins ([`entry_of`]).
//!
//! # Safety
//!
//! Functions are those of loaded modules. Callers run alone, or are in the snapshot, so no other thread executes
//! what is changed. Registers are undone from slots that the trampoline has filled before.
#![allow(unsafe_code, reason = "reads code that is about to be patched")]

use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{Instruction, Register};
use powerfail_patch::tactic::{CodeView, Plan};
use powerfail_patch::{
    AccessEmitter, AccessError, AccessTrampoline, MAX_ACCESS_LEN, MAX_INSTRUCTION_LEN,
    MAX_RELOCATED_LEN, Site,
};

use crate::patching::code;
use crate::patching::modules::Function;
use crate::patching::patcher::{Jump, Patcher, Patching};
use crate::patching::surroundings::FunctionLayout;
use crate::platform::frame::{Frame, Greg};
use crate::platform::lock::Lock;

use super::{access_table, load_stacks, ordering};

/// How often an instruction may trap before it is patched in the middle of an execution.
const TRAPS_MAX: u32 = 16;
/// For how many claims of bytes by patches there is room from the beginning.
const CLAIMS: usize = 1 << 10;
/// How far from a site instructions can matter to its jump: what a short jump reaches, and some.
const REACH: u64 = 160;

static HOT: Lock<Option<HotSites>> = Lock::new(None);
/// Emitted code lies between these.
static LOWEST: AtomicU64 = AtomicU64::new(u64::MAX);
static HIGHEST: AtomicU64 = AtomicU64::new(0);

/// Emitted code, and what it stands for.
struct Emitted {
    len: u64,
    /// The instruction of the recovery.
    site: u64,
    /// None if it was evicted, and this is a copy of it and a jump.
    trampoline: Option<AccessTrampoline>,
}

struct HotSites {
    patcher: Patcher<AccessEmitter>,
    /// From instructions to their trampolines. Where there is no room for a jump, it is entered at the fault.
    entries: BTreeMap<u64, u64>,
    refused: BTreeSet<u64>,
    /// By its address.
    emitted: BTreeMap<u64, Emitted>,
    traps: BTreeMap<u64, u32>,
    /// Bytes of code that was changed, as they were.
    before: BTreeMap<u64, u8>,
}

/// What an instruction that was just executed does next.
pub(super) enum Advice {
    /// It is to be handled.
    Handle,
    /// It continues there, and needs no handling now.
    GoTo(u64),
}

/// An instruction has met a page without access rights. `is_alone` says whether no other thread runs.
pub(super) fn trapped(instruction: u64, is_alone: impl FnOnce() -> bool) -> Advice {
    HOT.with(|hot| {
        if let Some(hot) = hot {
            if hot.emitted_at(instruction).is_some() {
                return Advice::Handle;
            }
            if let Some(trampoline) = hot.entries.get(&instruction) {
                return Advice::GoTo(*trampoline);
            }
        }
        let Some(hot) = make(hot) else {
            return Advice::Handle;
        };
        let traps = hot.traps.entry(instruction).or_insert(0);
        *traps += 1;
        if *traps == TRAPS_MAX && is_alone() {
            hot.settle(instruction, HotSites::SETTLE_DEPTH_MAX);
            // The descriptor would be one that the recovery does not expect.
            code::reset_after_fork();
        }
        match hot.entries.get(&instruction) {
            Some(trampoline) => Advice::GoTo(*trampoline),
            None => Advice::Handle,
        }
    })
}

/// Patches instructions that executions have noted, by address. In the snapshot, where nothing else runs.
pub(super) fn patch(noted: &[u64]) {
    HOT.with(|hot| {
        let Some(hot) = make(hot) else { return };
        // The last first: a jump may read the bytes behind it, which then do not change any more.
        for site in noted.iter().rev() {
            // What is no code of the snapshot was loaded later, and is patched later.
            if load_stacks::function_around(*site).is_some() {
                hot.settle(*site, HotSites::SETTLE_DEPTH_MAX);
            }
        }
        code::reset_after_fork();
    });
}

/// Whether there is nothing to be gained from an instruction any more.
pub(super) fn knows(instruction: u64) -> bool {
    HOT.with(|hot| {
        hot.as_ref().is_some_and(|hot| {
            hot.entries.contains_key(&instruction) || hot.refused.contains(&instruction)
        })
    })
}

/// Whether an address lies in emitted code.
fn may_be_emitted(address: u64) -> bool {
    (LOWEST.load(Ordering::Relaxed)..HIGHEST.load(Ordering::Relaxed)).contains(&address)
}

/// The instruction of the recovery that an address in emitted code stands for; the address itself if it is
/// none.
pub(super) fn instruction_at(address: u64) -> u64 {
    if !may_be_emitted(address) {
        return address;
    }
    HOT.with(|hot| {
        let emitted = hot.as_ref().and_then(|hot| hot.emitted_at(address));
        emitted.map_or(address, |(_, emitted)| emitted.site)
    })
}

/// A fault that is the recovery's own, as that of a division by zero: if it is one of an instruction on the
/// content of a page, shows the instruction and the registers that the recovery would have had.
pub(super) fn undo(frame: &Frame) {
    let address = frame.get(Greg::Rip);
    if !may_be_emitted(address) {
        return;
    }
    HOT.with(|hot| {
        let found = hot.as_ref().and_then(|hot| hot.emitted_at(address));
        let Some((start, emitted)) = found else {
            return;
        };
        if let Some(trampoline) = emitted.trampoline {
            let offset = (address - start) as usize;
            if offset == trampoline.moved_at {
                let mut registers = core::array::from_fn(|number| frame.register(number as u8));
                let mut flags = frame.get(Greg::Flags);
                // SAFETY: the trampoline has put it there.
                trampoline.undo(&mut registers, &mut flags, |at| unsafe {
                    (at as *const u64).read()
                });
                for (number, value) in (0..).zip(registers) {
                    frame.set_register(number, value);
                }
                frame.set(Greg::Flags, flags);
            } else if offset != trampoline.original_at {
                return;
            }
        }
        frame.set(Greg::Rip, emitted.site);
    });
}

/// Where an instruction is entered: at its trampoline, if it has one.
pub(super) fn entry_of(instruction: u64) -> Option<u64> {
    HOT.with(|hot| hot.as_ref()?.entries.get(&instruction).copied())
}

/// Makes a copy of an instruction, with a jump behind the original; where it lies.
pub(super) fn copy_of(instruction: &Instruction) -> Option<u64> {
    HOT.with(|hot| {
        let hot = make(hot)?;
        let copy = hot.patcher.copy_of(instruction)?;
        hot.remember(copy, MAX_RELOCATED_LEN as u64, instruction.ip(), None);
        Some(copy)
    })
}

/// Puts code that stands for an instruction, and depends on no place, into memory of ours; where it lies.
pub(super) fn place_copy(instruction: u64, code: &[u8]) -> Option<u64> {
    HOT.with(|hot| {
        let hot = make(hot)?;
        let len = code.len() as u64;
        let place = hot.patcher.place_near(instruction, len)?;
        hot.patcher.write(place, len, code);
        hot.remember(place, len, instruction, None);
        Some(place)
    })
}

/// Undoes what patches have made of the bytes of code that lies at an address.
pub(super) fn restore(address: u64, bytes: &mut [u8]) {
    HOT.with(|hot| {
        let Some(hot) = hot else { return };
        let end = address + bytes.len() as u64;
        for (at, byte) in hot.before.range(address..end) {
            bytes[(at - address) as usize] = *byte;
        }
    });
}

/// In a copy of the process.
pub(super) fn reset_after_fork() {
    HOT.reset_after_fork();
}

/// Makes the state when it is first needed, if there can be tables.
fn make(hot: &mut Option<HotSites>) -> Option<&mut HotSites> {
    if hot.is_none() {
        *hot = access_table::settings().map(|settings| HotSites {
            patcher: Patcher::new(AccessEmitter::new(settings), CLAIMS),
            entries: BTreeMap::new(),
            refused: BTreeSet::new(),
            emitted: BTreeMap::new(),
            traps: BTreeMap::new(),
            before: BTreeMap::new(),
        });
    }
    hot.as_mut()
}

impl HotSites {
    fn emitted_at(&self, address: u64) -> Option<(u64, &Emitted)> {
        let (start, emitted) = self.emitted.range(..=address).next_back()?;
        (address - start < emitted.len).then_some((*start, emitted))
    }

    /// Makes the trampoline of an instruction, unless that was tried before.
    fn settle(&mut self, address: u64, depth: usize) {
        if self.entries.contains_key(&address) || self.refused.contains(&address) {
            return;
        }
        if self.try_to_settle(address, depth).is_none() {
            self.refused.insert(address);
        }
    }

    fn try_to_settle(&mut self, address: u64, depth: usize) -> Option<()> {
        let function = load_stacks::function_around(address)?;
        // SAFETY: functions of loaded modules are readable.
        let bytes = unsafe { code::view(function.start, function.end - function.start) };
        let from_site = &bytes[(address - function.start) as usize..];
        let of_site = &from_site[..from_site.len().min(MAX_INSTRUCTION_LEN)];
        let site = self.patcher.classifier.classify(of_site, address);
        if self.patcher.claims.owner(address).is_some() {
            return None;
        }
        self.patcher.emitter.check(&site.instruction).ok()?;
        let flags_dead = self.are_flags_dead(address, from_site);
        // A breakpoint for it would not be met.
        let jump = if site.is_silent() {
            Jump::Required
        } else {
            Jump::IfPossible
        };
        let settled = self
            .prepare(
                &site,
                function,
                jump,
                depth,
                |emitter, at, out: &mut [u8; MAX_ACCESS_LEN]| {
                    let trampoline =
                        emitter.emit(&site.instruction, site.code(), at, flags_dead, out)?;
                    Ok::<_, AccessError>((trampoline.len_bytes, trampoline))
                },
            )
            .ok()?;
        if let Some((evicted, len)) = settled.evicted {
            self.remember(evicted.trampoline, len, evicted.instruction.ip(), None);
        }
        let trampoline = Some(settled.trampoline);
        self.remember(settled.place, settled.len, address, trampoline);
        if let Some(plan) = settled.plan {
            for edit in plan.edits() {
                // SAFETY: the plan changes this function, which is loaded, and was read above.
                let old = unsafe { code::view(edit.address, edit.bytes().len() as u64) };
                self.before
                    .extend((edit.address..).zip(old.iter().copied()));
            }
            self.patcher.apply(&plan);
        }
        self.entries.insert(address, settled.place);
        Some(())
    }

    /// Remembers what emitted code stands for.
    fn remember(&mut self, at: u64, len: u64, site: u64, trampoline: Option<AccessTrampoline>) {
        let emitted = Emitted {
            len,
            site,
            trampoline,
        };
        self.emitted.insert(at, emitted);
        LOWEST.fetch_min(at, Ordering::Relaxed);
        HIGHEST.fetch_max(at + len, Ordering::Relaxed);
    }
}

impl Patching for HotSites {
    type Emitter = AccessEmitter;

    const SETTLE_DEPTH_MAX: usize = 12;

    fn patcher(&mut self) -> &mut Patcher<AccessEmitter> {
        &mut self.patcher
    }

    fn is_unpatched(&self, from: u64, len: usize) -> bool {
        self.patcher.is_unclaimed(from, len)
    }

    fn layout_of(&mut self, function: Function, bytes: &[u8]) -> FunctionLayout {
        let before = without_breakpoints(function.start, bytes);
        FunctionLayout::of(&mut self.patcher.classifier, function, &before, |_| ())
    }

    fn unsettled_near(
        &mut self,
        site: &Site,
        code: CodeView<'_>,
        function: Function,
    ) -> BTreeSet<u64> {
        let mut unsettled = BTreeSet::new();
        let Patcher {
            classifier,
            emitter,
            claims,
            functions,
            ..
        } = &mut self.patcher;
        let Some(layout) = functions.get(&function.start) else {
            return unsettled;
        };
        let has_frame_pointer = has_frame_pointer(code.bytes);
        let from = site.address().saturating_sub(REACH);
        for at in layout.starts_in(from, site.address() + REACH) {
            let bytes = code.from(at);
            if at == site.address() || claims.owner(at).is_some() {
                continue;
            }
            let bytes = &bytes[..bytes.len().min(MAX_INSTRUCTION_LEN)];
            let other = classifier.classify(bytes, at);
            let base = other.instruction.memory_base();
            let is_local = matches!(base, Register::RSP | Register::RIP)
                || has_frame_pointer && base == Register::RBP;
            let may_be_patched = !is_local
                && !self.refused.contains(&at)
                && emitter.check(&other.instruction).is_ok();
            // What has a breakpoint must stay where that is known.
            let is_silent = other.is_silent() || ordering::stands_at(at);
            if !self.entries.contains_key(&at) && (is_silent || may_be_patched) {
                unsettled.insert(at);
            }
        }
        unsettled
    }

    fn settle_neighbour(&mut self, address: u64, _: CodeView<'_>, depth: usize) -> Option<()> {
        if self.refused.contains(&address) {
            return None;
        }
        // Afterwards it has its jump, or never will.
        self.settle(address, depth);
        Some(())
    }

    /// A site that cannot have a jump is entered at its fault, which needs no plan.
    fn accepts(plan: &Plan) -> bool {
        plan.trampoline.is_some()
    }
}

/// Whether a function keeps the base of its frame in RBP, so that what RBP leads to is not a pool.
fn has_frame_pointer(function: &[u8]) -> bool {
    // push rbp; mov rbp, rsp: after `endbr64`, if that is there.
    const BEGIN: [u8; 4] = [0x55, 0x48, 0x89, 0xe5];
    const ENDBR: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    function
        .strip_prefix(&ENDBR)
        .unwrap_or(function)
        .starts_with(&BEGIN)
}

/// The bytes of a function as they were before system calls, flushes and so on in it got breakpoints.
fn without_breakpoints(address: u64, bytes: &[u8]) -> Vec<u8> {
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    let mut before = bytes.to_vec();
    ordering::restore(address, &mut before);
    for at in 1..before.len() {
        if before[at - 1..=at] == [code::BREAKPOINT, SYSCALL[1]] {
            before[at - 1] = SYSCALL[0];
        }
    }
    before
}
