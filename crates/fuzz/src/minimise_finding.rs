//! Makes the test case of a finding as small as possible: a simpler image first, then a smaller input.
//!
//! What shows a finding costs a recording and a few recoveries, and the target executes an input hundreds of times in
//! that time. So a smaller input is guessed with executions alone, in which the target still does what the finding is
//! about, and then the guess is judged. The rest is searched with both: what does not reach the place of the finding is
//! not judged. At last each line is left out once more without that shortcut.
//!
//! Each smaller test case is stored at once, so an interruption loses nothing. A finding is minimised for a short while
//! at a time, so that all findings of a campaign get their turn.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use powerfail_fuzz_engine::minimise::{Trials, minimise, minimise_lines};
use powerfail_fuzz_store::{
    Campaign, Edge, Images, MinimisedInput, MinimisedState, StoredFinding, TestCase, read_minimised,
};
use powerfail_image::ImageId;

use crate::check_worker::CheckWorker;
use crate::error::CampaignError;
use crate::finding_judge::{FindingJudge, Look};
use crate::findings::{Findings, StoredBasis};
use crate::observer::CampaignObserver;
use crate::reached_places::ReachedPlaces;
use crate::run::resumed_options;
use crate::shared_state::{EarlierRuns, SharedState};

/// How long one finding is minimised before others get their turn.
const TURN: Duration = Duration::from_secs(10);
/// How long a campaign minimises one finding in all.
const TIME_MAX: Duration = Duration::from_mins(2);
/// How many test cases are judged for one finding.
const TRIALS_MAX: u64 = 2000;
/// How many executions a guess takes.
const GUESS_EXECUTIONS_MAX: u64 = 3000;

/// What was done for a finding before.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    trials: Trials,
    spent: Duration,
    /// The cheapest way to see the finding.
    look: Option<Look>,
    has_guessed: bool,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            trials: Trials::at_most(TRIALS_MAX),
            spent: Duration::ZERO,
            look: None,
            has_guessed: false,
        }
    }
}

impl CheckWorker<'_, '_> {
    /// Looks for a smaller test case of a finding for a short while; returns how to continue, if there is more to do.
    pub(crate) fn minimise_for_a_while(
        &mut self,
        stored: &StoredFinding,
        mut progress: Progress,
    ) -> Result<Option<Progress>, CampaignError> {
        let begun = Instant::now();
        let minimised = match self.minimise(stored, &mut progress, Some(begun + TURN)) {
            // Meanwhile it became part of another finding, and its directory is gone.
            Err(_) if !self.shared.findings.is_current(stored) => return Ok(None),
            minimised => minimised?,
        };
        progress.spent += begun.elapsed();
        let is_open = minimised.is_some_and(|it| it.state == MinimisedState::CutShort);
        let has_time = progress.spent < TIME_MAX && progress.trials.made() < TRIALS_MAX;
        Ok((is_open && has_time && !self.shared.is_over()).then_some(progress))
    }

    /// Looks for a smaller test case of a finding until a deadline; `None` if the finding has no test case.
    fn minimise(
        &mut self,
        stored: &StoredFinding,
        progress: &mut Progress,
        deadline: Option<Instant>,
    ) -> Result<Option<MinimisedInput>, CampaignError> {
        if !self.shared.findings.is_current(stored) {
            // Another test case says more, and is minimised instead.
            return Ok(None);
        }
        let Some(basis) = Findings::basis(&stored.directory)? else {
            return Ok(None);
        };
        let images = [basis.case.image, basis.best.image];
        if (images.iter()).any(|image| self.shared.lost_images.contains(image)) {
            return Ok(None);
        }
        let judge = FindingJudge::new(self, stored, &basis)?;
        let look = match progress.look {
            Some(look) => Some(look),
            None => judge.cheapest_look(&basis.best)?,
        };
        progress.look = look;
        let mut search = Search {
            worker: self,
            stored,
            judge,
            look: look.unwrap_or(Look::Lint),
            places: ReachedPlaces::default(),
            from_bytes: basis.case.input.len() as u64,
            best: basis.best.clone(),
            deadline,
            failure: None,
        };
        if look.is_none() {
            return search.save(MinimisedState::NotReproduced, 0).map(Some);
        }
        let is_complete = search.run(&basis, progress).is_continue();
        let trials = progress.trials.made();
        let state = if is_complete {
            MinimisedState::Complete
        } else {
            MinimisedState::CutShort
        };
        let saved = search.save(state, trials)?;
        match search.failure {
            Some(error) => Err(error),
            None => Ok(Some(saved)),
        }
    }
}

/// The search for a smaller test case of one finding.
struct Search<'w, 's, 'o> {
    worker: &'w CheckWorker<'s, 'o>,
    stored: &'w StoredFinding,
    judge: FindingJudge<'w, 's, 'o>,
    look: Look,
    places: ReachedPlaces,
    from_bytes: u64,
    best: TestCase,
    deadline: Option<Instant>,
    failure: Option<CampaignError>,
}

impl Search<'_, '_, '_> {
    fn run(&mut self, basis: &StoredBasis, progress: &mut Progress) -> ControlFlow<()> {
        if !progress.has_guessed {
            self.simpler_image(progress)?;
        }
        let places = self.judge.places(self.stored, &self.best);
        self.places = self.or_fail(places)?;
        if !progress.has_guessed {
            self.guess(progress)?;
            progress.has_guessed = true;
        }
        loop {
            self.smaller_input(progress)?;
            if !self.fewer_lines(progress)? {
                break;
            }
        }
        if basis.case.image != Images::empty() {
            self.without_pool(progress)?;
        }
        ControlFlow::Continue(())
    }

    /// Looks for a test case without a history: the input alone, or the inputs of all runs one after the other.
    fn simpler_image(&mut self, progress: &mut Progress) -> ControlFlow<()> {
        let images = &self.worker.shared.campaign.images;
        let path = self.or_fail(images.path(self.best.image).map_err(Into::into))?;
        let joined = joined_inputs(&path, &self.best.input);
        let created = created_pool(images);
        for image in created.into_iter().chain([Images::empty()]) {
            for input in [&self.best.input.clone(), &joined] {
                let case = TestCase {
                    image,
                    input: input.clone(),
                };
                if self.best.image == image {
                    return ControlFlow::Continue(());
                }
                if self.accepts(&case, progress)? {
                    return ControlFlow::Continue(());
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Lets the test case create its pool itself, at the end: with that, every trial would take longer.
    fn without_pool(&mut self, progress: &mut Progress) -> ControlFlow<()> {
        let images = &self.worker.shared.campaign.images;
        if created_pool(images) == Some(self.best.image) {
            let case = TestCase {
                image: Images::empty(),
                input: self.best.input.clone(),
            };
            self.accepts(&case, progress)?;
        }
        ControlFlow::Continue(())
    }

    /// Guesses a smaller input with executions alone, and judges it.
    fn guess(&mut self, progress: &mut Progress) -> ControlFlow<()> {
        for is_strict in [false, true] {
            let mut executions = Trials::at_most(GUESS_EXECUTIONS_MAX);
            let case = self.best.clone();
            let guess = minimise(&case.input, &mut executions, &mut |input| {
                if self.is_over() {
                    return ControlFlow::Break(());
                }
                let reached = self.places.are_reached(case.image, input, is_strict);
                ControlFlow::Continue(self.or_fail(reached)?)
            });
            self.failure
                .as_ref()
                .map_or(ControlFlow::Continue(()), |_| ControlFlow::Break(()))?;
            let case = TestCase {
                image: case.image,
                input: guess.input,
            };
            if case == self.best || self.accepts(&case, progress)? {
                break;
            }
        }
        ControlFlow::Continue(())
    }

    /// Makes the input smaller. Only what reaches the places of the finding is judged.
    fn smaller_input(&mut self, progress: &mut Progress) -> ControlFlow<()> {
        let case = self.best.clone();
        let mut trials = progress.trials.clone();
        let minimised = minimise(&case.input, &mut trials, &mut |input| {
            if self.is_over() {
                return ControlFlow::Break(());
            }
            let reached = self.places.are_reached(case.image, input, false);
            if !self.or_fail(reached)? {
                return ControlFlow::Continue(false);
            }
            self.judged(case.image, input)
        });
        progress.trials = trials;
        if minimised.is_minimal {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }

    /// Leaves out lines, without the shortcut; returns whether that made the input shorter.
    fn fewer_lines(&mut self, progress: &mut Progress) -> ControlFlow<(), bool> {
        let case = self.best.clone();
        let left = TRIALS_MAX.saturating_sub(progress.trials.made());
        let mut trials = Trials::at_most(left);
        let minimised = minimise_lines(&case.input, &mut trials, &mut |input| {
            if self.is_over() {
                return ControlFlow::Break(());
            }
            self.judged(case.image, input)
        });
        progress.trials.add(&trials);
        if minimised.is_minimal {
            ControlFlow::Continue(minimised.input.len() < case.input.len())
        } else {
            ControlFlow::Break(())
        }
    }

    /// Judges an input, and stores it if it shows the finding.
    fn judged(&mut self, image: ImageId, input: &[u8]) -> ControlFlow<(), bool> {
        let case = TestCase {
            image,
            input: input.to_vec(),
        };
        let shows = self.judge.shows(&case, self.look);
        let shows = self.or_fail(shows)?;
        if shows {
            self.best = case;
            let saved = self.save(MinimisedState::CutShort, 0);
            self.or_fail(saved)?;
        }
        ControlFlow::Continue(shows)
    }

    /// Judges a test case that is not one of a series.
    fn accepts(&mut self, case: &TestCase, progress: &mut Progress) -> ControlFlow<(), bool> {
        if self.is_over() {
            return ControlFlow::Break(());
        }
        progress.trials.count_one();
        self.judged(case.image, &case.input)
    }

    fn is_over(&self) -> bool {
        self.worker.shared.is_over() || self.deadline.is_some_and(|it| Instant::now() >= it)
    }

    /// The value; an error ends the search.
    fn or_fail<T>(&mut self, result: Result<T, CampaignError>) -> ControlFlow<(), T> {
        match result {
            Ok(value) => ControlFlow::Continue(value),
            Err(error) => {
                self.failure = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    /// Stores the smallest test case so far.
    fn save(&self, state: MinimisedState, trials: u64) -> Result<MinimisedInput, CampaignError> {
        let minimised = MinimisedInput {
            state,
            from_bytes: self.from_bytes,
            to_bytes: self.best.input.len() as u64,
            trials,
        };
        let shared = self.worker.shared;
        let record = self.worker.record_of(&self.best)?;
        shared
            .findings
            .store_minimised(self.stored, &self.best, &record, minimised)?;
        shared.observer.minimising(&minimised);
        Ok(minimised)
    }
}

/// The inputs of all runs, one after the other.
fn joined_inputs(path: &[Edge], last: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    for input in path.iter().map(|edge| &edge.input[..]).chain([last]) {
        if !all.is_empty() && !all.ends_with(b"\n") && !input.is_empty() {
            all.push(b'\n');
        }
        all.extend_from_slice(input);
    }
    all
}

/// The pool that the target creates on an empty input.
fn created_pool(images: &Images) -> Option<ImageId> {
    let nodes = images.nodes();
    let created = nodes.iter().find(|node| {
        node.parent == Some(Images::empty())
            && node.failure_point.is_none()
            && node.input_len_bytes == 0
    });
    created.map(|node| node.id)
}

/// Minimises the test case of a finding of a campaign that does not run, to the end or until a deadline. `id` names the
/// finding.
pub fn minimise_finding(
    out: &Path,
    runtime: &Arc<[u8]>,
    id: &str,
    deadline: Option<Instant>,
    observer: &dyn CampaignObserver,
) -> Result<MinimisedInput, CampaignError> {
    let options = Arc::new(resumed_options(out)?);
    let campaign = Campaign::resume(out)?;
    let findings = Findings::open(&campaign.findings_directory())?;
    let stored = findings.all().into_iter().find(|it| it.finding.id == id);
    let Some(stored) = stored else {
        return Err(CampaignError::Wrong(format!(
            "no finding {id} in {}",
            out.display()
        )));
    };
    let before = EarlierRuns::default();
    let shared = SharedState::new(
        &options, runtime, observer, campaign, findings, before, None,
    )?;
    let mut worker = CheckWorker::new(0, &shared)?;
    let minimised = worker.minimise(&stored, &mut Progress::default(), deadline);
    match minimised {
        // What was found by then is stored.
        Err(CampaignError::Interrupted) => {}
        minimised => drop(minimised?),
    }
    read_minimised(&stored.directory).ok_or_else(|| {
        CampaignError::Wrong(format!("the test case of finding {id} cannot be read"))
    })
}
