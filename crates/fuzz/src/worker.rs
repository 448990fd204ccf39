//! A thread that fuzzes.

use std::sync::Arc;

use powerfail_fuzz_engine::{Engine, Options, Unstable};
use powerfail_fuzz_store::{Images, TestCase};

use crate::error::CampaignError;
use crate::shared::{Shared, lock};
use crate::start::Beginning;
use crate::target::Runs;

/// How many new images a worker takes between two steps.
const NEWCOMERS: usize = 4;
/// After so many failures in a row nothing can be run any more.
const FAILURES_MAX: u32 = 8;

/// See the module header.
pub(crate) struct Worker<'s, 'o> {
    number: usize,
    shared: &'s Shared<'o>,
    engine: Engine,
    runs: Runs,
    seen: (usize, usize),
    unstable: usize,
    failures: u32,
}

impl<'s, 'o> Worker<'s, 'o> {
    /// Starts the target.
    pub(crate) fn start(
        number: usize,
        shared: &'s Shared<'o>,
        beginning: &Beginning,
    ) -> Result<Self, CampaignError> {
        let options = &*shared.options;
        let mut engine = Engine::new(Options {
            seed: options.seed.wrapping_add(number as u64 * 0x9e37_79b9),
            tokens: beginning.tokens.clone(),
            grammar: beginning.grammar.clone(),
            paths: Arc::clone(&shared.paths),
            ..Options::default()
        });
        let workers = shared.progress.len();
        for case in &beginning.cases {
            engine.add_seed(case.clone());
        }
        // What is resumed is divided; discoveries are exchanged anyway.
        for (place, (case, _)) in shared.queued().iter().enumerate() {
            if place % workers == number {
                engine.add_seed(shared.kept.queue().load(*case)?);
            }
        }
        Ok(Self {
            number,
            shared,
            engine,
            runs: Runs::start(
                options,
                &shared.runtime,
                &shared.kept,
                &shared.suspects,
                &shared.stop,
            )?,
            seen: (0, 0),
            unstable: 0,
            failures: 0,
        })
    }

    /// One test case with its mutations, and what is to be known before and after.
    pub(crate) fn step(&mut self) -> Result<(), CampaignError> {
        self.listen();
        let found = match self.engine.step(&mut self.runs) {
            Ok(found) => {
                self.failures = 0;
                found
            }
            // Everything ends.
            Err(CampaignError::Interrupted) => self.engine.take_found(),
            Err(error @ CampaignError::Repeat(_)) => {
                self.failures += 1;
                if self.failures > FAILURES_MAX {
                    return Err(error);
                }
                self.runs
                    .restart(&self.shared.options, &self.shared.runtime)?;
                Vec::new()
            }
            Err(error) => return Err(error),
        };
        for discovery in &found {
            self.shared.discovered(self.number, discovery)?;
        }
        let stats = self.engine.stats();
        self.tell(stats);
        Ok(())
    }

    /// Takes what others have found.
    fn listen(&mut self) {
        let (cases, unstable) = self.shared.news(self.number, &mut self.seen);
        for case in cases {
            self.engine.import(&case);
        }
        for it in unstable {
            self.engine.ignore(&it);
        }
        let pending = self.engine.stats().pending;
        for place in pending..NEWCOMERS {
            let Some(case) = self.shared.newcomer(place % 2 == 0) else {
                break;
            };
            self.engine.add_on_image(case);
        }
    }

    fn tell(&mut self, stats: powerfail_fuzz_engine::Stats) {
        if stats.unstable != self.unstable {
            self.unstable = stats.unstable;
            let Unstable { pm, branches } = self.engine.unstable();
            self.shared
                .tell_unstable(self.number, Unstable { pm, branches });
        }
        let mut progress = lock(&self.shared.progress[self.number]);
        progress.engine = stats;
        if progress.speed.is_none() || stats.steps.is_multiple_of(64) {
            progress.speed = Some(speed_of(&self.runs));
        }
    }
}

/// How executions are made: a sentence.
fn speed_of(runs: &Runs) -> String {
    use powerfail_recorder::repeat::Speed;
    let report = runs.repeater().speed_report();
    let how = match report.speed {
        Speed::FromTemplates => "forked from a process that has opened its pool",
        Speed::FromRoot => "forked from a process that is about to open its pool",
        Speed::NewProcesses => "new processes",
    };
    match report.reason {
        Some(reason) => format!("{how}: {reason}"),
        None => how.to_owned(),
    }
}

/// The test cases that a new image is tried with.
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
