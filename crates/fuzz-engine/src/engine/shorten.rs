//! Removes lines from a new test case that its new coverage does not need. The test case will be run thousands of times,
//! recorded and checked, so a few runs now are worth it.

use super::input::CaseInput;
use super::{Engine, RunResult};
use crate::Target;
use crate::coverage::Footprint;
use crate::minimise::trim_lines;

/// The maximum number of runs.
const RUNS_MAX: u64 = 48;
/// Inputs with at most this many lines are not shortened.
const LINES_FEW: usize = 4;

/// The new coverage of a test case.
pub(super) struct NewCoverage<'a> {
    pub(super) locations: &'a [u32],
    pub(super) changed: &'a [u32],
    pub(super) branches: usize,
}

impl Engine {
    /// Shortens an input that was just run and is new, and updates the result and the coverage of its run.
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
