//! How many executions a second the engine itself allows: the target does nothing but count.
//!
//! `cargo run --release -p powerfail-fuzz-engine --example engine_speed`

use std::convert::Infallible;
use std::time::Duration;

use powerfail_fuzz_engine::{End, Engine, EngineOptions, KnownCase, Target, TargetRun, TestCase};
use powerfail_image::ImageId;

/// Seconds that this thread was on a processor: others do not count.
fn seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")
        .expect("Linux says how long a thread ran");
    let nanoseconds = text
        .split(' ')
        .next()
        .and_then(|first| first.parse().ok())
        .unwrap_or(0_u64);
    Duration::from_nanos(nanoseconds).as_secs_f64()
}

const COMMANDS: [&str; 3] = ["put", "del", "get"];

/// Touches locations by the lines of its input, as many as a program that stores a little.
struct Nothing {
    pm: Vec<u8>,
    touched: Vec<usize>,
}

impl Target for Nothing {
    type Error = Infallible;

    fn run(&mut self, _: ImageId, input: &[u8]) -> Result<TargetRun<'_>, Infallible> {
        for at in self.touched.drain(..) {
            self.pm[at] = 0;
        }
        let mut previous = 0_usize;
        // What it does when it opens its pool.
        let opening = (0..300_usize).map(|at| at * 7919);
        let commands = input
            .split(|byte| *byte == b'\n')
            .take(200)
            .flat_map(|line| {
                let command = COMMANDS
                    .iter()
                    .position(|command| line.starts_with(command.as_bytes()));
                let sites = command.map_or(0, |_| 5);
                (0..sites).map(move |at| command.unwrap_or(0) * 31 + at * 1009)
            });
        for id in opening.chain(commands) {
            let at = (id ^ previous) & 0xffff;
            previous = (id >> 1) & 0xffff;
            self.pm[at] = self.pm[at].wrapping_add(1);
            self.touched.push(at);
        }
        let elapsed = Duration::from_micros(300);
        Ok(TargetRun {
            end: End::Exit(0),
            pm: &self.pm,
            branches: &[],
            elapsed,
            input_untouched: false,
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures to look at")]
fn main() {
    let mut target = Nothing {
        pm: vec![0; 1 << 16],
        touched: Vec::new(),
    };
    let tokens = ["put", "del", "get"]
        .map(|word| word.as_bytes().to_vec())
        .to_vec();
    let mut engine = Engine::new(EngineOptions {
        tokens,
        ..EngineOptions::default()
    });
    engine.add_seed(TestCase {
        image: ImageId([0; 32]),
        input: b"put 1 2\n".to_vec(),
    });
    let start = seconds();
    let mut found = Vec::new();
    while seconds() - start < 3.0 {
        found.extend(
            engine
                .step(&mut target)
                .unwrap_or_else(|never| match never {}),
        );
    }
    let stats = engine.stats();
    let with = (seconds() - start) / stats.executions as f64;
    println!("with the target: {:.0} executions/s, {stats:?}", 1.0 / with);

    let start = seconds();
    let cases = engine.cases();
    let runs = 200_000;
    for run in 0..runs {
        let case = &cases[run % cases.len()];
        target
            .run(case.image, &case.input)
            .unwrap_or_else(|never| match never {});
    }
    let alone = (seconds() - start) / runs as f64;
    println!("target alone: {:.2} us", alone * 1e6);
    let engine_alone = with - alone;
    println!(
        "engine alone: {:.2} us, {:.0} executions/s",
        engine_alone * 1e6,
        1.0 / engine_alone
    );

    let known: Vec<KnownCase> = (0..5000)
        .map(|at| KnownCase::from(&found[at % found.len()]))
        .collect();
    let start = seconds();
    let mut again = Engine::new(EngineOptions::default());
    again.restore(known, &engine.unstable());
    again
        .step(&mut target)
        .unwrap_or_else(|never| match never {});
    println!(
        "5000 cases restored, with a step: {:.0} ms",
        (seconds() - start) * 1e3
    );
}
