//! Interrupts are forwarded to the target. The only test in its process, which receives the signal.

use powerfail_recorder::{RecordOptions, TargetStatus, record};
use powerfail_trace::RecordKind;

#[test]
fn an_interrupt_is_passed_on_and_the_trace_is_finished() {
    let directory = tempfile::tempdir().unwrap();
    let pool = directory.path().join("pool");
    std::fs::write(&pool, vec![0; 4096]).unwrap();
    let target = env!("CARGO_BIN_EXE_powerfail-fake-target");
    let command = vec![target.into(), "signalled".into(), pool.into()];
    let summary = record(
        &RecordOptions::new(command, directory.path().join("trace")),
        &[],
    )
    .unwrap();
    assert_eq!(summary.status, TargetStatus::Exited(7));
    assert_eq!(summary.events_of(RecordKind::Store), 1);
}
