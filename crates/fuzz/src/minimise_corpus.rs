//! `cmin`: retires redundant test cases.

use std::path::Path;
use std::sync::Arc;

use powerfail_fuzz_engine::minimise::cmin;
use powerfail_fuzz_engine::{Footprint, Touched};
use powerfail_fuzz_store::{Campaign, CaseNumber, Retirement, TestCase};
use powerfail_recorder::executor::End;

use crate::error::CampaignError;
use crate::run::resumed_options;
use crate::target_runner::TargetRunner;

/// The result of minimising a corpus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MinimisedCorpus {
    /// Test cases before.
    pub before: usize,
    /// Test cases that together reach everything.
    pub after: usize,
}

/// Executes the test cases of a campaign directory.
pub(crate) struct CaseRunner {
    campaign: Arc<Campaign>,
    target: TargetRunner,
}

impl CaseRunner {
    pub(crate) fn open(out: &Path, runtime: &[u8]) -> Result<Self, CampaignError> {
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
    pub(crate) fn reach(&mut self, case: &TestCase) -> Result<(Footprint, End), CampaignError> {
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
