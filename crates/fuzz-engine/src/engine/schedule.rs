//! Chooses the next test case and its number of runs: the weighted scheduler and the power schedule of `LibAFL`, with
//! priorities of PM paths.
//!
//! `LibAFL`'s own scheduler of favoured test cases is not used: its choice depends on the order of a hash
//! table, which differs from process to process.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use libafl::corpus::{
    Corpus, CorpusId, HasTestcase, InMemoryCorpus, SchedulerTestcaseMetadata, Testcase,
};
use libafl::schedulers::minimizer::{IsFavoredMetadata, TopRatedsMetadata};
use libafl::schedulers::powersched::{PowerSchedule, SchedulerMetadata};
use libafl::schedulers::testcase_score::{CorpusPowerTestcaseScore, CorpusWeightTestcaseScore};
use libafl::schedulers::{RemovableScheduler, Scheduler, TestcaseScore, WeightedScheduler};
use libafl::state::{HasCorpus, StdState};
use libafl::{Error, HasMetadata};
use libafl_bolts::rands::StdRand;
use libafl_bolts::tuples::tuple_list;
use libafl_bolts::{Named, impl_serdeany};
use serde::{Deserialize, Serialize};

use super::favoured::Favoured;
use super::input::CaseInput;
use crate::Priority;
use crate::coverage::Footprint;

/// The state of `LibAFL`, for our inputs.
pub(crate) type State =
    StdState<InMemoryCorpus<CaseInput>, CaseInput, StdRand, InMemoryCorpus<CaseInput>>;

/// After this many steps, weights are computed again even if nothing was added.
const STEPS_PER_TABLE: u64 = 64;

/// An input of this length is chosen half as often as a very short one.
const USUAL_LEN: f64 = 256.0;

/// Shorter run times are raised to this one, so that other runs do not look slow.
const SHORTEST_RUN: Duration = Duration::from_micros(1);

/// The path of a run, as an observer of `LibAFL`.
#[derive(Debug, Hash)]
struct PathTaken(u64);

impl Named for PathTaken {
    fn name(&self) -> &Cow<'static, str> {
        static NAME: Cow<'static, str> = Cow::Borrowed("path");
        &NAME
    }
}

impl AsRef<Self> for PathTaken {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// The priority of a test case, as metadata of `LibAFL`.
#[expect(
    clippy::unsafe_derive_deserialize,
    reason = "the unsafe methods are those of `LibAFL`'s macro"
)]
#[derive(Debug, Serialize, Deserialize)]
struct PriorityFactor {
    /// 1 for low, 2 for medium, 4 for high.
    factor: f64,
}

impl_serdeany!(PriorityFactor);

/// How often a test case is chosen.
#[derive(Debug)]
struct Weight;

impl TestcaseScore<CaseInput, State> for Weight {
    #[expect(clippy::cast_precision_loss, reason = "counts of steps are small")]
    fn compute(state: &State, entry: &mut Testcase<CaseInput>) -> Result<f64, Error> {
        let weight = CorpusWeightTestcaseScore::compute(state, entry)?;
        let factor = entry.metadata::<PriorityFactor>()?.factor;
        // A priority counts at first, and less with each step.
        let steps = entry.scheduled_count() as f64;
        // Long inputs cost more, and their mutations are hardly ever shorter.
        let len = entry.input().as_ref().map_or(0, |input| input.bytes.len()) as f64;
        let shortness = USUAL_LEN / (USUAL_LEN + len);
        Ok(weight * shortness * (1.0 + (factor - 1.0) / (1.0 + steps / 16.0)))
    }
}

/// The schedule of an engine.
#[derive(Debug)]
pub(crate) struct Schedule {
    scheduler: WeightedScheduler<PathTaken, Weight, PathTaken>,
    favoured: Favoured,
    steps: u64,
}

impl Schedule {
    pub(crate) fn new(state: &mut State) -> Self {
        let scheduler =
            WeightedScheduler::with_schedule(state, &PathTaken(0), Some(PowerSchedule::fast()));
        // LibAFL divides by its size.
        let mut top = TopRatedsMetadata::new();
        top.map.insert(usize::MAX, CorpusId(0));
        state.add_metadata(top);
        Self {
            scheduler,
            favoured: Favoured::default(),
            steps: 0,
        }
    }

    /// How many test cases are favoured.
    pub(crate) fn favoured(&self) -> usize {
        self.favoured.len()
    }

    /// Counts the path of a run. The power schedule gives less to paths that are taken often.
    pub(crate) fn ran(
        &mut self,
        state: &mut State,
        input: &CaseInput,
        path: u64,
    ) -> Result<(), Error> {
        self.scheduler
            .on_evaluation(state, input, &tuple_list!(PathTaken(path)))
    }

    /// Adds a test case.
    pub(crate) fn add(
        &mut self,
        state: &mut State,
        input: CaseInput,
        priority: Priority,
        footprint: &Arc<Footprint>,
        elapsed: Duration,
    ) -> Result<CorpusId, Error> {
        let elapsed = elapsed.max(SHORTEST_RUN);
        let size = (footprint.pm.len() + footprint.branches.len()).max(1) as u64;
        let len = input.bytes.len();
        let mut case = Testcase::new(input);
        case.set_exec_time(elapsed);
        let factor = match priority {
            Priority::High => 4.0,
            Priority::Medium => 2.0,
            Priority::Low => 1.0,
        };
        case.add_metadata(PriorityFactor { factor });
        let id = state.corpus_mut().add(case)?;
        self.scheduler.on_add(state, id)?;
        state
            .testcase_mut(id)?
            .metadata_mut::<SchedulerTestcaseMetadata>()?
            .set_bitmap_size(size);
        let all = state.metadata_mut::<SchedulerMetadata>()?;
        all.set_exec_time(all.exec_time() + elapsed);
        all.set_cycles(all.cycles() + 1);
        all.set_bitmap_size(all.bitmap_size() + size);
        #[expect(clippy::cast_precision_loss, reason = "maps are small")]
        all.set_bitmap_size_log(all.bitmap_size_log() + (size as f64).log2());
        all.set_bitmap_entries(all.bitmap_entries() + 1);
        let cost = elapsed.as_micros() as u64 * (len as u64 + 16);
        self.favoured.add(id.0, footprint, cost);
        Ok(id)
    }

    /// The test case of the next step, which becomes the current one, and its number of runs before limits.
    pub(crate) fn next(&mut self, state: &mut State) -> Result<(CorpusId, f64), Error> {
        if let Some((gone, come)) = self.favoured.choose() {
            for id in gone {
                let _ = state
                    .testcase_mut(CorpusId(id))?
                    .metadata_map_mut()
                    .remove::<IsFavoredMetadata>();
            }
            for id in come {
                state
                    .testcase_mut(CorpusId(id))?
                    .add_metadata(IsFavoredMetadata {});
            }
            self.update_weights(state)?;
        } else if self.steps.is_multiple_of(STEPS_PER_TABLE) {
            self.update_weights(state)?;
        }
        self.steps += 1;
        let id = self.scheduler.next(state)?;
        let mut case = state.corpus().get(id)?.borrow_mut();
        let power = CorpusPowerTestcaseScore::compute(state, &mut case)?;
        let count = case.scheduled_count();
        case.set_scheduled_count(count + 1);
        Ok((id, power))
    }

    fn update_weights(&mut self, state: &mut State) -> Result<(), Error> {
        // The scheduler has no other way to compute weights again.
        let nothing = Testcase::new(CaseInput::default());
        self.scheduler.on_replace(state, CorpusId(0), &nothing)
    }
}
