//! Fewer test cases that reach the same, and shorter ones that do the same.

use std::path::Path;
use std::sync::Arc;

use powerfail_corpus::{Campaign, CaseNumber, TestCase};
use powerfail_recorder::repeat::End;
use rustc_hash::FxHashSet;

use crate::error::CampaignError;
use crate::options::CampaignOptions;
use crate::run::resumed_options;
use crate::shared::Kept as Disk;
use crate::shrink::shrink;
use crate::target::Runs;

/// What became of a corpus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Test cases that there were.
    pub before: usize,
    /// Those that reach everything.
    pub after: usize,
}

/// What became of a test case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Minimised {
    /// The test case.
    pub case: TestCase,
    /// Bytes of its input before.
    pub before: usize,
    /// Executions that it took.
    pub executions: u64,
}

/// What an execution reached: counters by bucket, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reached {
    touched: Vec<(u32, u8)>,
    end: End,
}

/// Runs the test cases of a directory.
struct Bench {
    disk: Arc<Disk>,
    runs: Runs,
    executions: u64,
}

impl Bench {
    fn open(out: &Path, runtime: &[u8]) -> Result<(Self, CampaignOptions), CampaignError> {
        let options = resumed_options(out)?;
        let disk = Arc::new(Disk::new(Campaign::resume(out)?));
        let runs = Runs::start(&options, runtime, &disk, &Arc::default())?;
        let bench = Self {
            disk,
            runs,
            executions: 0,
        };
        Ok((bench, options))
    }

    fn reach(&mut self, case: &TestCase) -> Result<Reached, CampaignError> {
        let (outcome, _) = self.runs.execute(case.image, &case.input)?;
        self.executions += 1;
        let coverage = self.runs.repeater().coverage();
        let branches = coverage.branches.iter().zip(1_u32 << 31..);
        let counters = coverage.pm.iter().zip(0_u32..).chain(branches);
        let touched = counters.filter(|(count, _)| **count > 0);
        Ok(Reached {
            touched: touched
                .map(|(count, place)| (place, powerfail_abi::fuzz::bucket(*count)))
                .collect(),
            end: outcome.end,
        })
    }
}

/// Retires the test cases of a campaign that reach nothing which shorter ones do not reach. They stay on disk.
pub fn minimise_corpus(out: &Path, runtime: &Arc<[u8]>) -> Result<Kept, CampaignError> {
    let (mut bench, _) = Bench::open(out, runtime)?;
    let queued = bench.disk.queue().cases();
    let mut cases: Vec<(usize, usize, CaseNumber, Vec<(u32, u8)>)> = Vec::new();
    // Those on one image together: opening one takes longer than running an input on it.
    let mut order: Vec<_> = queued.iter().filter(|it| it.retired.is_none()).collect();
    order.sort_by_key(|case| case.image);
    for queued in order {
        let case = bench.disk.queue().load(queued.number)?;
        let depth = bench.disk.images().depth(case.image)?;
        let reached = bench.reach(&case)?;
        cases.push((depth, case.input.len(), queued.number, reached.touched));
    }
    let before = cases.len();
    // Greedy: whoever adds most comes next, and of those the one that is simplest.
    let mut covered: FxHashSet<(u32, u8)> = FxHashSet::default();
    let mut kept = FxHashSet::default();
    cases.sort_by_key(|(depth, len, number, _)| (*depth, *len, *number));
    loop {
        let news =
            |touched: &[(u32, u8)]| touched.iter().filter(|it| !covered.contains(it)).count();
        let scored = cases.iter().map(|case| (news(&case.3), case));
        let best = scored.rev().max_by_key(|(news, _)| *news);
        let Some((_, best)) = best.filter(|(news, _)| *news > 0) else {
            break;
        };
        kept.insert(best.2);
        covered.extend(best.3.iter().copied());
    }
    for (_, _, number, _) in &cases {
        if !kept.contains(number) {
            bench
                .disk
                .queue()
                .retire(*number, "others reach all that it reaches")?;
        }
    }
    Ok(Kept {
        before,
        after: kept.len(),
    })
}

/// Makes the input of a test case shorter as long as it reaches the same and ends in the same way. Of a test
/// case that crashes or hangs, only how it ends counts.
pub fn minimise_case(
    out: &Path,
    runtime: &Arc<[u8]>,
    case: &TestCase,
) -> Result<Minimised, CampaignError> {
    let (mut bench, _) = Bench::open(out, runtime)?;
    let wanted = bench.reach(case)?;
    let is_normal = matches!(wanted.end, End::Exit(_));
    let image = case.image;
    let input = shrink(case.input.clone(), |input| {
        let reached = bench.reach(&TestCase {
            image,
            input: input.to_vec(),
        })?;
        Ok::<bool, CampaignError>(if is_normal {
            reached == wanted
        } else {
            reached.end == wanted.end
        })
    })?;
    Ok(Minimised {
        case: TestCase { image, input },
        before: case.input.len(),
        executions: bench.executions,
    })
}
