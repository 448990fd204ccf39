//! Branches: the end of one does not end the others.

use std::sync::atomic::Ordering;

use powerfail_protocol::explore::{RecoveryMessageKind, RecoveryOrder, RefusalKind, flag};

use super::outputs;
use super::zygote::{Outcome, Refused, Table, Zygote};

fn two() -> Table {
    Table::default().line(0, &[&[(0, 1)], &[]])
}

fn ends(outcomes: &[Outcome]) -> Vec<(Result<i32, i32>, &str)> {
    outcomes
        .iter()
        .map(|outcome| (outcome.end, outcome.output.as_str()))
        .collect()
}

#[test]
fn a_crash_ends_one_branch() {
    let expected = [(Err(libc::SIGSEGV), ""), (Ok(0), "fine\n")];
    let forked = Zygote::fork_all(&two(), "crashing").unwrap();
    assert_eq!(ends(&forked), expected);
    let repeated = Zygote::reexecute_all(&two(), "crashing").unwrap();
    assert_eq!(ends(&repeated), expected);
}

#[test]
fn a_hang_is_ended_from_outside() {
    let mut zygote = Zygote::new(two());
    zygote.prepare();
    zygote.start_mode("hanging");
    let snapshot = zygote.snapshot();
    zygote.begin(flag::LAZY | flag::FORK | flag::PRIVATE, &[]);
    let mut killed = false;
    let outcomes = zygote.run(snapshot, |zygote| {
        if killed {
            return;
        }
        killed = true;
        // The branch has made its choice when it writes.
        zygote.wait_for_output();
        assert_eq!(zygote.control().waiting.load(Ordering::Relaxed), 1);
        let process = zygote.control().active.load(Ordering::Relaxed);
        // SAFETY: a signal to one of our processes.
        unsafe { libc::kill(process as i32, libc::SIGKILL) };
    });
    let outcomes = outcomes.unwrap();
    let expected = [(Err(libc::SIGKILL), "hangs\n"), (Ok(0), "fine\n")];
    assert_eq!(ends(&outcomes), expected);
    zygote.stop();
}

#[test]
fn the_recovery_handles_its_own_faults() {
    assert_eq!(outputs(&two(), "handled"), ["caught 1\n", "caught 0\n"]);
}

#[test]
fn where_forking_is_impossible_values_are_left() {
    let mut zygote = Zygote::new(two());
    zygote.prepare();
    zygote.start_mode("mixed");
    let snapshot = zygote.snapshot();
    zygote.begin(flag::LAZY | flag::FORK | flag::PRIVATE, &[]);
    zygote.control().waiting_max = 0;
    let outcomes = zygote.run(snapshot, |_| ()).unwrap();
    assert_eq!(outcomes.len(), 1);
    assert_eq!(zygote.choices()[0].left, 1);
    zygote.stop();
}

#[test]
fn threads_leave_values() {
    let table = Table::default().line(0, &[&[(0, 1), (1, 2)], &[(0, 1)], &[]]);
    let forked = Zygote::fork_all(&table, "threads").unwrap();
    // The second thread has ended when the first one reads: that can branch.
    assert!(forked.iter().all(|it| it.end == Ok(0)), "{forked:?}");
    let outputs: Vec<&str> = forked.iter().map(|it| it.output.as_str()).collect();
    assert_eq!(outputs, ["1 2\n", "1 0\n"]);
    let mut repeated = Zygote::reexecute_all(&table, "threads").unwrap();
    repeated.sort();
    let outputs: Vec<&str> = repeated.iter().map(|it| it.output.as_str()).collect();
    assert_eq!(outputs, ["0 0\n", "1 0\n", "1 2\n"]);
}

#[test]
fn copies_with_a_pool_are_refused() {
    let reason = "the recovery forks while a pool is mapped";
    let refused = Zygote::fork_all(&two(), "forking").unwrap_err();
    assert_eq!(refused, Refused::new(RefusalKind::NotForkable, reason));
    let refused = Zygote::reexecute_all(&two(), "forking").unwrap_err();
    assert_eq!(refused, Refused::new(RefusalKind::NotExplorable, reason));
}

#[test]
fn what_is_private_cannot_be_handed_over() {
    let refused = Zygote::fork_all(&two(), "becoming").unwrap_err();
    assert_eq!(
        refused,
        Refused::new(
            RefusalKind::NotForkable,
            "the recovery calls exec after it has used a pool"
        )
    );
    let refused = Zygote::fork_all(&two(), "delegating").unwrap_err();
    assert_eq!(
        refused,
        Refused::new(
            RefusalKind::NotForkable,
            "a child process of the recovery uses the pool"
        )
    );
    for (mode, output) in [("becoming", "5 0 0 0\n"), ("delegating", "   5\n")] {
        let outcomes = Zygote::reexecute_all(&two(), mode).unwrap();
        assert_eq!(ends(&outcomes), [(Ok(0), output)]);
    }
}

#[test]
fn a_tree_can_be_stopped() {
    let table = Table::default()
        .line(0, &[&[(60, 1)], &[]])
        .line(64, &[&[(0, 2)], &[]]);
    let mut zygote = Zygote::new(table);
    zygote.prepare();
    zygote.start_mode("crossing");
    let snapshot = zygote.snapshot();
    zygote.begin(flag::LAZY | flag::FORK | flag::PRIVATE, &[]);
    zygote.order(RecoveryOrder::Run);
    let first = zygote.hear().unwrap();
    assert!(first.is(RecoveryMessageKind::Ended) && first.sender != snapshot);
    // Every waiting process reports that its child has ended, and is then told to end.
    loop {
        zygote.order(RecoveryOrder::Stop);
        let next = zygote.hear().unwrap();
        assert!(next.is(RecoveryMessageKind::Ended));
        if next.sender == snapshot {
            break;
        }
    }
    zygote.stop();
}
