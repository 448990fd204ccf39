//! Leaves out of a new test case what its news do not need. It will be run thousands of times, recorded and checked:
//! a few runs now are worth it.

use super::input::CaseInput;
use super::{Engine, RunResult};
use crate::Target;
use crate::coverage::Footprint;
use crate::minimise::trim_lines;

/// How many runs that may take.
const RUNS_MAX: usize = 48;
/// So few lines cost nothing.
const LINES_FEW: usize = 4;

/// What is new in a test case.
pub(super) struct NewCoverage<'a> {
    pub(super) locations: &'a [u32],
    pub(super) changed: &'a [u32],
    pub(super) branches: usize,
}

impl Engine {
    /// Leaves out lines of an input that has just been run and found to do something new, with what the run was.
    pub(super) fn shorten<T: Target>(
        &mut self,
        target: &mut T,
        input: &mut CaseInput,
        looked: &mut RunResult,
        footprint: &mut Footprint,
        news: &NewCoverage<'_>,
    ) -> Result<(), T::Error> {
        let lines = input.bytes.split(|byte| *byte == b'\n').count();
        if lines <= LINES_FEW + 1 {
            return Ok(());
        }
        let image = self.images.id(input.image);
        let mut failed = None;
        let shorter = trim_lines(&input.bytes, RUNS_MAX, |bytes| {
            if failed.is_some() {
                return false;
            }
            let execution = match target.run(image, bytes) {
                Ok(execution) => execution,
                Err(error) => {
                    failed = Some(error);
                    return false;
                }
            };
            self.stats.executions += 1;
            if !execution.end.is_normal() {
                return false;
            }
            let touched = Footprint {
                pm: self.pm.touched(execution.pm),
                branches: self.branches.touched(execution.branches),
            };
            let (locations, changed) = self.pm.news(&touched.pm);
            let (new, other) = self.branches.news(&touched.branches);
            let all = |these: &[u32], those: &[u32]| these.iter().all(|it| those.contains(it));
            let is_kept = all(news.locations, &locations)
                && all(news.changed, &changed)
                && new.len() + other.len() >= news.branches;
            if is_kept {
                *footprint = touched;
                looked.elapsed = execution.elapsed;
                looked.path = self.pm.look(execution.pm).1;
            }
            is_kept
        });
        if let Some(error) = failed {
            return Err(error);
        }
        input.bytes = shorter;
        Ok(())
    }
}
