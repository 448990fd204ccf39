//! Whether a test case shows a finding: the same kind of bug at the same line of code. As cheap as that can be told.
//!
//! A check of a whole trace takes long. What is needed depends on how the finding was seen, so the original test case
//! decides: the cheapest look that shows the finding there is the one for all others.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use powerfail_check::{Recovery, bug_key, output_directory};
use powerfail_explore::PointKeys;
use powerfail_finding::{Code, Finding, Severity};
use powerfail_fuzz_store::{StoredFinding, TestCase};
use powerfail_model::EventIndex;
use powerfail_trace::Trace;
use rustc_hash::FxHashSet;

use crate::check_worker::CheckWorker;
use crate::crash_images::locations_at;
use crate::crash_test::{CrashTest, CrashTestResult};
use crate::error::CampaignError;
use crate::findings::{RECOVERY_INPUT, StoredBasis};
use crate::options::Checks;
use crate::point_selection::PointsOfStacks;
use crate::reached_places::ReachedPlaces;
use crate::target_runner::TargetRunner;

/// How long the check of one test case may take.
const BUDGET: Duration = Duration::from_secs(3);
/// How many events before a finding are what was done just before.
const WINDOW_EVENTS: u64 = 256;

/// A way to see a finding, the cheapest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Run the program.
    Program,
    /// Search the trace for patterns of misuse.
    Lint,
    /// Let the power fail at moments with the same call stack, with all stores durable.
    Prefix,
    /// Let the power fail to prove what the lint suspects.
    Candidates,
    /// Explore lost lines at moments with the same call stack.
    Lazy,
    /// Watch what recovery reads at moments with the same call stack.
    Races,
}

/// What makes a finding the same one.
#[derive(Debug, PartialEq, Eq)]
struct Root {
    code: Code,
    severity: Severity,
    /// The file and the line, or the module and the offset in it.
    place: Option<(Option<String>, u64)>,
}

impl Root {
    fn of(finding: &Finding) -> Self {
        let place = finding.places.first().and_then(|place| {
            let line = place.line.map(|line| (place.file.clone(), u64::from(line)));
            let code = place.code();
            line.or_else(|| code.map(|(module, offset)| (module.map(str::to_owned), offset)))
        });
        Self {
            code: finding.code,
            severity: finding.severity,
            place,
        }
    }
}

/// Judges test cases for one finding.
pub(crate) struct FindingJudge<'w, 's, 'o> {
    worker: &'w CheckWorker<'s, 'o>,
    finding: &'w Finding,
    root: Root,
    /// Call stacks of the moments at which the finding was seen.
    stacks: FxHashSet<u32>,
    /// The trace in which the finding was seen.
    trace: Trace,
    recovery: Recovery,
}

impl<'w, 's, 'o> FindingJudge<'w, 's, 'o> {
    pub(crate) fn new(
        worker: &'w CheckWorker<'s, 'o>,
        stored: &'w StoredFinding,
        basis: &StoredBasis,
    ) -> Result<Self, CampaignError> {
        let finding = &stored.finding;
        let evidence = finding.evidence.as_ref();
        let read = finding.read.as_ref();
        let other = evidence.and_then(|it| it.trace.as_deref());
        let other = other.or_else(|| read.and_then(|it| it.trace.as_deref()));
        let name = other.unwrap_or(output_directory::TRACE);
        let trace = Trace::open(stored.directory.join(name))?;
        let keys = PointKeys::of(&trace)?;
        let events = evidence.map(|it| it.failure.event);
        // Where the power fails between two stores, lines were lost at the next moment to see it.
        let next = evidence.and_then(|it| it.next_good_event);
        let events = { events.into_iter().chain(next) }.chain(read.map(|it| it.event));
        let stacks = events.map(|event| keys.at(EventIndex(event)).stack().0);
        let mut recovery = basis.recovery.clone();
        if let Some(input) = &basis.recovery_input {
            let file = worker.recorder.directory().join(RECOVERY_INPUT);
            fs::write(&file, input).map_err(CampaignError::file(&file))?;
            recovery.input = Some(file);
        }
        Ok(Self {
            worker,
            finding,
            root: Root::of(finding),
            stacks: stacks.collect(),
            trace,
            recovery,
        })
    }

    /// The cheapest look that shows the finding in a test case.
    pub(crate) fn cheapest_look(&self, case: &TestCase) -> Result<Option<Look>, CampaignError> {
        for look in self.looks() {
            if self.shows(case, look)? {
                return Ok(Some(look));
            }
        }
        Ok(None)
    }

    /// The looks that may show the finding.
    fn looks(&self) -> Vec<Look> {
        if self.finding.code.class().is_of_program() {
            vec![Look::Program]
        } else if self.finding.read.is_some() {
            vec![Look::Races]
        } else if self.finding.evidence.is_some() {
            vec![Look::Lint, Look::Prefix, Look::Candidates, Look::Lazy]
        } else {
            vec![Look::Lint, Look::Candidates]
        }
    }

    /// Whether a test case shows the finding.
    pub(crate) fn shows(&self, case: &TestCase, look: Look) -> Result<bool, CampaignError> {
        if look == Look::Program {
            let failed = self.worker.failure_of_program(case)?;
            let is_it = |finding: &Finding| bug_key(finding) == bug_key(self.finding);
            return Ok(failed.is_some_and(|finding| is_it(&finding)));
        }
        let contents = self.worker.shared.campaign.images.load(case.image)?;
        let Some(recording) = self.worker.record(&contents, &case.input)? else {
            return Ok(false);
        };
        let trace = &recording.trace;
        if trace.pools().is_empty() && trace.trees().is_empty() {
            return Ok(false);
        }
        let is_it = |finding: &Finding| Root::of(finding) == self.root;
        if look == Look::Lint {
            return Ok(self.worker.tester.lint(trace)?.0.iter().any(is_it));
        }
        let test = CrashTest {
            checks: Checks {
                lint: false,
                prefix: look == Look::Prefix,
                lazy: look == Look::Lazy,
                races: look == Look::Races,
            },
            selection: Arc::new(PointsOfStacks {
                keys: PointKeys::of(trace)?,
                wanted: self.stacks.clone(),
                candidates: look == Look::Candidates,
            }),
            recovery: self.recovery.clone(),
            budget: BUDGET,
            seed: self.worker.shared.options.seed,
            tests_oracle: false,
        };
        Ok(match self.worker.run_test(trace, &test)? {
            CrashTestResult::Findings { findings, .. } => findings.iter().any(is_it),
            _ => false,
        })
    }

    /// Where the finding is on the PM path of a test case.
    pub(crate) fn places(
        &self,
        stored: &StoredFinding,
        case: &TestCase,
    ) -> Result<ReachedPlaces, CampaignError> {
        let finding = &stored.finding;
        if finding.code.class().is_of_program() {
            return Ok(ReachedPlaces::default());
        }
        let shared = self.worker.shared;
        let stacks = shared.options.stacks;
        let first = finding.places.first().and_then(|place| place.event);
        let failure = finding.evidence.as_ref().map(|it| it.failure.event);
        let read = finding.read.as_ref().map(|it| it.event);
        let mut events: Vec<u64> = [first, failure, read].into_iter().flatten().collect();
        events.sort_unstable();
        let Some(last) = events.last().copied() else {
            return Ok(ReachedPlaces::default());
        };
        let index = |events: &[u64]| events.iter().copied().map(EventIndex).collect::<Vec<_>>();
        let places = locations_at(&self.trace, stacks, &index(&events))?;
        let before: Vec<u64> = (last.saturating_sub(WINDOW_EVENTS)..last).collect();
        let mut window = locations_at(&self.trace, stacks, &index(&before))?;
        window.extend(&places);
        let target = TargetRunner::start(
            &shared.options,
            &shared.runtime,
            &shared.campaign,
            &shared.suspects,
            &shared.limit,
        )?;
        ReachedPlaces::new(target, case.image, &case.input, places, window)
    }
}
