//! Recoveries that attack what supervises them: each is judged, and the next one runs as if it had not been there.

use powerfail_finding::RecoveryOutcome;
use powerfail_oracle::{
    Branch, ExploreRequest, LineTable, Oracle, OracleError, PathMode, ProcessMode, RecoveryPlan,
    Slot, TableLine,
};

use crate::support::{Place, WAYS, failure, is_success, output, recovery, with_runtime};

const SIGKILL: i32 = 9;
const SIGSYS: i32 = 31;

fn slot(place: &Place, plan: &RecoveryPlan, way: (PathMode, ProcessMode)) -> Slot {
    let oracle = Oracle::new(plan.clone(), with_runtime(way)).unwrap();
    oracle.slot(&[place.mapping()]).unwrap()
}

/// Recovers an image that makes recovery hostile, by execution.
fn run_evil(place: &Place, slot: &mut Slot) -> powerfail_oracle::Failure {
    std::fs::write(place.private(), "evil").unwrap();
    failure(slot.run_plain().unwrap())
}

/// The next image is recovered.
#[track_caller]
fn assert_alive(place: &Place, slot: &mut Slot) {
    std::fs::write(place.private(), "image").unwrap();
    assert!(is_success(&slot.run_plain().unwrap()));
    std::fs::write(place.private(), "image").unwrap();
    assert!(is_success(&slot.run().unwrap()));
}

#[test]
fn a_recovery_that_signals_everyone_or_harms_its_supervisor_fails_and_the_next_one_runs() {
    for act in [
        "kill-everyone",
        "kill-parent",
        "stop-parent",
        "limit-parent",
    ] {
        for way in WAYS {
            let place = Place::new();
            let plan = recovery(&format!("open={{pool}} when=evil {act} exit=0"));
            let mut slot = slot(&place, &plan, way);
            let failed = run_evil(&place, &mut slot);
            let RecoveryOutcome::Signal { signal, .. } = failed.outcome else {
                panic!("{act} {way:?}: {:?}", failed.outcome);
            };
            assert_eq!(signal, SIGSYS, "{act} {way:?}");
            assert!(output(&failed).contains("the process that supervises it"));
            assert_alive(&place, &mut slot);
        }
    }
}

#[test]
fn asking_whether_everyone_exists_is_harmless() {
    let place = Place::new();
    for way in WAYS {
        let plan = recovery("open={pool} ask-parent exit=0");
        assert!(is_success(&slot(&place, &plan, way).run_plain().unwrap()));
    }
}

#[test]
fn a_snapshot_that_was_stopped_is_done_without() {
    let place = Place::new();
    let plan = recovery("open={pool} when=evil stop-parent exit=2");
    let mut slot = slot(&place, &plan, WAYS[0]);
    for _ in 0..3 {
        std::fs::write(place.private(), "image").unwrap();
        slot.run().unwrap();
    }
    std::fs::write(place.private(), "evil").unwrap();
    let lost = slot.run().unwrap_err();
    assert!(matches!(lost, OracleError::SnapshotLost { .. }), "{lost}");
    assert!(!is_success(&slot.run().unwrap()));
}

#[test]
fn exploring_survives_the_end_of_its_snapshot() {
    for act in ["kill-everyone", "kill-parent", "stop-parent"] {
        let place = Place::new();
        let words = format!("open={{pool}} choose=0/2 if=1 {act} exit=0");
        let mut slot = slot(&place, &recovery(&words), WAYS[0]);
        let table = LineTable {
            line_bytes: 64,
            pools: vec![place.original()],
            lines: vec![TableLine {
                pool: 0,
                offset: 0,
                contents: vec![0; 128],
            }],
            watched: Vec::new(),
        };
        let request = |branch, prefix| ExploreRequest {
            table: &table,
            prefix,
            branch,
            watches: &[],
            observations: false,
            log: false,
            max_executions: u64::MAX,
        };
        match slot.explore(&request(Branch::Fork, &[])) {
            // It ended the process that it was forked from.
            Err(OracleError::NotForkable { .. }) => assert_ne!(act, "kill-everyone"),
            explored => {
                assert_eq!(explored.unwrap().executions.len(), 2);
                assert_eq!(act, "kill-everyone");
            }
        }
        // One by one, each execution has an outcome.
        for (prefix, ends_well) in [(&[0][..], true), (&[1], false)] {
            let explored = slot.explore(&request(Branch::Repeat, prefix)).unwrap();
            let verdict = &explored.executions[0].verdict;
            assert_eq!(is_success(verdict), ends_well, "{act}");
        }
    }
}

#[test]
fn a_supervisor_that_was_killed_is_replaced() {
    // Without a process namespace, the zygote can be killed in ways that no filter sees.
    for way in [WAYS[1], WAYS[3]] {
        let place = Place::new();
        let plan = recovery("open={pool} when=evil kill-parent-unseen exit=0");
        let mut slot = slot(&place, &plan, way);
        for _ in 0..2 {
            let failed = run_evil(&place, &mut slot);
            let RecoveryOutcome::Signal { signal, .. } = failed.outcome else {
                panic!("{way:?}: {:?}", failed.outcome);
            };
            assert_eq!(signal, SIGKILL);
            assert!(output(&failed).contains("recovery killed it"));
            assert_alive(&place, &mut slot);
        }
    }
}

#[test]
fn mounts_are_out_of_reach() {
    let place = Place::new();
    let plan = recovery("open={pool} when=evil unmount exit=0");
    for way in WAYS {
        let mut slot = slot(&place, &plan, way);
        // The word fails if it could unmount something.
        std::fs::write(place.private(), "evil").unwrap();
        assert!(is_success(&slot.run_plain().unwrap()), "{way:?}");
        assert_alive(&place, &mut slot);
    }
}
