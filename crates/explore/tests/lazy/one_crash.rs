//! Soundness and completeness for one crash: lazy exploration gives the same behaviours as brute force, without a
//! redundant execution.

use std::collections::BTreeSet;

use powerfail_explore::lazy::nested::CrashPoint;
use powerfail_explore::lazy::{CrashTable, Seen};
use powerfail_model::{Frontier, Rules};

use crate::brute::{behaviour_on, behaviours, crash_image, crash_images};
use crate::generate::{Generator, all_rules};
use crate::lazily::explore;
use crate::machine::{Behaviour, Program};
use crate::workload::{at_failure_points, newest};

/// How much was compared.
#[derive(Default)]
struct Compared {
    points: usize,
    with_choices: usize,
    executions: usize,
    states: usize,
}

fn compare(frontier: &Frontier, program: &Program, len: usize, compared: &mut Compared) {
    let crash = CrashPoint::first(CrashTable::of(frontier));
    assert!(crash.table.is_complete());
    let executions = explore(program, &crash, &newest(frontier, len));
    let lazily: BTreeSet<Behaviour> = executions
        .iter()
        .map(|execution| execution.behaviour.clone())
        .collect();
    assert_eq!(lazily.len(), executions.len(), "one execution for each");
    let images = crash_images(frontier, len);
    assert_eq!(lazily, behaviours(program, &images));

    // The executions cover all crash states, each exactly once, and these give the observed behaviours.
    let mut covered = BTreeSet::new();
    for execution in &executions {
        let seen = Seen::of(&crash.table, execution.observed.iter().copied()).unwrap();
        let mut count = 0_u32;
        for state in seen
            .states()
            .chain([seen.newest_state(), seen.oldest_state()])
        {
            let image = crash_image(frontier, &state, len);
            assert_eq!(behaviour_on(program, &image).0, execution.behaviour);
            count += u32::from(covered.insert(image));
        }
        assert!((10_f64.powf(seen.log10_states()) - f64::from(count)).abs() < 0.5);
    }
    assert_eq!(covered, images);

    compared.points += 1;
    compared.with_choices += usize::from(executions.len() > 1);
    compared.executions += executions.len();
    compared.states += images.len();
}

fn compare_random(rules: Rules, compared: &mut Compared) {
    let mut seed = 0;
    let mut workloads = 0;
    while workloads < 500 {
        seed += 1;
        let mut generator = Generator::new(rules, 3, seed);
        let len = 3 + generator.below(12);
        let workload = generator.workload(len);
        let recovery_len = 1 + generator.below(10) as usize;
        let writing = generator.below(2) == 0;
        let program = generator.recovery(recovery_len, writing);
        let len = generator.pool_len();
        let before = compared.points;
        at_failure_points(rules, &workload, |_, frontier| {
            if frontier.crash_state_count_log10() < 2.4 {
                compare(frontier, &program, len, compared);
            }
        });
        workloads += usize::from(compared.points > before);
    }
}

#[test]
fn lazy_shows_what_all_crash_states_show_in_every_domain_and_atomicity() {
    for rules in all_rules() {
        let mut compared = Compared::default();
        compare_random(rules, &mut compared);
        // The comparison is meaningful: there are choices, and fewer executions than states.
        assert!(compared.with_choices > 100, "{rules:?}");
        assert!(compared.executions < compared.states, "{rules:?}");
    }
}
