//! Shared by the tests of the engine.

use powerfail_fuzz_engine::{Discovery, Engine, EngineOptions, TestCase};
use powerfail_image::ImageId;

use crate::toy::Toy;

/// The image of a program that has not created its pool.
pub(crate) const EMPTY: ImageId = ImageId([0; 32]);

pub(crate) fn case(image: ImageId, input: &str) -> TestCase {
    TestCase {
        image,
        input: input.as_bytes().to_vec(),
    }
}

/// An engine that knows the commands of the toy, with one seed.
pub(crate) fn engine(seed: u64, input: &str) -> Engine {
    let tokens = ["put", "del", "get", "crash"]
        .map(|token| token.as_bytes().to_vec())
        .to_vec();
    let mut engine = Engine::new(EngineOptions {
        seed,
        tokens,
        ..EngineOptions::default()
    });
    engine.add_seed(case(EMPTY, input));
    engine
}

pub(crate) fn step(engine: &mut Engine, toy: &mut Toy) -> Vec<Discovery> {
    engine.step(toy).unwrap_or_else(|never| match never {})
}

/// Steps until a discovery contains a new location, or until the limit of executions is reached.
pub(crate) fn until(
    engine: &mut Engine,
    toy: &mut Toy,
    location: u32,
    limit: u64,
) -> Option<Discovery> {
    while engine.stats().executions < limit {
        let found = step(engine, toy);
        if let Some(discovery) = found
            .into_iter()
            .find(|found| found.new_locations.contains(&location))
        {
            return Some(discovery);
        }
    }
    None
}
