//! A thread that fuzzes: one engine that chooses test cases, and one target that executes them.

use std::sync::Arc;

use powerfail_fuzz_engine::{Engine, EngineOptions, EngineStats, Unstable};
use powerfail_fuzz_store::{Images, TestCase};

use crate::error::CampaignError;
use crate::seeds::Seeds;
use crate::shared_state::{SharedState, lock};
use crate::target_runner::TargetRunner;

/// How many test cases on new images a worker takes between two steps.
const NEW_IMAGE_CASES: usize = 4;
/// After more failures in a row than this, the worker gives up.
const FAILURES_MAX: u32 = 8;

/// The state of a fuzzing thread.
pub(crate) struct Worker<'s, 'o> {
    number: usize,
    shared: &'s SharedState<'o>,
    engine: Engine,
    target: TargetRunner,
    /// How many discoveries and unstable locations of the others were read.
    seen: (usize, usize),
    unstable: usize,
    failures: u32,
}

impl<'s, 'o> Worker<'s, 'o> {
    /// Starts the target.
    pub(crate) fn start(
        number: usize,
        shared: &'s SharedState<'o>,
        seeds: &Seeds,
    ) -> Result<Self, CampaignError> {
        let options = &*shared.options;
        let mut engine = Engine::new(EngineOptions {
            seed: options.seed.wrapping_add(number as u64 * 0x9e37_79b9),
            tokens: seeds.tokens.clone(),
            grammar: seeds.grammar.clone(),
            paths: Arc::clone(&shared.paths),
            ..EngineOptions::default()
        });
        let workers = shared.progress.len();
        for case in &seeds.cases {
            engine.add_seed(case.clone());
        }
        // The test cases of a resumed campaign are divided between the workers, which exchange discoveries anyway.
        for (place, case) in shared.active_cases().iter().enumerate() {
            if place % workers == number {
                engine.add_seed(shared.campaign.queue.load(*case)?);
            }
        }
        Ok(Self {
            number,
            shared,
            engine,
            target: TargetRunner::start(
                options,
                &shared.runtime,
                &shared.campaign,
                &shared.suspects,
                &shared.limit,
            )?,
            seen: (0, 0),
            unstable: 0,
            failures: 0,
        })
    }

    /// One step of the engine: a test case and its mutations. Exchanges news with the other workers.
    pub(crate) fn step(&mut self) -> Result<(), CampaignError> {
        self.receive();
        let found = match self.engine.step(&mut self.target) {
            Ok(found) => {
                self.failures = 0;
                found
            }
            // The campaign stops.
            Err(CampaignError::Interrupted) => self.engine.take_found(),
            Err(error @ CampaignError::Execute(_)) => {
                self.failures += 1;
                if self.failures > FAILURES_MAX {
                    return Err(error);
                }
                self.target
                    .restart(&self.shared.options, &self.shared.runtime)?;
                Vec::new()
            }
            Err(error) => return Err(error),
        };
        for discovery in &found {
            self.shared.discovered(self.number, discovery)?;
        }
        let stats = self.engine.stats();
        self.publish(stats);
        Ok(())
    }

    /// Takes what the other workers have found, and test cases on new images.
    fn receive(&mut self) {
        let (cases, unstable) = self.shared.news(self.number, &mut self.seen);
        for case in cases {
            self.engine.import(&case);
        }
        for it in unstable {
            self.engine.ignore(&it);
        }
        let pending = self.engine.stats().pending;
        for place in pending..NEW_IMAGE_CASES {
            let Some(case) = self.shared.take_new_image_case(place % 2 == 0) else {
                break;
            };
            self.engine.add_on_image(case);
        }
    }

    /// Publishes statistics and unstable locations.
    fn publish(&mut self, stats: EngineStats) {
        if stats.unstable != self.unstable {
            self.unstable = stats.unstable;
            let Unstable { pm, branches } = self.engine.unstable();
            self.shared
                .tell_unstable(self.number, Unstable { pm, branches });
        }
        let mut progress = lock(&self.shared.progress[self.number]);
        progress.engine = stats;
        if progress.speed.is_none() || stats.steps.is_multiple_of(64) {
            progress.speed = Some(speed_of(&self.target));
        }
    }
}

/// How executions are started, as a sentence.
fn speed_of(target: &TargetRunner) -> String {
    use powerfail_recorder::executor::Speed;
    let report = target.executor().speed_report();
    let how = match report.speed {
        Speed::FromTemplates => "executions are forked from a process that has opened its pool",
        Speed::FromRoot => "executions are forked from a process that is about to open its pool",
        Speed::NewProcesses => "each execution is a new process",
    };
    match report.reason {
        Some(reason) => format!("{how}: {reason}"),
        None => how.to_owned(),
    }
}

/// The test cases to try on a new image.
pub(crate) fn cases_on(image: powerfail_image::ImageId, input: &[u8]) -> Vec<TestCase> {
    let case = |input: &[u8]| TestCase {
        image,
        input: input.to_vec(),
    };
    if image == Images::empty() {
        return Vec::new();
    }
    vec![case(input)]
}
