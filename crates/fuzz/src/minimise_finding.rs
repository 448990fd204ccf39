//! Looks for a smaller test case that shows the same finding.
//!
//! The image is tried first: the empty one instead of the given one. Then parts of the input are left out as long as
//! the finding stays. Each try records the test case and checks only the moments with the same names, which is as
//! cheap as a check can be.

use std::sync::Arc;
use std::time::{Duration, Instant};

use powerfail_check::Recovery;
use powerfail_check::{BugKey, bug_key};
use powerfail_explore::{PointKey, PointKeys};
use powerfail_finding::Finding;
use powerfail_fuzz_engine::minimise::trim;
use powerfail_fuzz_store::{Images, StoredFinding, TestCase};
use powerfail_model::EventIndex;
use powerfail_trace::Trace;
use rustc_hash::FxHashSet;

use crate::check_worker::CheckWorker;
use crate::crash_test::{CrashTest, CrashTestResult};
use crate::error::CampaignError;
use crate::findings::{RECOVERY_INPUT, StoredBasis};
use crate::options::Checks;
use crate::point_selection::PointsNamed;

/// How long one finding is minimised.
const TIME_MAX: Duration = Duration::from_secs(10);
/// How many test cases are tried for one finding.
const TRIES_MAX: usize = 60;
/// How long the check of one test case may take.
const BUDGET: Duration = Duration::from_secs(3);

/// What makes a finding the same one.
struct Criterion<'a> {
    cause: BugKey,
    checks: Checks,
    /// Names of the moments at which the finding was seen; empty if the lint found it.
    wanted: FxHashSet<PointKey>,
    recovery: &'a Recovery,
}

impl CheckWorker<'_, '_> {
    /// Looks for a smaller test case of a finding, and stores it with the finding.
    pub(crate) fn minimise(
        &mut self,
        stored: &StoredFinding,
        basis: &StoredBasis,
    ) -> Result<(), CampaignError> {
        let finding = &stored.finding;
        if finding.code.class().is_of_program() {
            return Ok(());
        }
        let trace = Trace::open(
            stored
                .directory
                .join(powerfail_check::output_directory::TRACE),
        )?;
        let recovery = match &basis.recovery_input {
            Some(input) => {
                let file = self.recorder.directory().join(RECOVERY_INPUT);
                std::fs::write(&file, input).map_err(CampaignError::file(&file))?;
                Recovery {
                    input: Some(file),
                    ..basis.recovery.clone()
                }
            }
            None => basis.recovery.clone(),
        };
        let criterion = Criterion::of(finding, &trace, &recovery)?;
        let deadline = Instant::now() + TIME_MAX;
        let mut best = basis.case.clone();
        let mut failure = None;
        let mut shows = |case: &TestCase| {
            if failure.is_some() || Instant::now() >= deadline || self.shared.is_over() {
                return false;
            }
            self.shows(case, &criterion).unwrap_or_else(|error| {
                failure = Some(error);
                false
            })
        };
        if best.image != Images::empty() {
            let empty = TestCase {
                image: Images::empty(),
                input: best.input.clone(),
            };
            if shows(&empty) {
                best = empty;
            }
        }
        let image = best.image;
        let trimmed = trim(&best.input, TRIES_MAX, |input| {
            shows(&TestCase {
                image,
                input: input.to_vec(),
            })
        });
        best.input = trimmed.input;
        if let Some(error) = failure {
            return Err(error);
        }
        let record = self.record_of(&best)?;
        self.shared
            .findings
            .store_minimised(&stored.directory, &best, &record)
    }

    /// Whether a test case shows a finding.
    fn shows(&self, case: &TestCase, criterion: &Criterion<'_>) -> Result<bool, CampaignError> {
        let contents = self.shared.campaign.images.load(case.image)?;
        let Some(recording) = self.record(&contents, &case.input)? else {
            return Ok(false);
        };
        let trace = &recording.trace;
        let is_it = |finding: &Finding| bug_key(finding) == criterion.cause;
        if trace.pools().is_empty() {
            return Ok(false);
        }
        if criterion.wanted.is_empty() && criterion.checks == Checks::NONE {
            return Ok(self.tester.lint(trace)?.0.iter().any(is_it));
        }
        let test = CrashTest {
            checks: criterion.checks,
            selection: Arc::new(PointsNamed {
                keys: PointKeys::of(trace)?,
                wanted: criterion.wanted.clone(),
                candidates: criterion.checks == Checks::NONE,
            }),
            recovery: criterion.recovery.clone(),
            budget: BUDGET,
            seed: self.shared.options.seed,
        };
        Ok(match self.run_test(trace, &test)? {
            CrashTestResult::Findings(findings) => findings.iter().any(is_it),
            _ => false,
        })
    }
}

impl<'a> Criterion<'a> {
    fn of(finding: &Finding, trace: &Trace, recovery: &'a Recovery) -> Result<Self, CampaignError> {
        let keys = PointKeys::of(trace)?;
        let mut wanted = FxHashSet::default();
        let mut checks = Checks {
            lint: false,
            prefix: false,
            lazy: false,
            races: false,
        };
        if let Some(read) = &finding.read {
            checks.races = true;
            wanted.insert(keys.at(EventIndex(read.event)));
        } else if let Some(evidence) = &finding.evidence {
            let failure = &evidence.failure;
            checks.prefix = failure.lost_lines.is_empty();
            checks.lazy = !checks.prefix;
            wanted.insert(keys.at(EventIndex(failure.event)));
        }
        Ok(Self {
            cause: bug_key(finding),
            checks,
            wanted,
            recovery,
        })
    }
}
