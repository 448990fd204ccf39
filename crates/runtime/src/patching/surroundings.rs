//! The code around an instruction, as far as planning a patch needs it: branch targets, instruction boundaries, and
//! which neighbours may be patched later.

use core::cell::RefCell;
use std::collections::BTreeSet;

use powerfail_patch::tactic::{Surroundings, Targets};
use powerfail_patch::{Classifier, Scanned};

use crate::patching::arenas::Arenas;
use crate::patching::modules::Function;

/// The instructions of a function.
pub(crate) struct FunctionLayout {
    /// Where control can come to other than from the instruction before, in order.
    branch_targets: Vec<u64>,
    /// Where instructions begin, in order.
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
        let mut layout = Self {
            branch_targets: Vec::new(),
            starts: Vec::new(),
        };
        classifier.scan(bytes, function.start, |scanned| {
            visit(&scanned);
            layout.starts.push(scanned.address);
            layout.branch_targets.extend(scanned.branch_target);
        });
        layout.branch_targets.sort_unstable();
        layout
    }

    /// Where instructions begin in a range.
    pub(crate) fn starts_in(&self, from: u64, to: u64) -> &[u64] {
        let first = self.starts.partition_point(|start| *start < from);
        let behind = self.starts.partition_point(|start| *start < to);
        &self.starts[first..behind.max(first)]
    }
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
        let starts = &self.layout?.starts;
        let at = starts.binary_search(&address).ok()?;
        starts.get(at.checked_sub(1)?).copied()
    }

    fn is_unsettled(&self, address: u64) -> bool {
        self.unsettled.contains(&address)
    }

    fn place(&self, targets: Targets, len: usize, taken: Option<(u64, usize)>) -> Option<u64> {
        let taken = taken.map(|(at, len)| (at, len as u64));
        self.arenas.borrow_mut().place(targets, len as u64, taken)
    }
}
