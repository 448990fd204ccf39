//! Runs test cases for an engine: images from the tree, on a repeater.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use powerfail_fuzz_engine::{End, Execution, Target};
use powerfail_fuzz_store::Images;
use powerfail_image::{ImageId, RunDirectory};
use powerfail_recorder::repeat::{self, Opened, Outcome, RepeatOptions, Repeater};
use rustc_hash::FxHashSet;

use crate::error::CampaignError;
use crate::options::CampaignOptions;
use crate::recording::way_of;
use crate::shared::lock;

/// See the module header.
#[derive(Debug)]
pub(crate) struct Runs {
    // Before the directory, in which it works.
    repeater: Repeater,
    directory: RunDirectory,
    images: Arc<crate::shared::Kept>,
    open: Option<(ImageId, Opened)>,
    /// Images on which the target gives up before it reads its input.
    suspects: Arc<Mutex<Vec<ImageId>>>,
    suspected: FxHashSet<ImageId>,
    restarts: u32,
    /// Everything has to end: nothing is run any more.
    stop: Arc<AtomicBool>,
}

pub(crate) const fn end_of(end: repeat::End) -> End {
    match end {
        repeat::End::Exit(code) => End::Exit(code),
        repeat::End::Signal(signal) => End::Signal(signal),
        repeat::End::Timeout => End::Timeout,
    }
}

/// How a campaign repeats its target.
fn repeat_options(options: &CampaignOptions, directory: &RunDirectory) -> RepeatOptions {
    let mut repeat = RepeatOptions::new(options.command.clone(), way_of(options.input));
    repeat.timeout = options.timeout;
    repeat.stacks = options.stacks;
    repeat.derandomise = options.derandomise;
    repeat.desock = options.desock;
    repeat.comparisons = true;
    repeat.directory = directory.path().join("run");
    repeat.file_limit_bytes = options.file_limit_bytes;
    repeat
}

impl Runs {
    pub(crate) fn start(
        options: &CampaignOptions,
        runtime: &[u8],
        images: &Arc<crate::shared::Kept>,
        suspects: &Arc<Mutex<Vec<ImageId>>>,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, CampaignError> {
        let directory = RunDirectory::create_in(&powerfail_image::default_parent())?;
        Ok(Self {
            repeater: Repeater::start(&repeat_options(options, &directory), runtime)?,
            directory,
            images: Arc::clone(images),
            open: None,
            suspects: Arc::clone(suspects),
            suspected: FxHashSet::default(),
            restarts: 0,
            stop: Arc::clone(stop),
        })
    }

    fn images(&self) -> &Images {
        self.images.images()
    }

    /// Runs an input on an image.
    pub(crate) fn execute(
        &mut self,
        image: ImageId,
        input: &[u8],
    ) -> Result<(Outcome, bool), CampaignError> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != image) {
            self.open = None;
            let contents = self.images().load(image)?;
            let opened = self.repeater.open(&contents)?;
            if let Opened::Ended(outcome) = &opened
                && matches!(outcome.end, repeat::End::Exit(code) if code != 0)
                && self.suspected.insert(image)
            {
                lock(&self.suspects).push(image);
            }
            self.open = Some((image, opened));
        }
        match &self.open {
            Some((_, Opened::Ended(outcome))) => Ok((outcome.clone(), true)),
            _ => Ok((self.repeater.run(input)?, false)),
        }
    }

    /// The repeater, for what it has seen.
    pub(crate) const fn repeater(&self) -> &Repeater {
        &self.repeater
    }

    /// Starts the target anew, after something went wrong.
    pub(crate) fn restart(
        &mut self,
        options: &CampaignOptions,
        runtime: &[u8],
    ) -> Result<(), CampaignError> {
        self.open = None;
        self.restarts += 1;
        let mut repeat = repeat_options(options, &self.directory);
        // The old one is still there while the new one starts.
        repeat.directory = self.directory.path().join(format!("run-{}", self.restarts));
        self.repeater = Repeater::start(&repeat, runtime)?;
        Ok(())
    }
}

impl Target for Runs {
    type Error = CampaignError;

    fn run(&mut self, image: ImageId, input: &[u8]) -> Result<Execution<'_>, CampaignError> {
        // A step has hundreds of executions, and each may take all the time that it is given.
        if self.stop.load(Ordering::Relaxed) {
            return Err(CampaignError::Interrupted);
        }
        let (outcome, input_untouched) = self.execute(image, input)?;
        let coverage = self.repeater.coverage();
        Ok(Execution {
            end: end_of(outcome.end),
            pm: coverage.pm,
            branches: coverage.branches,
            elapsed: outcome.elapsed,
            input_untouched,
        })
    }

    fn comparisons(&self) -> Vec<powerfail_fuzz_engine::Comparison> {
        self.repeater.comparisons()
    }
}
