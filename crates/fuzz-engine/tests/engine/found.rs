//! Deep states of a program are reached, and always in the same way.

use powerfail_fuzz_engine::{
    End, Engine, EngineOptions, EngineStats, Grammar, KnownCase, Origin, Priority, Target,
    TargetRun,
};
use powerfail_image::ImageId;

use crate::common::{EMPTY, case, engine, step, until};
use crate::toy::{CRASH_IMAGE, RECOVERED, RESIZE, SHRINK, Toy};

#[test]
fn seventeen_insertions_and_a_deletion_of_one_of_them() {
    for seed in 0..5 {
        let mut toy = Toy::default();
        let mut engine = engine(seed, "put 1 2\n");
        let discovery =
            until(&mut engine, &mut toy, SHRINK, 5000).expect("the location is reached");
        assert_eq!(discovery.priority, Priority::High);
        assert_eq!(discovery.end, End::Exit(0));
        assert_eq!(discovery.case.image, EMPTY);
        assert!(
            discovery
                .footprint
                .pm
                .iter()
                .any(|touched| touched.location == SHRINK)
        );
        assert_eq!(engine.stats().executions, toy.runs);
    }
}

#[test]
fn a_location_that_exists_on_one_image_only() {
    for seed in 0..5 {
        let mut toy = Toy::default();
        let mut engine = engine(seed, "put 1 2\n");
        for _ in 0..20 {
            step(&mut engine, &mut toy);
        }
        engine.add_on_image(case(CRASH_IMAGE, "put 1 2\n"));
        let discovery =
            until(&mut engine, &mut toy, RECOVERED, 60_000).expect("the location is reached");
        assert_eq!(discovery.case.image, CRASH_IMAGE);
        assert_eq!(engine.stats().images, 2);
    }
}

#[test]
fn runs_on_one_image_come_together() {
    let mut toy = Toy::default();
    let mut engine = engine(1, "put 1 2\n");
    for number in 1..50 {
        engine.add_on_image(case(powerfail_image::ImageId([number; 32]), "put 1 2\n"));
    }
    let mut steps = 0;
    while engine.stats().pending > 0 || steps < 150 {
        step(&mut engine, &mut toy);
        steps += 1;
    }
    assert!(
        toy.opened <= steps,
        "{} images were opened in {steps} steps",
        toy.opened
    );
}

#[test]
fn with_a_grammar_and_no_seed_but_an_empty_one() {
    let text = r#"start = { ("put " 0..99 " " 0..9 | "del " 0..99 | "get " 0..99) "\n" } ;"#;
    let grammar: Grammar = text.parse().unwrap();
    let mut toy = Toy::default();
    let mut engine = Engine::new(EngineOptions {
        grammar: Some(grammar.into()),
        ..EngineOptions::default()
    });
    engine.add_seed(case(EMPTY, ""));
    assert!(until(&mut engine, &mut toy, SHRINK, 10_000).is_some());
}

#[test]
fn crashes_are_reported_once_and_not_mutated() {
    let mut toy = Toy::default();
    let mut engine = engine(3, "put 1 2\n");
    let mut crashes = Vec::new();
    while engine.stats().executions < 20_000 {
        crashes.extend(
            step(&mut engine, &mut toy)
                .into_iter()
                .filter(|found| found.end == End::Signal(11)),
        );
    }
    assert!(!crashes.is_empty());
    assert!(engine.stats().signals > crashes.len() as u64);
    assert!(
        engine
            .cases()
            .iter()
            .all(|case| !crashes.iter().any(|crash| crash.case == *case))
    );
    let mut seen: Vec<_> = crashes.iter().map(|crash| &crash.footprint).collect();
    seen.dedup();
    assert_eq!(
        seen.len(),
        crashes.len(),
        "each touches something that the one before does not"
    );
}

#[test]
fn the_same_seed_does_the_same() {
    let run = |seed| {
        let mut toy = Toy::default();
        let mut engine = engine(seed, "put 1 2\n");
        let mut all = Vec::new();
        for number in 0..60 {
            if number % 10 == 5 {
                engine.add_on_image(case(powerfail_image::ImageId([number; 32]), "del 1\n"));
            }
            let found = step(&mut engine, &mut toy);
            all.extend(
                found
                    .into_iter()
                    .map(|found| (found.case, found.execution, found.origin.name())),
            );
        }
        (all, engine.stats())
    };
    let (first, stats) = run(9);
    assert!(first.len() > 20);
    assert_eq!((first, stats), run(9));
    assert_ne!(stats, run(10).1);
}

#[test]
fn unstable_locations_are_ignored_and_shown() {
    let mut toy = Toy::flickering(5000);
    let mut engine = engine(4, "put 1 2\n");
    let mut reported = Vec::new();
    while engine.stats().executions < 20_000 {
        reported.extend(
            step(&mut engine, &mut toy)
                .into_iter()
                .flat_map(|found| found.new_locations),
        );
    }
    let EngineStats {
        stability,
        unstable,
        pm_locations,
        ..
    } = engine.stats();
    assert!(!reported.contains(&5000) && reported.contains(&SHRINK));
    assert_eq!((unstable, engine.unstable().pm), (1, vec![5000]));
    let count = f64::from(u32::try_from(pm_locations).unwrap());
    let expected = count / (count + 1.0);
    assert!((stability - expected).abs() < 1e-9 && stability < 1.0);
}

#[test]
fn what_others_have_found_is_no_discovery() {
    let (mut toy, mut other_toy) = (Toy::default(), Toy::default());
    let (mut one, mut other) = (engine(5, "put 1 2\n"), engine(6, "put 1 2\n"));
    let mut found = Vec::new();
    while one.stats().executions < 5000 {
        found.extend(step(&mut one, &mut toy));
    }
    assert!(
        found
            .iter()
            .any(|found| found.new_locations.contains(&RESIZE))
    );
    let kept = found.iter().filter(|found| found.end.is_normal());
    let new = kept
        .clone()
        .filter(|found| other.import(&KnownCase::from(*found)))
        .count();
    assert_eq!(
        new,
        kept.clone().count(),
        "in the order in which they were found, each is new"
    );
    assert!(!other.import(&KnownCase::from(&found[0])));
    assert_eq!(other.stats().pm_locations, one.stats().pm_locations);
    while other.stats().executions < 5000 {
        let found = step(&mut other, &mut other_toy);
        let mut normal = found.iter().filter(|found| found.end.is_normal());
        assert!(normal.all(|found| !found.new_locations.contains(&SHRINK)));
    }
}

#[test]
fn a_campaign_goes_on_where_it_was() {
    let mut toy = Toy::flickering(5000);
    let mut before = engine(7, "put 1 2\n");
    let mut found = Vec::new();
    while before.stats().executions < 3000 {
        found.extend(step(&mut before, &mut toy));
    }
    let kept: Vec<KnownCase> = found
        .iter()
        .filter(|found| found.end.is_normal())
        .map(KnownCase::from)
        .collect();
    let mut after = Engine::new(EngineOptions {
        seed: 8,
        ..EngineOptions::default()
    });
    after.restore(kept, &before.unstable());
    assert_eq!(after.cases(), before.cases());
    let (old, new) = (before.stats(), after.stats());
    assert_eq!(
        (old.pm_locations, old.corpus, old.unstable),
        (new.pm_locations, new.corpus, new.unstable)
    );
    assert!((old.stability - new.stability).abs() < 1e-9);
    while after.stats().executions < 3000 {
        let again = step(&mut after, &mut toy);
        let mut normal = again.iter().filter(|found| found.end.is_normal());
        assert!(
            normal.all(
                |found| !found.new_locations.contains(&SHRINK) && found.origin != Origin::Added
            )
        );
    }
}

/// A toy that fails after some number of runs.
struct Failing {
    toy: Toy,
    left: u32,
}

impl Target for Failing {
    type Error = &'static str;

    fn run(&mut self, image: ImageId, input: &[u8]) -> Result<TargetRun<'_>, Self::Error> {
        self.left = self.left.checked_sub(1).ok_or("it is over")?;
        self.toy.run(image, input).map_err(|never| match never {})
    }
}

#[test]
fn what_a_step_found_before_it_failed_is_not_lost() {
    let failed = |left| {
        let mut engine = engine(0, "put 1 2\n");
        let toy = Toy::default();
        let mut failing = Failing { toy, left };
        let mut found = Vec::new();
        while let Ok(more) = engine.step(&mut failing) {
            found.extend(more);
        }
        (engine, failing, found)
    };
    // In the middle of a step that finds something.
    let is_rich = |left: &u32| failed(*left).0.take_found().len() > 1;
    let left = (1..2000).find(is_rich).expect("such a step");
    let (mut engine, ..) = failed(left);
    let taken = engine.take_found();
    assert!(engine.take_found().is_empty());
    // It is reported with the next step as well.
    let (mut engine, mut failing, _) = failed(left);
    failing.left = u32::MAX;
    let next = engine.step(&mut failing).expect("it runs again");
    let inputs = |found: &[powerfail_fuzz_engine::Discovery]| -> Vec<Vec<u8>> {
        found.iter().map(|it| it.case.input.clone()).collect()
    };
    assert!(inputs(&next).starts_with(&inputs(&taken)));
}
