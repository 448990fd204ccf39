//! The choice of a tactic.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

use super::jump::{DISPLACEMENT_LEN, Displacement, JUMP, SHORT_JUMP, Targets, displacement};
use super::{Claims, CodeView, Surroundings};
use crate::classify::{MAX_INSTRUCTION_LEN, Site};
use crate::emit::MAX_RELOCATED_LEN;
use crate::emit::is_movable;

/// A prefix that a jump ignores.
const PADDING: u8 = 0x48;
/// First and only byte of a breakpoint.
const BREAKPOINT: u8 = 0xcc;
const MAX_EDITS: usize = 2;
/// How far a short jump reaches from its end, forward and back.
const SHORT_REACH: u64 = 127;
const SHORT_REACH_BACK: u64 = 128;
const SHORT_JUMP_LEN: u64 = 2;

/// Highest bytes of a displacement that leads 60 to 600 MB away, down and up.
const KIND_LOWEST_BYTES: [u8; 6] = [0xfb, 0x04, 0xf0, 0x10, 0xdf, 0x20];

/// How a jump takes the place of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tactic {
    /// A jump fits.
    Jump,
    /// A jump that shares bytes with what follows.
    Pun,
    /// A pun behind prefixes.
    PaddedPun,
    /// A pun with an evicted successor.
    SuccessorEviction,
    /// A short jump into an evicted neighbour.
    NeighbourEviction,
    /// A breakpoint.
    Breakpoint,
    /// Nothing: the instruction is left as it is and emulated when it faults.
    Fault,
}

/// Why there is no plan now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The instruction at this address must be patched (or given up) before.
    #[error("the instruction at {0:#x} must be settled first")]
    SettleFirst(u64),
    /// The patch of the site at this address counts on the first byte, so that not even a
    /// breakpoint is possible. Undo that patch, patch this site, and patch that one again.
    #[error("the patch of {0:#x} counts on the bytes of this instruction")]
    Blocked(u64),
}

/// New bytes for old code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Address of the first.
    pub address: u64,
    bytes: [u8; MAX_INSTRUCTION_LEN],
    len: usize,
}

impl Edit {
    fn new(address: u64) -> Self {
        Self {
            address,
            bytes: [0; MAX_INSTRUCTION_LEN],
            len: 0,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// The new bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// An instruction that makes room.
#[derive(Clone, Copy, Debug)]
pub struct Evicted {
    /// The instruction, at its old address.
    pub instruction: Instruction,
    /// Where [`crate::Emitter::relocate`] must put it.
    pub trampoline: u64,
}

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How.
    pub tactic: Tactic,
    /// Address of the instruction that is patched.
    pub site: u64,
    /// Where its trampoline must begin, if the tactic is a jump.
    pub trampoline: Option<u64>,
    /// Where it could have begun.
    pub allowed: Option<Targets>,
    /// An instruction that makes room.
    pub evicted: Option<Evicted>,
    edits: [Edit; MAX_EDITS],
    edit_count: usize,
    owned: [(u64, u64); MAX_EDITS],
    depends: [(u64, u64); MAX_EDITS],
}

impl Plan {
    fn new(tactic: Tactic, site: u64) -> Self {
        Self {
            tactic,
            site,
            trampoline: None,
            allowed: None,
            evicted: None,
            edits: [Edit::new(0); MAX_EDITS],
            edit_count: 0,
            owned: [(0, 0); MAX_EDITS],
            depends: [(0, 0); MAX_EDITS],
        }
    }

    /// Adds a change of an instruction; the jump in it reads up to `reads_to`.
    fn push(&mut self, edit: Edit, instruction_end: u64, reads_to: u64) {
        self.owned[self.edit_count] = (edit.address, instruction_end);
        self.depends[self.edit_count] = (instruction_end, reads_to);
        self.edits[self.edit_count] = edit;
        self.edit_count += 1;
    }

    /// The changes, in the order in which they must be made, each as one: a thread that executes the code
    /// meanwhile must see the old instruction or the new one.
    pub fn edits(&self) -> &[Edit] {
        &self.edits[..self.edit_count]
    }

    /// The bytes outside the plan's own edits that must stay as they are: from, to.
    pub fn depends_on(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.depends[..self.edit_count]
            .iter()
            .copied()
            .filter(|(from, to)| from < to)
    }

    /// Enters the plan, which is being carried out.
    pub fn commit(&self, claims: &mut Claims) {
        for (from, to) in &self.owned[..self.edit_count] {
            claims.own(*from, *to, self.site);
        }
        for (from, to) in self.depends_on() {
            claims.depend(from, to, self.site);
        }
    }
}

/// Chooses a tactic for a site. `trampoline_len` is the length of its trampoline.
pub fn plan(
    site: &Site,
    trampoline_len: usize,
    code: CodeView<'_>,
    claims: &Claims,
    surroundings: &impl Surroundings,
) -> Result<Plan, PlanError> {
    let planner = Planner {
        site,
        trampoline_len,
        code,
        claims,
        surroundings,
    };
    if planner.is_intact(site.address(), site.len_bytes()) {
        if let Some(plan) = planner.simple()? {
            return Ok(plan);
        }
        if let Some(plan) = planner.successor()? {
            return Ok(plan);
        }
        if let Some(plan) = planner.neighbour() {
            return Ok(plan);
        }
    }
    planner.trap()
}

struct Planner<'a, S> {
    site: &'a Site,
    trampoline_len: usize,
    code: CodeView<'a>,
    claims: &'a Claims,
    surroundings: &'a S,
}

impl<S: Surroundings> Planner<'_, S> {
    /// Whether an instruction can be replaced: nothing jumps into it, it belongs to no patch, and
    /// none counts on its first byte.
    fn is_intact(&self, address: u64, len: usize) -> bool {
        let end = address + len as u64;
        (address + 1..end).all(|inside| !self.surroundings.is_branch_target(inside))
            && (address..end).all(|byte| self.claims.owner(byte).is_none())
            && self.claims.dependant(address).is_none()
            && self.code.byte(end - 1).is_some()
    }

    /// What is known of the displacement of a jump whose opcode is at `at`, in an instruction that
    /// ends at `end`: bytes behind that, and those that others count on, are given.
    fn given(&self, at: u64, end: u64) -> Option<Displacement> {
        let mut bytes = [None; DISPLACEMENT_LEN];
        for (address, byte) in (at + 1..).zip(&mut bytes) {
            if address >= end || self.claims.dependant(address).is_some() {
                *byte = Some(self.code.byte(address)?);
            }
        }
        Some(Displacement(bytes))
    }

    /// Whether the bytes in this range, beyond an instruction, are settled.
    fn settled(&self, from: u64, to: u64) -> Result<(), PlanError> {
        for address in from..to {
            if self.claims.owner(address).is_none() && self.surroundings.is_unsettled(address) {
                return Err(PlanError::SettleFirst(address));
            }
        }
        Ok(())
    }

    /// Whether prefixes can be put before a jump: nothing depends on the bytes there, or they are
    /// the right ones.
    fn can_write(&self, from: u64, bytes: &[u8]) -> bool {
        (from..).zip(bytes).all(|(address, byte)| {
            self.claims.dependant(address).is_none() || self.code.byte(address) == Some(*byte)
        })
    }

    /// Jump, pun and padded pun.
    fn simple(&self) -> Result<Option<Plan>, PlanError> {
        let address = self.site.address();
        let len = self.site.len_bytes();
        let end = address + len as u64;
        let mut unsettled = None;
        for padding in 0..len {
            let at = address + padding as u64;
            let Some(given) = self.given(at, end) else {
                continue;
            };
            let jump_end = at + 5;
            let Some(allowed) = given.targets(jump_end) else {
                continue;
            };
            if !self.can_write(address, &opening(padding)[..=padding]) {
                continue;
            }
            let Some(target) = self.place_kindly(given, jump_end) else {
                continue;
            };
            if let Err(error) = self.settled(end, jump_end) {
                // What is unsettled will change, and with it this answer.
                unsettled.get_or_insert(error);
                continue;
            }
            let tactic = match padding {
                0 if given.0 == [None; DISPLACEMENT_LEN] => Tactic::Jump,
                0 => Tactic::Pun,
                _ => Tactic::PaddedPun,
            };
            let mut plan = Plan::new(tactic, address);
            plan.trampoline = Some(target);
            plan.allowed = Some(allowed);
            plan.push(
                jump_edit(address, padding, end, target),
                end,
                jump_end.max(end),
            );
            return Ok(Some(plan));
        }
        unsettled.map_or(Ok(None), Err)
    }

    /// A place for the site's trampoline. The lowest byte of the displacement is, more often than
    /// not, the highest one of a pun of the instruction before: if it is free, it is chosen so that
    /// this one will have somewhere to go.
    fn place_kindly(&self, given: Displacement, jump_end: u64) -> Option<u64> {
        let place = |given: Displacement| {
            let targets = given.targets(jump_end)?;
            self.surroundings.place(targets, self.trampoline_len, None)
        };
        let mut kind = KIND_LOWEST_BYTES.into_iter().filter_map(|lowest| {
            let [None, rest @ ..] = given.0 else {
                return None;
            };
            let before = Displacement([None, None, None, Some(lowest)]);
            before.targets(jump_end)?;
            place(Displacement([Some(lowest), rest[0], rest[1], rest[2]]))
        });
        kind.next().or_else(|| place(given))
    }

    fn decode(&self, address: u64) -> Option<Instruction> {
        let bytes = self.code.from(address);
        let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
        if !decoder.can_decode() {
            return None;
        }
        let instruction = decoder.decode();
        (!instruction.is_invalid()).then_some(instruction)
    }

    /// An instruction that can be evicted.
    fn victim(&self, address: u64) -> Option<Instruction> {
        let instruction = self.decode(address)?;
        (is_movable(&instruction) && self.is_intact(address, instruction.len()))
            .then_some(instruction)
    }

    /// The successor gets a jump to a copy of itself, whose bytes make the site's pun.
    fn successor(&self) -> Result<Option<Plan>, PlanError> {
        let successor_at = self.site.instruction.next_ip();
        self.settled(successor_at, successor_at + 1)?;
        let Some(successor) = self.victim(successor_at) else {
            return Ok(None);
        };
        let mut unsettled = None;
        for successor_padding in 0..successor.len() {
            for padding in 0..self.site.len_bytes() {
                for top in search_order() {
                    if let Some(plan) =
                        self.successor_with(&successor, successor_padding, padding, top)
                    {
                        match self.settled(successor.next_ip(), plan.depends[0].1) {
                            Ok(()) => return Ok(Some(plan)),
                            Err(error) => unsettled.get_or_insert(error),
                        };
                    }
                    // Without a shared byte to choose, one try is all.
                    if self.shared(successor_padding, padding) == 0 {
                        break;
                    }
                }
            }
        }
        unsettled.map_or(Ok(None), Err)
    }

    /// How many bytes of the successor's displacement the site's displacement reads.
    fn shared(&self, successor_padding: usize, padding: usize) -> usize {
        let read = (padding + 1 + DISPLACEMENT_LEN).saturating_sub(self.site.len_bytes());
        read.saturating_sub(successor_padding + 1)
    }

    fn successor_with(
        &self,
        successor: &Instruction,
        successor_padding: usize,
        padding: usize,
        top: u8,
    ) -> Option<Plan> {
        let address = self.site.address();
        let end = self.site.instruction.next_ip();
        let successor_end = successor.next_ip();
        let successor_jump = end + successor_padding as u64;
        let site_jump = address + padding as u64;
        let shared = self.shared(successor_padding, padding);
        if shared > DISPLACEMENT_LEN {
            return None;
        }
        // The successor's displacement: what is shared is chosen here, what is beyond is given.
        let mut successor_given = self.given(successor_jump, successor_end)?;
        for index in 0..shared {
            let choice = if index + 1 == shared { top } else { 0 };
            match successor_given.0[index] {
                Some(byte) if byte != choice => return None,
                _ => successor_given.0[index] = Some(choice),
            }
        }
        let lead = opening(successor_padding);
        // The site's displacement: its own bytes are free, then come the successor's.
        let own = self.given(site_jump, end)?;
        let mut site_given = own;
        for (index, byte) in site_given.0.iter_mut().enumerate() {
            let position = site_jump + 1 + index as u64;
            if position >= end {
                let in_successor = (position - end) as usize;
                *byte = Some(if in_successor <= successor_padding {
                    lead[in_successor]
                } else {
                    successor_given.0[in_successor - successor_padding - 1]?
                });
            }
        }
        if !self.can_write(end, &lead[..=successor_padding])
            || !self.can_write(address, &opening(padding)[..=padding])
        {
            return None;
        }
        let allowed = site_given.targets(site_jump + 5)?;
        let target = self
            .surroundings
            .place(allowed, self.trampoline_len, None)?;
        let taken = Some((target, self.trampoline_len));
        let successor_allowed = successor_given.targets(successor_jump + 5)?;
        let successor_target =
            self.surroundings
                .place(successor_allowed, MAX_RELOCATED_LEN, taken)?;
        let mut plan = Plan::new(Tactic::SuccessorEviction, address);
        plan.trampoline = Some(target);
        plan.allowed = Some(allowed);
        plan.evicted = Some(Evicted {
            instruction: *successor,
            trampoline: successor_target,
        });
        let edit = jump_edit(end, successor_padding, successor_end, successor_target);
        plan.push(edit, successor_end, (successor_jump + 5).max(successor_end));
        plan.push(
            jump_edit(address, padding, end, target),
            end,
            (site_jump + 5).max(end),
        );
        Some(plan)
    }

    /// A short jump into an evicted instruction near by, which holds both jumps.
    fn neighbour(&self) -> Option<Plan> {
        let address = self.site.address();
        if self.site.len_bytes() < 2 || self.claims.dependant(address + 1).is_some() {
            return None;
        }
        let from = address.saturating_sub(SHORT_REACH_BACK - SHORT_JUMP_LEN);
        let to = address + SHORT_JUMP_LEN + SHORT_REACH;
        self.neighbour_behind(to)
            .or_else(|| self.neighbour_before(from))
    }

    fn neighbour_behind(&self, to: u64) -> Option<Plan> {
        let mut at = self.site.instruction.next_ip();
        let mut is_dead = false;
        while at < to {
            // What was patched does not look like itself. A site continues behind itself; of what made
            // room that is not known.
            if let Some((end, is_site)) = self.claims.owned_end(at) {
                is_dead |= !is_site;
                at = end;
                continue;
            }
            let instruction = self.decode(at)?;
            // Behind a jump or a return there may be no code, but there is padding.
            if is_dead && instruction.mnemonic() != Mnemonic::Nop {
                return None;
            }
            if let Some(plan) = self.neighbour_at(at, 0, to) {
                return Some(plan);
            }
            is_dead |= matches!(
                instruction.flow_control(),
                FlowControl::UnconditionalBranch
                    | FlowControl::Return
                    | FlowControl::IndirectBranch
            );
            at = instruction.next_ip();
        }
        None
    }

    fn neighbour_before(&self, from: u64) -> Option<Plan> {
        let mut at = self.surroundings.instruction_before(self.site.address())?;
        while at + MAX_INSTRUCTION_LEN as u64 > from {
            if let Some(plan) = self.neighbour_at(at, from, self.site.address() - 1) {
                return Some(plan);
            }
            at = self.surroundings.instruction_before(at)?;
        }
        None
    }

    /// Evicts the instruction at an address, if that makes room for a jump between these two.
    fn neighbour_at(&self, at: u64, from: u64, to: u64) -> Option<Plan> {
        if self.surroundings.is_unsettled(at) {
            return None;
        }
        let victim = self.victim(at)?;
        (3..victim.len())
            .filter(|inner| (from..=to).contains(&(at + *inner as u64)))
            .find_map(|inner| self.neighbour_with(&victim, inner))
    }

    /// The victim's own jump is its first byte on, the site's jump is at `inner`. If they overlap,
    /// the last byte of the victim's displacement is the first of the site's.
    fn neighbour_with(&self, victim: &Instruction, inner: usize) -> Option<Plan> {
        let address = self.site.address();
        let victim_at = victim.ip();
        let victim_end = victim.next_ip();
        let inner_at = victim_at + inner as u64;
        if (victim_at..victim_end).any(|byte| self.claims.dependant(byte).is_some()) {
            return None;
        }
        let reads_to = (inner_at + 5).max(victim_at + 5).max(victim_end);
        if victim_at < address && reads_to > address {
            // The site itself is about to change.
            return None;
        }
        self.settled(victim_end, reads_to).ok()?;
        // With three bytes before it, the site's jump shares its first displacement byte.
        let choices: &[Option<u8>] = if inner == 3 { &SHARED_CHOICES } else { &[None] };
        for choice in choices {
            let mut site_given = self.given(inner_at, victim_end)?;
            if let Some(choice) = choice {
                match site_given.0[0] {
                    Some(byte) if byte != *choice => continue,
                    _ => site_given.0[0] = Some(*choice),
                }
            }
            let Some(allowed) = site_given.targets(inner_at + 5) else {
                continue;
            };
            let Some(target) = self.surroundings.place(allowed, self.trampoline_len, None) else {
                continue;
            };
            let site_displacement = displacement(inner_at + 5, target);
            let mut victim_given = self.given(victim_at, victim_end)?;
            for (index, byte) in victim_given.0.iter_mut().enumerate() {
                let position = index + 1;
                if position == inner {
                    *byte = Some(JUMP);
                } else if position > inner {
                    *byte = Some(site_displacement[position - inner - 1]);
                }
            }
            let taken = Some((target, self.trampoline_len));
            let Some(victim_allowed) = victim_given.targets(victim_at + 5) else {
                continue;
            };
            let Some(victim_target) =
                self.surroundings
                    .place(victim_allowed, MAX_RELOCATED_LEN, taken)
            else {
                continue;
            };
            let mut edit = Edit::new(victim_at);
            let mut bytes = [0; MAX_INSTRUCTION_LEN];
            let old = self.code.from(victim_at);
            bytes[..victim.len()].copy_from_slice(&old[..victim.len()]);
            bytes[0] = JUMP;
            bytes[1..5].copy_from_slice(&displacement(victim_at + 5, victim_target));
            bytes[inner] = JUMP;
            for (index, byte) in site_displacement.into_iter().enumerate() {
                if let Some(place) = bytes.get_mut(inner + 1 + index) {
                    *place = byte;
                }
            }
            edit.push(&bytes[..victim.len()]);
            let mut plan = Plan::new(Tactic::NeighbourEviction, address);
            plan.trampoline = Some(target);
            plan.allowed = Some(allowed);
            plan.evicted = Some(Evicted {
                instruction: *victim,
                trampoline: victim_target,
            });
            plan.push(edit, victim_end, reads_to);
            let mut short = Edit::new(address);
            short.push(&[
                SHORT_JUMP,
                inner_at.wrapping_sub(address + SHORT_JUMP_LEN) as u8,
            ]);
            let end = self.site.instruction.next_ip();
            plan.push(short, end, end);
            return Some(plan);
        }
        None
    }

    /// A breakpoint, if nothing faults by itself. It is one byte, so branches into the instruction
    /// do not matter.
    fn trap(&self) -> Result<Plan, PlanError> {
        let address = self.site.address();
        if !self.site.is_silent() {
            return Ok(Plan::new(Tactic::Fault, address));
        }
        if let Some(other) = self
            .claims
            .dependant(address)
            .or(self.claims.owner(address))
        {
            return Err(PlanError::Blocked(other));
        }
        let mut plan = Plan::new(Tactic::Breakpoint, address);
        let mut edit = Edit::new(address);
        edit.push(&[BREAKPOINT]);
        let end = self.site.instruction.next_ip();
        plan.push(edit, end, end);
        Ok(plan)
    }
}

/// Prefixes and the opcode of a jump with so much padding.
fn opening(padding: usize) -> [u8; MAX_INSTRUCTION_LEN] {
    let mut bytes = [PADDING; MAX_INSTRUCTION_LEN];
    bytes[padding] = JUMP;
    bytes
}

/// The part of a jump that lies in the instruction that it replaces.
fn jump_edit(address: u64, padding: usize, instruction_end: u64, target: u64) -> Edit {
    let mut edit = Edit::new(address);
    edit.push(&opening(padding)[..=padding]);
    let at = address + padding as u64 + 1;
    let own = ((instruction_end - at) as usize).min(DISPLACEMENT_LEN);
    edit.push(&displacement(at + DISPLACEMENT_LEN as u64, target)[..own]);
    edit
}

/// All values of the byte that decides how far a jump goes, the nearest first.
fn search_order() -> impl Iterator<Item = u8> {
    (0..=127u8).flat_map(|near| [near, !near])
}

const SHARED_CHOICES: [Option<u8>; 256] = {
    let mut choices = [None; 256];
    let mut value = 0;
    while value < 256 {
        choices[value] = Some(value as u8);
        value += 1;
    }
    choices
};
