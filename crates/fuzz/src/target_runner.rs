//! Runs test cases for an engine: loads images from the tree, and executes inputs on them with the executor.

use std::sync::{Arc, Mutex};

use powerfail_fuzz_engine::{End, Observation, Target, TargetRun};
use powerfail_fuzz_store::{Campaign, Images};
use powerfail_image::{ImageId, RunDirectory};
use powerfail_recorder::executor::{self, Executor, ExecutorOptions, Opened, Outcome};
use rustc_hash::FxHashSet;

use crate::error::CampaignError;
use crate::execution_limit::ExecutionLimit;
use crate::options::CampaignOptions;
use crate::shared_state::lock;

/// The target of one worker, and the image that it has opened.
#[derive(Debug)]
pub(crate) struct TargetRunner {
    // Dropped before the directory, in which it works.
    executor: Executor,
    directory: RunDirectory,
    campaign: Arc<Campaign>,
    open: Option<(ImageId, Opened)>,
    /// Images on which the target gave up before it read its input.
    suspects: Arc<Mutex<Vec<ImageId>>>,
    suspected: FxHashSet<ImageId>,
    restarts: u32,
    /// When the campaign stops, nothing is executed any more.
    limit: Arc<ExecutionLimit>,
}

pub(crate) const fn end_of(end: executor::End) -> End {
    match end {
        executor::End::Exit(code) => End::Exit(code),
        executor::End::Signal(signal) => End::Signal(signal),
        executor::End::Timeout => End::Timeout,
    }
}

/// An observation of the executor, for the engine.
pub(crate) fn observation_of(observed: executor::Observation) -> Observation {
    let executor::Observation { kind, text, other } = observed;
    Observation { kind, text, other }
}

/// The options of the executor for a campaign.
fn executor_options(options: &CampaignOptions, directory: &RunDirectory) -> ExecutorOptions {
    let mut executor = ExecutorOptions::new(options.command.clone(), options.input);
    executor.timeout = options.timeout;
    executor.stacks = options.stacks;
    executor.derandomise = options.derandomise;
    executor.desock = options.desock;
    executor.directory = directory.path().join("run");
    executor.file_limit_bytes = options.file_limit_bytes;
    executor
}

impl TargetRunner {
    pub(crate) fn start(
        options: &CampaignOptions,
        runtime: &[u8],
        campaign: &Arc<Campaign>,
        suspects: &Arc<Mutex<Vec<ImageId>>>,
        limit: &Arc<ExecutionLimit>,
    ) -> Result<Self, CampaignError> {
        let directory = RunDirectory::create_in(&powerfail_image::default_parent())?;
        Ok(Self {
            executor: Executor::start(&executor_options(options, &directory), runtime)?,
            directory,
            campaign: Arc::clone(campaign),
            open: None,
            suspects: Arc::clone(suspects),
            suspected: FxHashSet::default(),
            restarts: 0,
            limit: Arc::clone(limit),
        })
    }

    fn images(&self) -> &Images {
        &self.campaign.images
    }

    /// Executes an input on an image; the second result says that the target ended before it read its input.
    pub(crate) fn execute(
        &mut self,
        image: ImageId,
        input: &[u8],
    ) -> Result<(Outcome, bool), CampaignError> {
        if let Some(outcome) = self.open(image)? {
            return Ok((outcome, true));
        }
        Ok((self.executor.run(input)?, false))
    }

    /// Opens an image, unless it is open; an outcome if the target ends before it reads its input.
    fn open(&mut self, image: ImageId) -> Result<Option<Outcome>, CampaignError> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != image) {
            self.open = None;
            let contents = self.images().load(image)?;
            let opened = self.executor.open(&contents)?;
            if let Opened::Ended(outcome) = &opened
                && matches!(outcome.end, executor::End::Exit(code) if code != 0)
                && self.suspected.insert(image)
            {
                lock(&self.suspects).push(image);
            }
            self.open = Some((image, opened));
        }
        Ok(match &self.open {
            Some((_, Opened::Ended(outcome))) => Some(outcome.clone()),
            _ => None,
        })
    }

    /// A step has hundreds of executions, and each may take as long as --timeout allows.
    fn is_to_continue(&self) -> Result<(), CampaignError> {
        if self.limit.allows_one() {
            Ok(())
        } else {
            Err(CampaignError::Interrupted)
        }
    }

    fn run_of(&self, outcome: &Outcome, input_untouched: bool) -> TargetRun<'_> {
        let coverage = self.executor.coverage();
        TargetRun {
            end: end_of(outcome.end),
            pm: coverage.pm,
            branches: coverage.branches,
            elapsed: outcome.elapsed,
            input_untouched,
        }
    }

    /// The executor, with the coverage of the last execution.
    pub(crate) const fn executor(&self) -> &Executor {
        &self.executor
    }

    /// Starts the target again after an error.
    pub(crate) fn restart(
        &mut self,
        options: &CampaignOptions,
        runtime: &[u8],
    ) -> Result<(), CampaignError> {
        self.open = None;
        self.restarts += 1;
        let mut executor = executor_options(options, &self.directory);
        // The old executor still uses its directory while the new one starts.
        executor.directory = self.directory.path().join(format!("run-{}", self.restarts));
        self.executor = Executor::start(&executor, runtime)?;
        Ok(())
    }
}

impl Target for TargetRunner {
    type Error = CampaignError;

    fn run(&mut self, image: ImageId, input: &[u8]) -> Result<TargetRun<'_>, CampaignError> {
        self.is_to_continue()?;
        let (outcome, input_untouched) = self.execute(image, input)?;
        Ok(self.run_of(&outcome, input_untouched))
    }

    fn observe(
        &mut self,
        image: ImageId,
        input: &[u8],
    ) -> Result<(TargetRun<'_>, Vec<Observation>), CampaignError> {
        self.is_to_continue()?;
        if let Some(outcome) = self.open(image)? {
            return Ok((self.run_of(&outcome, true), Vec::new()));
        }
        let outcome = self.executor.observe(input)?;
        let observations = self.executor.observations();
        let observations = observations.into_iter().map(observation_of).collect();
        Ok((self.run_of(&outcome, false), observations))
    }
}
