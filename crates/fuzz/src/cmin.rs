//! Fewer test cases that reach the same, and shorter ones that do the same.

use std::path::Path;
use std::sync::Arc;

use powerfail_fuzz_engine::minimise::{cmin, trim};
use powerfail_fuzz_engine::{Footprint, Touched};
use powerfail_fuzz_store::{Campaign, CaseNumber, TestCase};
use powerfail_recorder::repeat::End;

use crate::error::CampaignError;
use crate::run::resumed_options;
use crate::shared::Kept as Disk;
use crate::target::Runs;

/// Executions to make one test case shorter, at most.
const RUNS_MAX: usize = 10_000;

/// What became of a corpus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MinimisedCorpus {
    /// Test cases that there were.
    pub before: usize,
    /// Those that reach everything.
    pub after: usize,
}

/// What became of a test case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinimisedCase {
    /// The test case.
    pub case: TestCase,
    /// Bytes of its input before.
    pub before: usize,
    /// Executions that it took.
    pub executions: u64,
    /// Nothing more can be left out.
    pub is_minimal: bool,
}

/// Runs the test cases of a directory.
struct Bench {
    disk: Arc<Disk>,
    runs: Runs,
}

impl Bench {
    fn open(out: &Path, runtime: &[u8]) -> Result<Self, CampaignError> {
        let options = resumed_options(out)?;
        let disk = Arc::new(Disk::new(Campaign::resume(out)?));
        let runs = Runs::start(&options, runtime, &disk, &Arc::default(), &Arc::default())?;
        Ok(Self { disk, runs })
    }

    /// What a test case reaches, and how it ends.
    fn reach(&mut self, case: &TestCase) -> Result<(Footprint, End), CampaignError> {
        let (outcome, _) = self.runs.execute(case.image, &case.input)?;
        let coverage = self.runs.repeater().coverage();
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

/// Retires the test cases of a campaign that reach nothing which others do not reach. They stay on disk.
pub fn minimise_corpus(out: &Path, runtime: &Arc<[u8]>) -> Result<MinimisedCorpus, CampaignError> {
    let mut bench = Bench::open(out, runtime)?;
    let mut queued = bench.disk.queue().cases();
    queued.retain(|case| case.retired.is_none());
    // Those on one image together: opening one takes longer than running an input on it.
    queued.sort_by_key(|case| (case.image, case.number));
    let mut reached: Vec<(CaseNumber, Footprint, u64)> = Vec::new();
    for queued in &queued {
        let case = bench.disk.queue().load(queued.number)?;
        let depth = bench.disk.images().depth(case.image)? as u64;
        let (footprint, _) = bench.reach(&case)?;
        // A longer way to the image weighs more than any input.
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
            let because = "others reach all that it reaches";
            bench.disk.queue().retire(*number, because)?;
        }
    }
    Ok(MinimisedCorpus {
        before: reached.len(),
        after: chosen.len(),
    })
}

/// Makes the input of a test case shorter as long as it reaches the same and ends in the same way. Of a test
/// case that crashes or hangs, only how it ends counts.
pub fn minimise_case(
    out: &Path,
    runtime: &Arc<[u8]>,
    case: &TestCase,
) -> Result<MinimisedCase, CampaignError> {
    let mut bench = Bench::open(out, runtime)?;
    let wanted = bench.reach(case)?;
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
        match bench.reach(&case) {
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
