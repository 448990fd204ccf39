//! When recovery hangs. No timeout passes in these tests: they would last for an hour.

use std::time::Duration;

use powerfail_finding::RecoveryOutcome;
use powerfail_oracle::{CommandLine, Oracle, RecoveryPlan, Verdict};

use crate::support::{Place, WAYS, failure, is_success, plan, program, settings};

/// A recovery that does what its image says.
fn by_image(place: &Place) -> RecoveryPlan {
    let command = CommandLine::new([
        program("hang").into_os_string(),
        place.original().into_os_string(),
    ]);
    let mut plan = place.expiring(&plan(command));
    plan.timeout = Duration::from_hours(1);
    plan
}

fn assert_hangs(verdict: Verdict) {
    let failed = failure(verdict);
    assert!(
        matches!(failed.outcome, RecoveryOutcome::Timeout { .. }),
        "{:?}",
        failed.outcome
    );
    assert!(failed.backtrace.is_some());
}

#[test]
fn a_hang_is_waited_for_once_by_all_slots() {
    let place = Place::new();
    for way in WAYS {
        let oracle = Oracle::new(by_image(&place), settings(way)).unwrap();
        let mut first = oracle.slot(&[place.mapping()]).unwrap();
        let mut second = oracle.slot(&[place.mapping()]).unwrap();
        let run = |image: &str, slot: &mut powerfail_oracle::Slot| {
            std::fs::write(place.private(), image).unwrap();
            slot.run_plain().unwrap()
        };
        assert!(is_success(&run("nothing", &mut first)));
        // This one makes its time pass.
        assert_hangs(run("spin and expire", &mut first));
        assert_hangs(run("spin", &mut first));
        assert_hangs(run("spin", &mut second));
        // Slow, but elsewhere.
        assert!(is_success(&run("slow", &mut first)));
        assert!(is_success(&run("slow", &mut second)));
    }
}

#[test]
fn a_loop_that_calls_functions_is_one_place() {
    let place = Place::new();
    let oracle = Oracle::new(by_image(&place), settings(WAYS[0])).unwrap();
    let mut slot = oracle.slot(&[place.mapping()]).unwrap();
    let mut run = |image: &str| {
        std::fs::write(place.private(), image).unwrap();
        slot.run_plain().unwrap()
    };
    assert!(is_success(&run("nothing")));
    assert_hangs(run("calls and expire"));
    assert_hangs(run("calls"));
    assert_hangs(run("calls"));
}

#[test]
fn a_busy_recovery_hangs_long_before_its_timeout() {
    let place = Place::new();
    let mut plan = by_image(&place);
    plan.busy_limit = Some(Duration::from_millis(300));
    for way in WAYS {
        let mut slot = place.slot(&plan, way);
        assert!(is_success(&slot.run_plain().unwrap()));
        std::fs::write(place.private(), "spin").unwrap();
        assert_hangs(slot.run_plain().unwrap());
        std::fs::write(place.private(), "nothing").unwrap();
    }
}

#[test]
fn a_hang_on_changed_pools_is_not_waited_for() {
    let place = Place::new();
    let mut slot = place.slot(&by_image(&place), WAYS[0]);
    assert!(is_success(&slot.run_plain().unwrap()));
    std::fs::write(place.private(), "spin").unwrap();
    let (verdict, _) = slot.run_on_changed_pools().unwrap();
    assert_hangs(verdict);
}

#[test]
fn a_deadlock_is_seen() {
    let place = Place::new();
    let plan = by_image(&place);
    for way in WAYS {
        for image in ["deadlock", "deadlock of threads", "deadlock of a child"] {
            std::fs::write(place.private(), image).unwrap();
            assert_hangs(place.run(&plan, way));
        }
    }
}
