//! The code around an instruction, as far as planning a patch needs it: branch targets, instruction boundaries, and
//! which neighbours may be patched later.

use core::cell::RefCell;
use std::collections::BTreeSet;

use powerfail_patch::tactic::{Surroundings, Targets};
use powerfail_patch::{Classifier, MAX_INSTRUCTION_LEN, Scanned};

use crate::patching::arenas::Arenas;
use crate::patching::modules::Function;

/// The instructions of a function.
pub(crate) struct FunctionLayout {
    function_start: u64,
    /// Where control can come to other than from the instruction before, in order.
    branch_targets: Vec<u64>,
    /// A bit for each byte of the function: whether an instruction begins there.
    starts: Vec<u64>,
}

impl FunctionLayout {
    /// Shows every instruction of a function, and gives what is to be remembered of it.
    pub(crate) fn of(
        classifier: &mut Classifier,
        function: Function,
        bytes: &[u8],
        mut visit: impl FnMut(&Scanned),
    ) -> Self {
        let mut starts = vec![0; bytes.len().div_ceil(64)];
        let mut branch_targets = Vec::new();
        classifier.scan(bytes, function.start, |scanned| {
            visit(&scanned);
            let (word, bit) = place_of(scanned.address - function.start);
            starts[word] |= bit;
            branch_targets.extend(scanned.branch_target);
        });
        branch_targets.sort_unstable();
        Self {
            function_start: function.start,
            branch_targets,
            starts,
        }
    }

    /// Whether an instruction begins at an address.
    fn is_start(&self, address: u64) -> bool {
        let offset = address.checked_sub(self.function_start);
        offset.is_some_and(|offset| {
            let (word, bit) = place_of(offset);
            self.starts.get(word).is_some_and(|word| word & bit != 0)
        })
    }

    /// Where instructions begin in a range.
    pub(crate) fn starts_in(&self, from: u64, to: u64) -> impl Iterator<Item = u64> + use<'_> {
        (from..to).filter(|address| self.is_start(*address))
    }
}

/// The word and the bit of a byte of a function.
const fn place_of(offset: u64) -> (usize, u64) {
    ((offset / 64) as usize, 1 << (offset % 64))
}

/// What the planner asks.
pub(crate) struct PlanContext<'a> {
    pub(crate) arenas: &'a RefCell<Arenas>,
    pub(crate) layout: Option<&'a FunctionLayout>,
    /// Instructions near the site that may be patched later.
    pub(crate) unsettled: BTreeSet<u64>,
    pub(crate) function_end: u64,
}

impl Surroundings for PlanContext<'_> {
    fn is_branch_target(&self, address: u64) -> bool {
        // Of what is behind the function nothing is known.
        let is_target =
            |layout: &FunctionLayout| layout.branch_targets.binary_search(&address).is_ok();
        address >= self.function_end || self.layout.is_some_and(is_target)
    }

    fn instruction_before(&self, address: u64) -> Option<u64> {
        let layout = self.layout?;
        let mut before = (address.saturating_sub(MAX_INSTRUCTION_LEN as u64)..address).rev();
        layout.is_start(address).then_some(())?;
        before.find(|before| layout.is_start(*before))
    }

    fn is_unsettled(&self, address: u64) -> bool {
        self.unsettled.contains(&address)
    }

    fn place(&self, targets: Targets, len: usize, taken: Option<(u64, usize)>) -> Option<u64> {
        let taken = taken.map(|(at, len)| (at, len as u64));
        self.arenas.borrow_mut().place(targets, len as u64, taken)
    }
}
