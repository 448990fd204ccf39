//! The engine: chooses a test case, mutates it, runs it, and keeps what is new.

mod calibrate;
mod discovery;
mod favoured;
mod images;
pub(crate) mod input;
mod options;
mod pending;
pub(crate) mod schedule;
mod shorten;
mod stats;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use libafl::HasMetadata;
use libafl::corpus::{Corpus, InMemoryCorpus};
use libafl::mutators::token_mutations::Tokens;
use libafl::state::{HasCorpus, HasMaxSize, HasRand, StdState};
use libafl_bolts::rands::{Rand, StdRand};

use self::images::Images;
use self::input::{CaseInput, ImageNumber};
use self::pending::Pending;
use self::schedule::{Schedule, State};
use self::shorten::NewCoverage;
use crate::coverage::{Footprint, Novelty, PathSet, SeenCoverage};
use crate::mutate::Mutators;
use crate::{End, Observation, Priority, Target, TargetRun, TestCase};

pub use discovery::{Discovery, KnownCase, Origin};
pub use options::EngineOptions;
pub use stats::EngineStats;

/// A step ends after this many hangs, because a hang costs more than hundreds of runs.
const HANGS_PER_STEP: u32 = 3;

/// In one of this many steps the input is tried on another image.
const STEPS_PER_OTHER_IMAGE: u64 = 6;

/// The number of inputs that a step runs at most to learn commands. What is learnt in the first steps is worth more than
/// mutations of an empty line; later there are few such inputs.
const TRIALS_PER_STEP: usize = 512;

/// `LibAFL` only fails if it is used incorrectly, and it is used only here.
const SOUND: &str = "the corpus and the metadata of LibAFL are complete";

/// Chooses, mutates and keeps test cases.
pub struct Engine {
    state: State,
    schedule: Schedule,
    mutators: Mutators,
    images: Images,
    pending: Pending,
    pm: SeenCoverage,
    branches: SeenCoverage,
    /// The coverage of test cases that crashed or hung. It is separate, because such runs are incomplete.
    abnormal_pm: SeenCoverage,
    abnormal_branches: SeenCoverage,
    paths: Arc<PathSet>,
    options: EngineOptions,
    stats: EngineStats,
    /// Discoveries of a step that failed.
    found: Vec<Discovery>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Engine")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

/// A run and what is new in its coverage.
#[derive(Debug)]
struct RunResult {
    end: End,
    elapsed: Duration,
    pm: Novelty,
    branches: Novelty,
    path: u64,
    first_abnormal: bool,
    over: bool,
    /// Its coverage, if something is new.
    footprint: Option<Footprint>,
}

impl Engine {
    /// An engine without test cases.
    ///
    /// # Panics
    /// The range of runs per step is empty.
    #[must_use]
    pub fn new(options: EngineOptions) -> Self {
        assert!(
            !options.runs_per_step.is_empty(),
            "a step has at least one run"
        );
        let random = StdRand::with_seed(options.seed);
        let mut state = StdState::new(
            random,
            InMemoryCorpus::new(),
            InMemoryCorpus::new(),
            &mut (),
            &mut (),
        )
        .expect(SOUND);
        state.set_max_size(options.max_input_bytes.max(1));
        state.add_metadata(Tokens::new());
        let schedule = Schedule::new(&mut state);
        let mut engine = Self {
            state,
            schedule,
            mutators: Mutators::new(options.grammar.clone()),
            images: Images::default(),
            pending: Pending::default(),
            pm: SeenCoverage::default(),
            branches: SeenCoverage::default(),
            abnormal_pm: SeenCoverage::default(),
            abnormal_branches: SeenCoverage::default(),
            paths: Arc::clone(&options.paths),
            stats: EngineStats::default(),
            found: Vec::new(),
            options,
        };
        let tokens = std::mem::take(&mut engine.options.tokens);
        let words = tokens.iter().map(Vec::as_slice);
        engine.mutators.learner().try_words(words);
        engine.add_tokens(tokens);
        engine
    }

    /// Adds words that inputs may contain, for example those that the program compared its input with.
    pub fn add_tokens(&mut self, tokens: impl IntoIterator<Item = Vec<u8>>) {
        let known = self.state.metadata_mut::<Tokens>().expect(SOUND);
        for token in tokens {
            if !token.is_empty()
                && token.len() <= self.options.max_input_bytes
                && known.add_token(&token)
            {
                self.mutators.learn_token(&token);
            }
        }
    }

    /// Adds a seed. It is run in one of the next steps, in the order of addition, and always kept.
    pub fn add_seed(&mut self, mut case: TestCase) {
        case.input.truncate(self.options.max_input_bytes);
        let image = self.images.number(case.image);
        self.pending.add_seed(CaseInput {
            image,
            bytes: case.input,
        });
    }

    /// Adds a test case on a new image. It is run soon, the newest first, with some mutations, and is kept if it does
    /// something new.
    pub fn add_on_image(&mut self, mut case: TestCase) {
        case.input.truncate(self.options.max_input_bytes);
        let image = self.images.number(case.image);
        self.pending.add_on_image(CaseInput {
            image,
            bytes: case.input,
        });
    }

    /// Adds a test case of another worker or of a resumed campaign without running it, if it is new here; returns whether it
    /// is.
    pub fn import(&mut self, known: &KnownCase) -> bool {
        let (locations, changed) = self.pm.news(&known.footprint.pm);
        let (new_branches, changed_branches) = self.branches.news(&known.footprint.branches);
        let image = self.images.number(known.case.image);
        if locations.is_empty()
            && changed.is_empty()
            && new_branches.is_empty()
            && changed_branches.is_empty()
        {
            return false;
        }
        let mut bytes = known.case.input.clone();
        bytes.truncate(self.options.max_input_bytes);
        self.keep(
            CaseInput { image, bytes },
            known.priority,
            &known.footprint,
            known.elapsed,
        );
        true
    }

    /// Adds all test cases of a resumed campaign, in order and without running them, and its unstable locations.
    pub fn restore(&mut self, cases: impl IntoIterator<Item = KnownCase>, unstable: &Unstable) {
        self.ignore(unstable);
        for known in cases {
            let image = self.images.number(known.case.image);
            let input = CaseInput {
                image,
                bytes: known.case.input,
            };
            self.keep(input, known.priority, &known.footprint, known.elapsed);
        }
    }

    /// Locations that the engine ignores.
    pub fn unstable(&self) -> Unstable {
        Unstable {
            pm: self.pm.ignored().collect(),
            branches: self.branches.ignored().collect(),
        }
    }

    /// Ignores locations from now on.
    pub fn ignore(&mut self, unstable: &Unstable) {
        for location in &unstable.pm {
            self.pm.ignore(*location);
            self.abnormal_pm.ignore(*location);
        }
        for location in &unstable.branches {
            self.branches.ignore(*location);
            self.abnormal_branches.ignore(*location);
        }
    }

    /// All test cases that are mutated, in the order in which they were kept.
    pub fn cases(&self) -> Vec<TestCase> {
        let corpus = self.state.corpus();
        let cases = corpus
            .ids()
            .filter_map(|id| corpus.get(id).ok())
            .filter_map(|case| {
                let case = case.borrow();
                let input = case.input().as_ref()?;
                Some(TestCase {
                    image: self.images.id(input.image),
                    input: input.bytes.clone(),
                })
            });
        cases.collect()
    }

    /// The statistics.
    pub fn stats(&self) -> EngineStats {
        EngineStats {
            pm_paths: self.paths.len(),
            pm_locations: self.pm.locations(),
            branches: self.branches.locations(),
            corpus: self.state.corpus().count(),
            favoured: self.schedule.favoured(),
            pending: self.pending.len(),
            images: self.images.len(),
            stability: self.pm.stability(),
            unstable: self.pm.unstable() + self.branches.unstable(),
            ..self.stats
        }
    }

    /// Whether there is nothing to do: no test case was added, or none of them ends normally.
    pub fn is_idle(&self) -> bool {
        self.pending.len() == 0 && self.state.corpus().count() == 0
    }

    /// One step: one test case and many mutations of it, all on one image. Discoveries are added to the corpus before they
    /// are returned. Without any test case, a step does nothing.
    ///
    /// # Errors
    /// The target cannot run a test case. Earlier discoveries of the step are returned by the next step, or by
    /// [`Engine::take_found`].
    pub fn step<T: Target>(&mut self, target: &mut T) -> Result<Vec<Discovery>, T::Error> {
        let mut found = self.take_found();
        let done = self.step_into(target, &mut found);
        if done.is_err() {
            self.found = std::mem::take(&mut found);
        }
        done.map(|()| found)
    }

    /// The discoveries of a step that failed.
    pub fn take_found(&mut self) -> Vec<Discovery> {
        std::mem::take(&mut self.found)
    }

    fn step_into<T: Target>(
        &mut self,
        target: &mut T,
        found: &mut Vec<Discovery>,
    ) -> Result<(), T::Error> {
        self.stats.steps += 1;
        if let Some((input, is_seed)) = self.pending.next(self.state.corpus().count()) {
            self.try_case(target, &input, is_seed, found)?;
        } else if self.state.corpus().count() > 0 {
            let (base, runs, is_elsewhere) = self.choose();
            self.learn(target, base.image, found)?;
            self.mutate(target, &base, runs, is_elsewhere, found)?;
        }
        Ok(())
    }

    /// Runs inputs that may reveal commands, and learns from what the program does with them.
    fn learn<T: Target>(
        &mut self,
        target: &mut T,
        image: ImageNumber,
        found: &mut Vec<Discovery>,
    ) -> Result<(), T::Error> {
        for _ in 0..TRIALS_PER_STEP {
            if !self.images.is_hopeful(image) {
                break;
            }
            let Some(mut trial) = self.mutators.learner().next_trial() else {
                break;
            };
            trial.input.truncate(self.options.max_input_bytes);
            let input = CaseInput {
                image,
                bytes: trial.input.clone(),
            };
            let (looked, observations) = self.observe(target, &input)?;
            self.mutators.learner().learn(&trial, &observations);
            let words = self.mutators.learner().take_words();
            self.add_tokens(words);
            if looked.footprint.is_some() {
                self.evaluate(target, input, looked, Origin::Learnt, false, found)?;
            }
        }
        Ok(())
    }

    /// Runs a test case that was added, and some mutations of it if it is on a new image.
    fn try_case<T: Target>(
        &mut self,
        target: &mut T,
        input: &CaseInput,
        is_seed: bool,
        found: &mut Vec<Discovery>,
    ) -> Result<(), T::Error> {
        let looked = self.run(target, input, is_seed)?;
        if looked.footprint.is_some() {
            self.evaluate(target, input.clone(), looked, Origin::Added, is_seed, found)?;
        }
        if !is_seed && self.images.is_hopeful(input.image) {
            self.mutate(
                target,
                input,
                *self.options.runs_per_step.start(),
                false,
                found,
            )?;
        }
        Ok(())
    }

    /// The test case of the next step, its number of runs, and whether it runs on another image than its own.
    fn choose(&mut self) -> (CaseInput, u64, bool) {
        let (id, power) = self.schedule.next(&mut self.state).expect(SOUND);
        let case = self.state.corpus().get(id).expect(SOUND);
        let mut base = case.borrow().input().clone().expect(SOUND);
        #[expect(clippy::cast_sign_loss, reason = "powers are positive")]
        let runs = (power as u64).clamp(
            *self.options.runs_per_step.start(),
            *self.options.runs_per_step.end(),
        );
        let random = self.state.rand_mut().next();
        if random.is_multiple_of(STEPS_PER_OTHER_IMAGE)
            && let Some(image) = self.images.other(base.image, self.state.rand_mut().next())
        {
            base.image = image;
            return (base, runs, true);
        }
        (base, runs, false)
    }

    /// Runs mutations of an input, all on its image.
    fn mutate<T: Target>(
        &mut self,
        target: &mut T,
        base: &CaseInput,
        runs: u64,
        is_elsewhere: bool,
        found: &mut Vec<Discovery>,
    ) -> Result<(), T::Error> {
        let mut input = base.clone();
        let mut hangs = 0;
        for run in 0..runs {
            input.clone_from(base);
            let origin = if run == 0 && is_elsewhere {
                Origin::OtherImage
            } else {
                self.mutators.mutate(&mut self.state, &mut input)
            };
            let looked = self.run(target, &input, false)?;
            let over = looked.over;
            hangs += u32::from(looked.end == End::Timeout);
            if looked.footprint.is_some() {
                self.evaluate(target, input.clone(), looked, origin, false, found)?;
            }
            if over || hangs >= HANGS_PER_STEP || !self.images.is_hopeful(base.image) {
                break;
            }
        }
        Ok(())
    }

    /// Runs an input and compares its coverage. The result has a footprint if something is new, or if `always` is set.
    fn run<T: Target>(
        &mut self,
        target: &mut T,
        input: &CaseInput,
        always: bool,
    ) -> Result<RunResult, T::Error> {
        let execution = target.run(self.images.id(input.image), &input.bytes)?;
        Ok(self.compare(&execution, input, always))
    }

    /// As [`Self::run`], and what the program did with the input.
    fn observe<T: Target>(
        &mut self,
        target: &mut T,
        input: &CaseInput,
    ) -> Result<(RunResult, Vec<Observation>), T::Error> {
        let (execution, observations) =
            target.observe(self.images.id(input.image), &input.bytes)?;
        Ok((self.compare(&execution, input, false), observations))
    }

    fn compare(&mut self, execution: &TargetRun<'_>, input: &CaseInput, always: bool) -> RunResult {
        let mut looked = self.look(execution, input.image);
        let nothing = looked.pm == Novelty::Nothing && looked.branches == Novelty::Nothing;
        if always || !nothing || looked.first_abnormal {
            let (pm, branches) = (
                self.pm.touched(execution.pm),
                self.branches.touched(execution.branches),
            );
            looked.footprint = Some(Footprint { pm, branches });
        }
        if looked.end.is_normal() {
            self.schedule
                .ran(&mut self.state, input, looked.path)
                .expect(SOUND);
        }
        looked
    }

    fn look(&mut self, execution: &TargetRun<'_>, image: ImageNumber) -> RunResult {
        self.stats.executions += 1;
        let normal = execution.end.is_normal();
        self.images.ran(image, normal, execution.input_untouched);
        let (pm, branches) = if normal {
            (&mut self.pm, &mut self.branches)
        } else {
            (&mut self.abnormal_pm, &mut self.abnormal_branches)
        };
        let (pm, path) = pm.look(execution.pm);
        let (branches, _) = branches.look(execution.branches);
        match execution.end {
            End::Exit(_) => {}
            End::Signal(_) => self.stats.signals += 1,
            End::Timeout => self.stats.timeouts += 1,
        }
        if execution.end != End::Timeout {
            self.paths.insert(path);
        }
        RunResult {
            end: execution.end,
            elapsed: execution.elapsed,
            pm,
            branches,
            path,
            first_abnormal: !normal && self.images.first_abnormal(image),
            over: execution.input_untouched,
            footprint: None,
        }
    }

    /// Runs a new input again. It is a discovery if some of its stable coverage is new.
    fn evaluate<T: Target>(
        &mut self,
        target: &mut T,
        mut input: CaseInput,
        mut looked: RunResult,
        origin: Origin,
        always: bool,
        found: &mut Vec<Discovery>,
    ) -> Result<(), T::Error> {
        let execution = self.stats.executions;
        let mut footprint = looked.footprint.take().unwrap_or_default();
        self.calibrate(target, &input, looked.end, &mut footprint)?;
        let normal = looked.end.is_normal();
        let (pm, branches) = if normal {
            (&mut self.pm, &mut self.branches)
        } else {
            (&mut self.abnormal_pm, &mut self.abnormal_branches)
        };
        let (new_locations, changed_locations) = pm.news(&footprint.pm);
        let (new_branches, changed_branches) = branches.news(&footprint.branches);
        let new_branches = new_branches.len() + changed_branches.len();
        let priority = if !new_locations.is_empty() {
            Priority::High
        } else if !changed_locations.is_empty() {
            Priority::Medium
        } else if new_branches > 0 || looked.first_abnormal || always {
            Priority::Low
        } else {
            return Ok(());
        };
        if normal && !always {
            let news = NewCoverage {
                locations: &new_locations,
                changed: &changed_locations,
                branches: new_branches,
            };
            self.shorten(target, &mut input, &mut looked, &mut footprint, &news)?;
        }
        let (pm, branches) = if normal {
            (&mut self.pm, &mut self.branches)
        } else {
            (&mut self.abnormal_pm, &mut self.abnormal_branches)
        };
        let footprint = Arc::new(footprint);
        let case = TestCase {
            image: self.images.id(input.image),
            input: input.bytes.clone(),
        };
        // A seed that crashes is a better start than none.
        if normal || (always && looked.end != End::Timeout && self.state.corpus().count() == 0) {
            self.mutators.learner().try_case(&input.bytes);
            self.keep(input, priority, &footprint, looked.elapsed);
        } else {
            pm.add(&footprint.pm);
            branches.add(&footprint.branches);
        }
        self.stats.last_discovery = execution;
        found.push(Discovery {
            case,
            priority,
            new_locations,
            changed_locations,
            new_branches,
            end: looked.end,
            elapsed: looked.elapsed,
            footprint,
            path: looked.path,
            execution,
            origin,
        });
        Ok(())
    }

    fn keep(
        &mut self,
        input: CaseInput,
        priority: Priority,
        footprint: &Arc<Footprint>,
        elapsed: Duration,
    ) {
        self.pm.add(&footprint.pm);
        self.branches.add(&footprint.branches);
        self.mutators.learn(&input.bytes);
        self.schedule
            .add(&mut self.state, input, priority, footprint, elapsed)
            .expect(SOUND);
    }
}

/// Locations whose counters differ between runs of one test case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unstable {
    /// PM path locations.
    pub pm: Vec<u32>,
    /// Branches.
    pub branches: Vec<u32>,
}
