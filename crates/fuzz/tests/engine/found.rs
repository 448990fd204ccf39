//! What is deep in a program is reached, and always in the same way.

use powerfail_fuzz::{Discovery, End, Engine, Options, Priority, TestCase};
use powerfail_image::ImageId;

use crate::toy::{CRASH_IMAGE, RECOVERED, SHRINK, Toy};

const EMPTY: ImageId = ImageId([0; 32]);

fn case(image: ImageId, input: &str) -> TestCase {
    TestCase {
        image,
        input: input.as_bytes().to_vec(),
    }
}

fn engine(seed: u64, input: &str) -> Engine {
    let tokens = ["put", "del", "get", "crash"]
        .map(|token| token.as_bytes().to_vec())
        .to_vec();
    let mut engine = Engine::new(Options {
        seed,
        tokens,
        ..Options::default()
    });
    engine.add_seed(case(EMPTY, input));
    engine
}

/// Steps until a location is new in a discovery, or until there were too many executions.
fn until(engine: &mut Engine, toy: &mut Toy, location: u32, limit: u64) -> Option<Discovery> {
    while engine.stats().executions < limit {
        let found = engine.step(toy).unwrap_or_else(|never| match never {});
        if let Some(discovery) = found
            .into_iter()
            .find(|found| found.new_locations.contains(&location))
        {
            return Some(discovery);
        }
    }
    None
}

#[test]
fn seventeen_insertions_and_a_deletion_of_one_of_them() {
    for seed in 0..5 {
        let mut toy = Toy::default();
        let mut engine = engine(seed, "put 1 2\n");
        let discovery =
            until(&mut engine, &mut toy, SHRINK, 30_000).expect("the location is reached");
        assert_eq!(discovery.priority, Priority::High);
        assert_eq!(discovery.end, End::Exit(0));
        println!("seed {seed}: {:?}", engine.stats());
    }
}
