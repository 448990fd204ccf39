//! `cmin` and `tmin`: retires redundant test cases, and shortens single ones.

use std::path::Path;
use std::sync::Arc;

use powerfail_fuzz_engine::minimise::{cmin, trim};
use powerfail_fuzz_engine::{Footprint, Touched};
use powerfail_fuzz_store::{Campaign, CaseNumber, Retirement, TestCase};
use powerfail_recorder::executor::End;

use crate::error::CampaignError;
use crate::run::resumed_options;
use crate::target_runner::TargetRunner;

/// The maximum number of executions to shorten one test case.
const RUNS_MAX: usize = 10_000;

/// The result of minimising a corpus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MinimisedCorpus {
    /// Test cases before.
    pub before: usize,
    /// Test cases that together reach everything.
    pub after: usize,
}

/// The result of shortening a test case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinimisedCase {
    /// The shortened test case.
    pub case: TestCase,
    /// The length of the input before, in bytes.
    pub before: usize,
    /// The number of executions that were needed.
    pub executions: u64,
    /// Whether no single part can be left out any more.
    pub is_minimal: bool,
}

/// Executes the test cases of a campaign directory.
struct CaseRunner {
    campaign: Arc<Campaign>,
    target: TargetRunner,
}

impl CaseRunner {
    fn open(out: &Path, runtime: &[u8]) -> Result<Self, CampaignError> {
        let options = resumed_options(out)?;
        let campaign = Arc::new(Campaign::resume(out)?);
        let target = TargetRunner::start(
            &options,
            runtime,
            &campaign,
            &Arc::default(),
            &Arc::default(),
        )?;
        Ok(Self { campaign, target })
    }

    /// The coverage of a test case, and how it ends.
    fn reach(&mut self, case: &TestCase) -> Result<(Footprint, End), CampaignError> {
        let (outcome, _) = self.target.execute(case.image, &case.input)?;
        let coverage = self.target.executor().coverage();
        let footprint = Footprint {
            pm: touched(coverage.pm),
            branches: touched(coverage.branches),
        };
        Ok((footprint, outcome.end))
    }
}

fn touched(counters: &[u8]) -> Vec<Touched> {
    let counters = counters.iter().zip(0..);
    counters
        .filter(|(count, _)| **count > 0)
        .map(|(count, location)| Touched {
            location,
            bucket: powerfail_protocol::fuzz::bucket(*count),
        })
        .collect()
}

/// Retires the test cases of a campaign whose coverage the others have, too. They stay on disk.
pub fn minimise_corpus(out: &Path, runtime: &Arc<[u8]>) -> Result<MinimisedCorpus, CampaignError> {
    let mut runner = CaseRunner::open(out, runtime)?;
    let mut queued = runner.campaign.queue.cases();
    queued.retain(|case| case.retired.is_none());
    // Grouped by image: opening an image takes longer than running an input on it.
    queued.sort_by_key(|case| (case.image, case.number));
    let mut reached: Vec<(CaseNumber, Footprint, u64)> = Vec::new();
    for queued in &queued {
        let case = runner.campaign.queue.load(queued.number)?;
        let depth = runner.campaign.images.depth(case.image)? as u64;
        let (footprint, _) = runner.reach(&case)?;
        // A longer path to the image weighs more than any input.
        let cost = depth << 32 | case.input.len() as u64;
        reached.push((queued.number, footprint, cost));
    }
    reached.sort_by_key(|(number, ..)| *number);
    let chosen = cmin(
        reached
            .iter()
            .map(|(_, footprint, cost)| (footprint, *cost)),
    );
    for (place, (number, ..)) in reached.iter().enumerate() {
        if chosen.binary_search(&place).is_err() {
            runner
                .campaign
                .queue
                .retire(*number, Retirement::Redundant)?;
        }
    }
    Ok(MinimisedCorpus {
        before: reached.len(),
        after: chosen.len(),
    })
}

/// Shortens the input of a test case while its coverage and the way it ends stay the same. For a test case that
/// crashes or hangs, only the way it ends counts.
pub fn minimise_case(
    out: &Path,
    runtime: &Arc<[u8]>,
    case: &TestCase,
) -> Result<MinimisedCase, CampaignError> {
    let mut runner = CaseRunner::open(out, runtime)?;
    let wanted = runner.reach(case)?;
    let is_normal = matches!(wanted.1, End::Exit(_));
    let image = case.image;
    let mut failure = None;
    let trimmed = trim(&case.input, RUNS_MAX, |input| {
        if failure.is_some() {
            return false;
        }
        let case = TestCase {
            image,
            input: input.to_vec(),
        };
        match runner.reach(&case) {
            Ok(reached) if is_normal => reached == wanted,
            Ok((_, end)) => end == wanted.1,
            Err(error) => {
                failure = Some(error);
                false
            }
        }
    });
    if let Some(error) = failure {
        return Err(error);
    }
    Ok(MinimisedCase {
        case: TestCase {
            image,
            input: trimmed.input,
        },
        before: case.input.len(),
        executions: trimmed.runs as u64,
        is_minimal: trimmed.is_minimal,
    })
}
