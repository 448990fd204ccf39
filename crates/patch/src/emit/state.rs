//! Where the target's registers are while a trampoline runs.

use powerfail_protocol::ScratchSlot;

const MAX_CHANGES: usize = 64;

/// Emitted code.
#[derive(Clone, Copy, Debug)]
pub struct Trampoline {
    /// Its length.
    pub len_bytes: usize,
    /// Where the target's registers are in it.
    pub states: StateMap,
    /// Offset of the instruction that does the work through the alias. A fault there or before is
    /// one of the patched instruction, with the registers that [`StateMap`] finds (but the x87 stack
    /// is popped before). None if the instruction itself does the work, with all registers its own.
    pub work_at: Option<usize>,
    /// Offset from which on the record, or what it will say, is out of date after a handler of the target has run, if it is
    /// before the work.
    pub committed_at: Option<usize>,
    /// If that instruction can be interrupted in the middle: how to finish its work.
    pub repeated_work: Option<RepeatedWork>,
    /// The same for pools that are shared.
    pub locked_work: Option<LockedWork>,
    /// What depends on where it lies.
    pub ways_out: WaysOut,
}

const MAX_WAYS_OUT: usize = 8;

/// What depends on where code lies: displacements of jumps to code outside, of four bytes each.
#[derive(Clone, Copy, Debug, Default)]
pub struct WaysOut {
    offsets: [u16; MAX_WAYS_OUT],
    count: usize,
    /// Something else depends on it, too.
    is_incomplete: bool,
}

impl WaysOut {
    pub(crate) fn add(&mut self, offset: usize) {
        match self.offsets.get_mut(self.count) {
            Some(place) => {
                *place = offset as u16;
                self.count += 1;
            }
            None => self.is_incomplete = true,
        }
    }

    pub(crate) fn add_unknown(&mut self) {
        self.is_incomplete = true;
    }

    /// Lets code that was emitted for one address run at another one. Whether that is possible: if not, the code is
    /// unchanged, and must be emitted anew.
    pub fn move_code(&self, code: &mut [u8], from: u64, to: u64) -> bool {
        let mut moved = [[0; 4]; MAX_WAYS_OUT];
        if self.is_incomplete {
            return false;
        }
        let offsets = || self.offsets[..self.count].iter().map(|at| usize::from(*at));
        for (at, moved) in offsets().zip(&mut moved) {
            let Some(displacement) = code.get(at..at + 4).and_then(|it| it.try_into().ok()) else {
                return false;
            };
            let target = from.wrapping_add_signed(i64::from(i32::from_le_bytes(displacement)));
            let Ok(displacement) = i32::try_from(target.wrapping_sub(to).cast_signed()) else {
                return false;
            };
            *moved = displacement.to_le_bytes();
        }
        for (at, moved) in offsets().zip(moved) {
            code[at..at + 4].copy_from_slice(&moved);
        }
        true
    }
}

/// Work that is done by an instruction that can be interrupted in the middle, without a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepeatedWork {
    /// The number of the register that has the address of the record.
    pub record: u8,
    /// Offset behind the instruction.
    pub done_at: usize,
}

/// The part of a trampoline in which a thread may hold store locks. It does if a lock that it names has its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockedWork {
    /// The number of the register that has the address of the record.
    pub record: u8,
    /// Offset of the instruction that does the work.
    pub work_at: usize,
    /// Offset behind the one that gives the last lock back.
    pub released_at: usize,
    /// How the work is done.
    pub form: WorkForm,
}

/// How the work is done under a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkForm {
    /// By one instruction.
    Whole,
    /// By one instruction that may not succeed: the zero flag says so at this offset.
    Exchange {
        /// Of the next instruction.
        behind_work_at: usize,
    },
    /// By an instruction that can be interrupted in the middle.
    Repeated,
    /// By several instructions, and what is stored is nowhere but in the record.
    Popped,
}

/// What to do with a store whose thread was interrupted while it held locks, before they are given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interruption {
    /// It has not happened: its record is void, and the instruction begins again.
    Undo,
    /// It has happened: go on where the locks are given back.
    Done,
    /// It has happened in part: store what the record says, then go on where the locks are given back.
    Complete,
}

impl LockedWork {
    /// For a thread that holds locks and whose next instruction is at `offset`.
    pub fn interrupted_at(&self, offset: usize, zero_flag: bool) -> Interruption {
        let is_behind_work = (self.work_at + 1..self.released_at).contains(&offset);
        match self.form {
            WorkForm::Popped => Interruption::Complete,
            WorkForm::Repeated if is_behind_work || offset == self.work_at => {
                Interruption::Complete
            }
            WorkForm::Exchange { behind_work_at } if offset == behind_work_at && !zero_flag => {
                Interruption::Undo
            }
            _ if is_behind_work => Interruption::Done,
            _ => Interruption::Undo,
        }
    }
}

/// For every offset in a trampoline: which of the target's registers are in their slots. All others
/// are where they belong. What slots hold is the state of before the instruction (of a `rep`
/// instruction: of before the piece that is being worked on), until the work is done.
#[derive(Clone, Copy, Debug)]
pub struct StateMap {
    changes: [(u16, u32); MAX_CHANGES],
    count: usize,
}

impl Default for StateMap {
    fn default() -> Self {
        Self {
            changes: [(0, 0); MAX_CHANGES],
            count: 0,
        }
    }
}

impl StateMap {
    pub(crate) const FLAGS: u8 = 16;

    pub(crate) fn last(&self) -> u32 {
        self.count
            .checked_sub(1)
            .map_or(0, |last| self.changes[last].1)
    }

    pub(crate) fn set(&mut self, offset: usize, state: u32) {
        if state == self.last() {
            return;
        }
        // A full table forgets the finest steps, never the code: the emitter's tests see to it that
        // this does not happen.
        debug_assert!(
            self.count < MAX_CHANGES,
            "a trampoline with too many changes of state"
        );
        if let Some(change) = self.changes.get_mut(self.count) {
            *change = (offset as u16, state);
            self.count += 1;
        }
    }

    pub(crate) fn spill(&mut self, offset: usize, bit: u8) {
        self.set(offset, self.last() | 1 << bit);
    }

    pub(crate) fn restore(&mut self, offset: usize, bit: u8) {
        self.set(offset, self.last() & !(1 << bit));
    }

    /// The slots that hold what the target's registers were, for a thread whose next instruction is
    /// at `offset`: [`ScratchSlot::Register`] and [`ScratchSlot::Flags`].
    pub fn slots_at(&self, offset: usize) -> impl Iterator<Item = ScratchSlot> + use<> {
        slots_at(&self.changes[..self.count], offset)
    }

    /// The same in as much memory as it needs.
    pub fn kept(&self) -> KeptStates {
        KeptStates(self.changes[..self.count].into())
    }
}

/// A [`StateMap`] that is kept.
#[derive(Clone, Debug)]
pub struct KeptStates(Box<[(u16, u32)]>);

impl KeptStates {
    /// As [`StateMap::slots_at`].
    pub fn slots_at(&self, offset: usize) -> impl Iterator<Item = ScratchSlot> + use<> {
        slots_at(&self.0, offset)
    }
}

fn slots_at(changes: &[(u16, u32)], offset: usize) -> impl Iterator<Item = ScratchSlot> + use<> {
    let mut before = changes.iter().rev();
    let state = before
        .find(|(from, _)| usize::from(*from) <= offset)
        .map_or(0, |(_, state)| *state);
    (0..=StateMap::FLAGS)
        .filter(move |bit| state & 1 << bit != 0)
        .map(|bit| {
            if bit == StateMap::FLAGS {
                ScratchSlot::Flags
            } else {
                ScratchSlot::Register(bit)
            }
        })
}

#[cfg(test)]
mod tests {
    use super::{Interruption, LockedWork, ScratchSlot, StateMap, WorkForm};

    #[test]
    fn a_store_is_undone_until_its_work_is_done() {
        let at = |form, offset, zero_flag| {
            let work = LockedWork {
                record: 7,
                work_at: 20,
                released_at: 40,
                form,
            };
            work.interrupted_at(offset, zero_flag)
        };
        for (offset, whole, repeated) in [
            (10, Interruption::Undo, Interruption::Undo),
            (20, Interruption::Undo, Interruption::Complete),
            (30, Interruption::Done, Interruption::Complete),
            (60, Interruption::Undo, Interruption::Undo),
        ] {
            assert_eq!(at(WorkForm::Whole, offset, false), whole);
            assert_eq!(at(WorkForm::Repeated, offset, false), repeated);
            assert_eq!(at(WorkForm::Popped, offset, false), Interruption::Complete);
        }
        let exchange = WorkForm::Exchange { behind_work_at: 25 };
        assert_eq!(at(exchange, 25, false), Interruption::Undo);
        assert_eq!(at(exchange, 25, true), Interruption::Done);
        assert_eq!(at(exchange, 31, false), Interruption::Done);
    }

    #[test]
    fn changes_hold_from_their_offset() {
        let mut states = StateMap::default();
        states.spill(9, 6);
        states.spill(20, StateMap::FLAGS);
        states.restore(30, 6);
        let slots = |offset| states.slots_at(offset).collect::<Vec<_>>();
        assert_eq!(slots(0), []);
        assert_eq!(slots(9), [ScratchSlot::Register(6)]);
        assert_eq!(slots(25), [ScratchSlot::Register(6), ScratchSlot::Flags]);
        assert_eq!(slots(30), [ScratchSlot::Flags]);
        let kept = states.kept();
        for offset in 0..40 {
            assert_eq!(kept.slots_at(offset).collect::<Vec<_>>(), slots(offset));
        }
    }
}
