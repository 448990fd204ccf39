//! The patcher: makes the trampoline of an instruction, and the jump that leads there.
//!
//! Recordings (`record::sites`) and recoveries (`recovery::hot_sites`) patch different instructions with
//! different trampolines, but in the same way. [`Patcher`] has what both need: the code emitter, memory for
//! trampolines, and the bytes that patches already use. [`Patching`] is implemented by the two: they decide which
//! instructions near a site may be patched later, and what is remembered of a patch.
//!
//! An instruction is *settled* when its trampoline exists and its bytes have changed for the last time. A jump that
//! needs the bytes of neighbours waits until these are settled, so one instruction may lead to several.
//!
//! Nothing here decides what a trampoline does, or sends messages.
//!
//! # Safety
//!
//! Callers guarantee that the [`Function`]s they pass lie in loaded code, which is readable up to the end of its
//! segment, and that no other thread makes patches (both callers hold a lock). In return, code is only changed by
//! [`Patcher::apply`], after the trampoline that the change leads to is complete.
#![allow(unsafe_code, reason = "reads the target's code where it lies")]

use core::cell::RefCell;
use core::ops::ControlFlow;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use iced_x86::Instruction;
use powerfail_patch::tactic::{Claims, CodeView, Evicted, Plan, PlanError, Targets, plan};
use powerfail_patch::{
    AccessEmitter, Classifier, EmitError, Emitter, MAX_RELOCATED_LEN, Site, flags_are_dead,
};

use super::arenas::Arenas;
use super::code;
use super::modules::Function;
use super::surroundings::{FunctionLayout, PlanContext};

/// Code that is looked at behind a function.
const LOOK_BEHIND: u64 = 32;
/// Code that is looked at to find out whether the flags are dead.
pub(crate) const LOOK_AHEAD: usize = 160;
/// How far from the instruction a trampoline may lie that no jump leads to: its references must reach.
const REACH: u64 = 0x7000_0000;

/// An emitter of trampolines, which can also move an instruction elsewhere.
pub(crate) trait Relocate {
    /// Emits a copy of an instruction for address `at`, and a jump back behind the original.
    fn relocate(
        &mut self,
        instruction: &Instruction,
        at: u64,
        out: &mut [u8],
    ) -> Result<usize, EmitError>;
}

impl Relocate for Emitter {
    fn relocate(
        &mut self,
        instruction: &Instruction,
        at: u64,
        out: &mut [u8],
    ) -> Result<usize, EmitError> {
        Emitter::relocate(self, instruction, at, out)
    }
}

impl Relocate for AccessEmitter {
    fn relocate(
        &mut self,
        instruction: &Instruction,
        at: u64,
        out: &mut [u8],
    ) -> Result<usize, EmitError> {
        AccessEmitter::relocate(self, instruction, at, out)
    }
}

/// What is needed to patch code.
pub(crate) struct Patcher<E> {
    pub(crate) classifier: Classifier,
    pub(crate) emitter: E,
    /// The bytes of code that patches use.
    pub(crate) claims: Claims,
    /// Functions in which something was or will be patched, as they were before the first patch.
    pub(crate) functions: BTreeMap<u64, FunctionLayout>,
    arenas: RefCell<Arenas>,
    /// Room for copies of code. What is allocated is never given back, so it is used again.
    copies: Vec<Vec<u8>>,
}

impl<E> Patcher<E> {
    /// A patcher that has patched nothing. `capacity`: for how many claims there is room at once.
    pub(crate) fn new(emitter: E, capacity: usize) -> Self {
        Self {
            classifier: Classifier::new(),
            emitter,
            claims: Claims::with_capacity(capacity),
            functions: BTreeMap::new(),
            arenas: RefCell::default(),
            copies: Vec::new(),
        }
    }

    /// A copy of code.
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut copy = self.copies.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(bytes);
        copy
    }

    /// Code that was copied is not needed any more.
    pub(crate) fn give_back(&mut self, code: Cow<'static, [u8]>) {
        if let Cow::Owned(copy) = code {
            self.copies.push(copy);
        }
    }

    /// An address among `targets` where `len` bytes of code can lie.
    pub(crate) fn place(&mut self, targets: Targets, len: u64) -> Option<u64> {
        self.arenas.get_mut().place(targets, len, None)
    }

    /// A place for code that no jump leads to: near enough for what it refers to.
    pub(crate) fn place_near(&mut self, address: u64, len: u64) -> Option<u64> {
        let near = Targets {
            first: address.saturating_sub(REACH).max(0x1_0000),
            last: address + REACH,
            stride: 1,
        };
        self.place(near, len)
    }

    /// Takes `len` bytes at a place that was found, and writes code there.
    pub(crate) fn write(&mut self, place: u64, len: u64, code: &[u8]) {
        let arenas = self.arenas.get_mut();
        arenas.take(place, len);
        arenas.write(place, code);
    }

    /// Gives back bytes that were taken: no jump leads there any more, and no thread is there.
    pub(crate) fn release(&mut self, place: u64, len: u64) {
        self.arenas.get_mut().release(place, len);
    }

    /// Whether patches use none of the bytes in a range.
    pub(crate) fn is_unclaimed(&self, from: u64, len: usize) -> bool {
        !self.claims.owns_any(from, from + len as u64)
    }

    /// Forgets the code in a range: it is gone, or is other code.
    pub(crate) fn forget(&mut self, from: u64, to: u64) {
        self.functions
            .retain(|address, _| !(from..to).contains(address));
        self.claims.forget_range(from, to);
    }

    /// Makes the change that leads to a trampoline. Other threads may be executing the code.
    pub(crate) fn apply(&mut self, plan: &Plan) {
        plan.commit(&mut self.claims);
        code::replace(plan.edits().iter().map(|edit| (edit.address, edit.bytes())));
    }
}

impl<E: Relocate> Patcher<E> {
    /// Writes the copy of an instruction that makes room for a jump; gives its length.
    fn evict(&mut self, evicted: &Evicted) -> Result<u64, EmitError> {
        let mut copy = [0; 64];
        let (instruction, place) = (&evicted.instruction, evicted.trampoline);
        let len = self.emitter.relocate(instruction, place, &mut copy)?;
        self.write(place, len as u64, &copy[..len]);
        Ok(len as u64)
    }

    /// A copy of an instruction, near it, with a jump back.
    pub(crate) fn copy_of(&mut self, instruction: &Instruction) -> Option<u64> {
        let len = MAX_RELOCATED_LEN as u64;
        let place = self.place_near(instruction.ip(), len)?;
        let mut copy = [0; 64];
        let copy_len = self.emitter.relocate(instruction, place, &mut copy).ok()?;
        self.write(place, len, &copy[..copy_len]);
        Some(place)
    }
}

/// Whether control gets to a trampoline by a jump in the place of the instruction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Jump {
    /// No: by a fault or a breakpoint.
    Never,
    /// If there is room for one.
    IfPossible,
    /// Yes; without one there is no point in a trampoline.
    Required,
}

/// Why there is no trampoline.
pub(crate) enum PatchError<F> {
    /// The emitter cannot make it.
    Emit(F),
    /// The instruction that makes room for the jump cannot be moved.
    Evict(EmitError),
    /// There is no room for a jump, and one is required.
    NoJump,
    /// There is no memory near enough.
    NoPlace,
}

/// A trampoline that is written, and to which nothing leads yet.
pub(crate) struct Settled<T> {
    pub(crate) place: u64,
    pub(crate) len: u64,
    pub(crate) trampoline: T,
    /// The change that leads there. None: the instruction keeps its bytes.
    pub(crate) plan: Option<Plan>,
    /// The instruction that makes room, and the length of its copy.
    pub(crate) evicted: Option<(Evicted, u64)>,
}

/// What has a patcher, and decides what is patched.
pub(crate) trait Patching {
    type Emitter: Relocate;

    /// How many neighbours are settled for the sake of one site.
    const SETTLE_DEPTH_MAX: usize;

    fn patcher(&mut self) -> &mut Patcher<Self::Emitter>;

    /// Whether a range of code is as the compiler made it.
    fn is_unpatched(&self, from: u64, len: usize) -> bool;

    /// The code in a range, without breakpoints that stand where a patch is to come. To be given back.
    fn code_in(&mut self, from: u64, to: u64) -> Cow<'static, [u8]> {
        // SAFETY: callers pass code that is loaded.
        Cow::Borrowed(unsafe { code::view(from, to - from) })
    }

    /// What is to be remembered of a function in which nothing was patched yet.
    fn layout_of(&mut self, function: Function, bytes: &[u8]) -> FunctionLayout;

    /// Instructions near a site that may be patched later, or must be left alone for good.
    fn unsettled_near(
        &mut self,
        site: &Site,
        code: CodeView<'_>,
        function: Function,
    ) -> BTreeSet<u64>;

    /// Settles an instruction for the sake of another. `None`: that is pointless.
    fn settle_neighbour(&mut self, address: u64, code: CodeView<'_>, depth: usize) -> Option<()>;

    /// Whether a plan is worth following.
    fn accepts(plan: &Plan) -> bool;

    /// Whether the instructions from an address on overwrite all flags before they use any. `bytes` is the code
    /// there.
    fn are_flags_dead(&self, from: u64, bytes: &[u8]) -> bool {
        let ahead = &bytes[..bytes.len().min(LOOK_AHEAD)];
        self.is_unpatched(from, ahead.len()) && flags_are_dead(ahead, from)
    }

    /// Makes the trampoline of a site and plans the jump to it. `emit` emits the trampoline for an address, and gives
    /// its length.
    fn prepare<T, F, const LEN: usize>(
        &mut self,
        site: &Site,
        function: Function,
        jump: Jump,
        depth: usize,
        mut emit: impl FnMut(&mut Self::Emitter, u64, &mut [u8; LEN]) -> Result<(usize, T), F>,
    ) -> Result<Settled<T>, PatchError<F>> {
        let address = site.address();
        let mut out = [0; LEN];
        // The length does not depend on the place, and the plan depends on the length.
        let (len, _) =
            emit(&mut self.patcher().emitter, address, &mut out).map_err(PatchError::Emit)?;
        let plan = match jump {
            Jump::Never => None,
            Jump::IfPossible | Jump::Required => self.plan(site, len, function, depth),
        };
        if plan.is_none() && jump == Jump::Required {
            return Err(PatchError::NoJump);
        }
        let patcher = self.patcher();
        let place = match plan.and_then(|plan| plan.trampoline) {
            Some(place) => place,
            None => patcher
                .place_near(address, len as u64)
                .ok_or(PatchError::NoPlace)?,
        };
        let (written, trampoline) =
            emit(&mut patcher.emitter, place, &mut out).map_err(PatchError::Emit)?;
        let evicted = match plan.and_then(|plan| plan.evicted) {
            Some(evicted) => {
                let len = patcher.evict(&evicted).map_err(PatchError::Evict)?;
                Some((evicted, len))
            }
            None => None,
        };
        patcher.write(place, len as u64, &out[..written]);
        Ok(Settled {
            place,
            len: len as u64,
            trampoline,
            plan,
            evicted,
        })
    }

    /// Chooses how the jump gets there; settles neighbours if need be. `None`: there is no way.
    fn plan(&mut self, site: &Site, len: usize, function: Function, depth: usize) -> Option<Plan> {
        // A jump may read bytes behind the function, which it does not change.
        let end = function.segment_end.min(function.end + LOOK_BEHIND);
        for _ in 0..=Self::SETTLE_DEPTH_MAX {
            // A neighbour that was settled has other bytes than before. Callers pass functions of loaded code, and `end`
            // is not behind the end of its segment.
            let bytes = self.code_in(function.start, end);
            let tried = self.try_to_plan(&bytes, site, len, function, depth);
            self.patcher().give_back(bytes);
            if let ControlFlow::Break(plan) = tried {
                return plan;
            }
        }
        None
    }

    /// As `plan`, or settles a neighbour first. `bytes` is the code of the function, and some behind it.
    fn try_to_plan(
        &mut self,
        bytes: &[u8],
        site: &Site,
        len: usize,
        function: Function,
        depth: usize,
    ) -> ControlFlow<Option<Plan>> {
        let code = CodeView {
            address: function.start,
            bytes,
        };
        if !self.patcher().functions.contains_key(&function.start) {
            let of_function = &bytes[..(function.end - function.start) as usize];
            let layout = self.layout_of(function, of_function);
            self.patcher().functions.insert(function.start, layout);
        }
        let unsettled = self.unsettled_near(site, code, function);
        let patcher = self.patcher();
        let surroundings = PlanContext {
            arenas: &patcher.arenas,
            layout: patcher.functions.get(&function.start),
            unsettled,
            function_end: function.end,
        };
        match plan(site, len, code, &patcher.claims, &surroundings) {
            Ok(plan) => ControlFlow::Break(Self::accepts(&plan).then_some(plan)),
            Err(PlanError::SettleFirst(address)) if depth > 0 => {
                match self.settle_neighbour(address, code, depth - 1) {
                    Some(()) => ControlFlow::Continue(()),
                    None => ControlFlow::Break(None),
                }
            }
            Err(_) => ControlFlow::Break(None),
        }
    }
}
