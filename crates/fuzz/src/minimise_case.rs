//! `tmin`: makes the input of a test case as small as possible while it reaches the same.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use powerfail_fuzz_engine::Footprint;
use powerfail_fuzz_engine::minimise::{Trials, minimise};
use powerfail_fuzz_store::{MinimisedInput, MinimisedState, TestCase};
use powerfail_recorder::executor::End;
use rustc_hash::FxHashSet;

use crate::error::CampaignError;
use crate::minimise_corpus::CaseRunner;
use crate::observer::CampaignObserver;

/// The maximum number of executions.
const EXECUTIONS_MAX: u64 = 100_000;

/// The result of minimising a test case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinimisedCase {
    /// The smaller test case.
    pub case: TestCase,
    /// How far it is minimised.
    pub minimised: MinimisedInput,
}

/// What a test case does: the locations that it reaches, and how it ends. How often it reaches them does not matter.
struct Effect {
    pm: FxHashSet<u32>,
    branches: FxHashSet<u32>,
    end: End,
}

impl Effect {
    fn of((footprint, end): (Footprint, End)) -> Self {
        Self {
            pm: footprint.pm.iter().map(|it| it.location).collect(),
            branches: footprint.branches.iter().map(|it| it.location).collect(),
            end,
        }
    }

    /// Whether another test case does all of this. Of one that crashes or hangs, only the end counts.
    fn is_kept_by(&self, other: &Self) -> bool {
        if !matches!(self.end, End::Exit(_)) {
            return self.end == other.end;
        }
        self.end == other.end
            && self.pm.is_subset(&other.pm)
            && self.branches.is_subset(&other.branches)
    }
}

/// Makes the input of a test case smaller while it reaches the same locations and ends in the same way. Stops at the
/// deadline, or when the observer says so.
pub fn minimise_case(
    out: &Path,
    runtime: &Arc<[u8]>,
    case: &TestCase,
    deadline: Option<Instant>,
    observer: &dyn CampaignObserver,
) -> Result<MinimisedCase, CampaignError> {
    let mut runner = CaseRunner::open(out, runtime)?;
    let wanted = Effect::of(runner.reach(case)?);
    let mut now = MinimisedInput {
        state: MinimisedState::CutShort,
        from_bytes: case.input.len() as u64,
        to_bytes: case.input.len() as u64,
        trials: 0,
    };
    let mut failure = None;
    let mut trials = Trials::at_most(EXECUTIONS_MAX);
    let minimised = minimise(&case.input, &mut trials, &mut |input| {
        if observer.is_interrupted() || deadline.is_some_and(|it| Instant::now() >= it) {
            return ControlFlow::Break(());
        }
        let smaller = TestCase {
            image: case.image,
            input: input.to_vec(),
        };
        let reached = match runner.reach(&smaller) {
            Ok(reached) => Effect::of(reached),
            Err(error) => {
                failure = Some(error);
                return ControlFlow::Break(());
            }
        };
        now.trials += 1;
        let is_kept = wanted.is_kept_by(&reached);
        if is_kept {
            now.to_bytes = input.len() as u64;
        }
        observer.minimising(&now);
        ControlFlow::Continue(is_kept)
    });
    if let Some(error) = failure.filter(|it| !matches!(it, CampaignError::Interrupted)) {
        return Err(error);
    }
    if minimised.is_minimal {
        now.state = MinimisedState::Complete;
    }
    Ok(MinimisedCase {
        case: TestCase {
            image: case.image,
            input: minimised.input,
        },
        minimised: now,
    })
}
