//! Which power failures during recovery are tried, where many are alike.
//!
//! After most crashes recovery makes the same stores in the same order, with other values at other places. What it does
//! after it was interrupted there takes an execution for each of them, because it reads all that it reads. So of the
//! interruptions of the whole run that are alike only a few are tried, once there are many: those at the earliest failure
//! points. What is left out is counted and reported; `--exhaustive` tries all.

use powerfail_explore::lazy::nested::NestedPoint;
use powerfail_model::EventIndex;
use powerfail_oracle::Logged;
use rustc_hash::{FxHashMap, FxHashSet};
use xxhash_rust::xxh3::Xxh3;

use super::leaves::LoggedExecution;

/// How many interruptions that are alike are tried.
const ALIKE_MAX: usize = 2;
/// So many are tried in any case: short runs are explored completely.
const FEW: usize = 64;

/// An execution, and where the power fails in it.
pub(crate) struct InterruptedExecution {
    pub(crate) execution: LoggedExecution,
    pub(crate) points: Vec<NestedPoint>,
}

/// What interruptions have in common that are alike: the instructions that stored in the whole recovery, how many of these
/// stores were made before the power failed, and for each line that they changed, how many contents it can have. A store
/// that changes nothing makes no further content, so a recovery that stores the existing value again is not alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Kind(u128);

impl Kind {
    fn of(recovery: &[Logged], point: &NestedPoint) -> Self {
        /// Modules are loaded at multiples of this, which differ from process to process.
        const PAGE: u64 = 4096;
        let is_store = |logged: &&Logged| !logged.bytes.is_empty();
        let mut hasher = Xxh3::new();
        for store in recovery.iter().filter(is_store) {
            hasher.update(&(store.site % PAGE).to_le_bytes());
        }
        let before = recovery.iter().take(point.position).filter(is_store);
        let table = &point.crash.table;
        let line_bytes = table.line_bytes as u64;
        let mut count = 0_u64;
        let mut stored = FxHashSet::default();
        for store in before {
            count += 1;
            let end = store.offset.saturating_add(store.bytes.len() as u64);
            stored.extend(store.offset / line_bytes..end.div_ceil(line_bytes));
        }
        hasher.update(&count.to_le_bytes());
        for line in &table.lines {
            if stored.contains(&line.id.line.0) {
                hasher.update(&(line.contents.len() as u64).to_le_bytes());
            }
        }
        Self(hasher.digest128())
    }
}

/// The interruptions of a run that are tried.
#[derive(Debug, Default)]
pub(crate) struct ChosenInterruptions {
    kinds: FxHashMap<Kind, Vec<(EventIndex, u128)>>,
    count: usize,
}

impl ChosenInterruptions {
    /// Leaves those at a failure point that are to be tried, after all earlier failure points have chosen; how many were left
    /// out. What was chosen in an earlier turn stays chosen.
    pub(crate) fn choose(
        &mut self,
        at: EventIndex,
        interrupted: &mut Vec<InterruptedExecution>,
    ) -> u64 {
        let mut alike = 0;
        for InterruptedExecution { execution, points } in interrupted.iter_mut() {
            points.retain(|point| {
                let kind = Kind::of(&execution.log, point);
                let chosen = self.kinds.entry(kind).or_default();
                let this = (at, point.crash.digest());
                if chosen.contains(&this) {
                    return true;
                }
                let is_tried = chosen.len() < ALIKE_MAX || self.count < FEW;
                if is_tried {
                    chosen.push(this);
                    self.count += 1;
                } else {
                    alike += 1;
                }
                is_tried
            });
        }
        interrupted.retain(|it| !it.points.is_empty());
        alike
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use powerfail_explore::lazy::CrashTable;
    use powerfail_explore::lazy::nested::CrashPoint;
    use powerfail_model::{PoolIndex, Rules};
    use powerfail_oracle::LogKind;

    use super::*;
    use crate::lazy::executor::Pools;
    use crate::lazy::nested::points_in;

    /// A recovery that stores eight bytes at two places, each with a fence behind it, by instructions from `code` on.
    fn recovery(offset: u64, value: u8, code: u64) -> InterruptedExecution {
        let event = |kind, offset, bytes: &[u8], site| Logged {
            kind,
            pool: 0,
            offset,
            bytes: bytes.to_vec(),
            len: 8,
            site,
            thread: 1,
            choices: 0,
        };
        let mut log = Vec::new();
        for (offset, site) in [(offset, code), (offset + 256, code + 32)] {
            log.push(event(LogKind::Store, offset, &[value; 8], site));
            log.push(event(LogKind::FlushOptimized, offset, &[], site + 8));
            log.push(event(LogKind::Fence, 0, &[], site + 16));
        }
        let execution = LoggedExecution {
            classes: Vec::new(),
            choices: Vec::new(),
            log,
            modules: None,
        };
        let crash = CrashPoint::first(CrashTable {
            line_bytes: 64,
            ..CrashTable::default()
        });
        let pools = Pools {
            paths: vec!["pool".into()],
            indices: vec![Some(PoolIndex(0))],
        };
        let image = |_, out: &mut [u8]| out.fill(0);
        let mut keys = HashSet::new();
        let rules = Rules::default();
        let points = points_in(rules, &image, &crash, &pools, &execution, &mut keys);
        InterruptedExecution { execution, points }
    }

    /// How many points are left, and how many are not.
    fn choose(
        chosen: &mut ChosenInterruptions,
        at: u64,
        one: InterruptedExecution,
    ) -> (usize, u64) {
        let mut all = vec![one];
        let alike = chosen.choose(EventIndex(at), &mut all);
        (all.iter().map(|it| it.points.len()).sum(), alike)
    }

    /// A run that has tried a few.
    fn in_a_long_run() -> ChosenInterruptions {
        ChosenInterruptions {
            count: FEW,
            ..ChosenInterruptions::default()
        }
    }

    #[test]
    fn a_few_are_tried_in_any_case() {
        let mut chosen = ChosenInterruptions::default();
        let left =
            (0..2 * FEW as u64).map(|at| choose(&mut chosen, at, recovery(at * 4096, 1, 0x1010)));
        assert_eq!(left.map(|(left, _)| left).sum::<usize>(), FEW);
    }

    #[test]
    fn two_of_those_that_are_alike_are_tried() {
        let mut chosen = in_a_long_run();
        let all = recovery(0, 1, 0x1010).points.len();
        assert!(all >= 2, "before each fence: {all}");
        assert_eq!(choose(&mut chosen, 1, recovery(0, 1, 0x1010)), (all, 0));
        // Other values at other places, and the module elsewhere.
        assert_eq!(choose(&mut chosen, 2, recovery(4096, 2, 0x7010)), (all, 0));
        let third = choose(&mut chosen, 3, recovery(8192, 3, 0x1010));
        assert_eq!(third, (0, all as u64));
        // What was chosen stays chosen.
        assert_eq!(choose(&mut chosen, 2, recovery(4096, 2, 0x7010)), (all, 0));
    }

    #[test]
    fn other_instructions_and_other_numbers_of_contents_are_not_alike() {
        let mut chosen = in_a_long_run();
        let all = recovery(0, 1, 0x1010).points.len();
        for at in 0..2 {
            let place = 4096 * at;
            let taken = choose(&mut chosen, at, recovery(place, 1, 0x1010));
            assert_eq!(taken, (all, 0));
        }
        assert_eq!(choose(&mut chosen, 2, recovery(0, 1, 0x1020)), (all, 0));
        // It stores the existing value again.
        let silent = recovery(0, 0, 0x1010);
        let all = silent.points.len();
        assert!(all > 0);
        assert_eq!(choose(&mut chosen, 3, silent), (all, 0));
    }
}
