//! Runs a new test case several times. Locations that differ between its runs are unstable, and are ignored from then on.

use super::input::CaseInput;
use super::{Engine, Unstable};
use crate::coverage::{Footprint, Touched};
use crate::{End, Target};

/// If runs differ, this many times as many runs are made, to find more unstable locations.
const MORE_RUNS: u32 = 3;

impl Engine {
    /// Ignores the locations that differ between the run with this footprint and further runs of the same input, and
    /// removes them from the footprint.
    pub(super) fn calibrate<T: Target>(
        &mut self,
        target: &mut T,
        input: &CaseInput,
        end: End,
        footprint: &mut Footprint,
    ) -> Result<(), T::Error> {
        let image = self.images.id(input.image);
        let mut unstable = Unstable::default();
        // The end of a hang depends on time, and it costs as much as hundreds of runs.
        let mut runs = if end == End::Timeout {
            0
        } else {
            self.options.calibration_runs
        };
        let mut run = 0;
        while run < runs {
            run += 1;
            let execution = target.run(image, &input.bytes)?;
            self.stats.executions += 1;
            // A run that ends in another way lacks later locations, which does not make them unstable.
            if execution.end.is_normal() != end.is_normal() || execution.end == End::Timeout {
                continue;
            }
            let (pm, branches) = (
                self.pm.touched(execution.pm),
                self.branches.touched(execution.branches),
            );
            let before = unstable.pm.len() + unstable.branches.len();
            differences(&footprint.pm, &pm, &mut unstable.pm);
            differences(&footprint.branches, &branches, &mut unstable.branches);
            if before == 0 && unstable.pm.len() + unstable.branches.len() > 0 {
                runs *= MORE_RUNS;
            }
        }
        if !unstable.pm.is_empty() || !unstable.branches.is_empty() {
            self.ignore(&unstable);
            footprint
                .pm
                .retain(|touched| !unstable.pm.contains(&touched.location));
            footprint
                .branches
                .retain(|touched| !unstable.branches.contains(&touched.location));
        }
        Ok(())
    }
}

/// Adds the locations at which two runs differ.
fn differences(one: &[Touched], other: &[Touched], unstable: &mut Vec<u32>) {
    let mut add = |location| {
        if !unstable.contains(&location) {
            unstable.push(location);
        }
    };
    let (mut ones, mut others) = (one.iter().peekable(), other.iter().peekable());
    loop {
        match (ones.peek(), others.peek()) {
            (Some(a), Some(b)) if a == b => {
                ones.next();
                others.next();
            }
            (Some(a), Some(b)) => {
                let location = a.location.min(b.location);
                add(location);
                ones.next_if(|touched| touched.location == location);
                others.next_if(|touched| touched.location == location);
            }
            (Some(a), None) => {
                add(a.location);
                ones.next();
            }
            (None, Some(b)) => {
                add(b.location);
                others.next();
            }
            (None, None) => break,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touched(list: &[(u32, u8)]) -> Vec<Touched> {
        list.iter()
            .map(|&(location, bucket)| Touched { location, bucket })
            .collect()
    }

    #[test]
    fn all_differences_are_found() {
        let mut unstable = vec![90];
        let one = touched(&[(1, 1), (2, 1), (3, 1), (7, 1), (90, 1)]);
        let other = touched(&[(1, 1), (2, 2), (4, 1), (7, 1), (100, 1)]);
        differences(&one, &other, &mut unstable);
        unstable.sort_unstable();
        assert_eq!(unstable, [2, 3, 4, 90, 100]);
        differences(&one, &one, &mut Vec::new());
    }
}
