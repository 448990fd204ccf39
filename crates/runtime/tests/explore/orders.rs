//! Snapshots, executions without exploration, and logs.

use std::os::unix::fs::MetadataExt;
use std::process::Command;

use powerfail_protocol::explore::{LogKind, RecoveryMessageKind, RecoveryOrder, flag};

use super::zygote::{Outcome, Table, Zygote};

fn two() -> Table {
    Table::default().line(0, &[&[(0, 1)], &[]])
}

#[test]
fn executions_see_the_pool_of_the_moment() {
    let mut zygote = Zygote::new(Table::default());
    zygote.prepare();
    zygote.start_mode("again");
    let snapshot = zygote.snapshot();
    for byte in [7, 8] {
        // Another file each time.
        zygote.prepare();
        let mut image = std::fs::read(&zygote.pool).unwrap();
        image[0] = byte;
        let new = zygote.pool.with_extension("new");
        std::fs::write(&new, image).unwrap();
        std::fs::rename(&new, &zygote.pool).unwrap();
        zygote.begin(0, &[]);
        let outcomes = zygote.run(snapshot, |_| ()).unwrap();
        assert_eq!(outcomes[0].output, format!("41 42 {byte:x}\n"));
        // Nothing is private.
        assert_eq!(std::fs::read(&zygote.pool).unwrap()[3], 0x41);
    }
    zygote.stop();
}

#[test]
fn looking_at_the_pool_is_touching_it() {
    let mut zygote = Zygote::new(Table::default());
    zygote.prepare();
    zygote.start_mode("looked_at");
    let snapshot = zygote.snapshot();
    for _ in 0..2 {
        zygote.prepare();
        let number = std::fs::metadata(&zygote.pool).unwrap().ino();
        zygote.begin(0, &[]);
        let outcomes = zygote.run(snapshot, |_| ()).unwrap();
        assert_eq!(outcomes[0].output, format!("{number}\n"));
    }
    zygote.stop();
}

#[test]
fn a_snapshot_can_go_on_itself() {
    let mut zygote = Zygote::new(two());
    zygote.prepare();
    zygote.begin(flag::LAZY, &[1]);
    zygote.start_mode("crashing");
    zygote.snapshot();
    zygote.order(RecoveryOrder::Go);
    assert_eq!(zygote.wait().code(), Some(0));
    assert_eq!(zygote.output(), "fine\n");
    assert_eq!(zygote.choices()[0].class, 1);
}

#[test]
fn programs_of_a_script_follow_each_other() {
    let mut zygote = Zygote::new(two());
    let (program, pool) = zygote.program_and_pool();
    zygote.prepare();
    zygote.begin(flag::LAZY, &[1]);
    let script = format!("{program} crashing {pool} && {program} mixed {pool}; true");
    zygote.start(Command::new("sh").args(["-c", &script]));
    for _ in 0..2 {
        let message = zygote.hear().unwrap();
        assert!(message.is(RecoveryMessageKind::NoSnapshot), "{message:?}");
        assert!(message.text.contains("child process"));
    }
    assert_eq!(zygote.wait().code(), Some(0));
    // Observations of the first one hold for the second one.
    assert_eq!(zygote.output(), "fine\n0 0 0 0\n");
    assert_eq!(zygote.choices().len(), 1);
}

#[test]
fn a_program_that_a_shell_becomes_has_a_snapshot() {
    let mut zygote = Zygote::new(two());
    let (program, pool) = zygote.program_and_pool();
    zygote.prepare();
    let script = format!("exec {program} mixed {pool}");
    zygote.start(Command::new("sh").args(["-c", &script]));
    let snapshot = zygote.snapshot();
    zygote.begin(flag::LAZY | flag::FORK | flag::PRIVATE, &[]);
    assert_eq!(zygote.run(snapshot, |_| ()).unwrap().len(), 2);
    zygote.stop();
}

#[test]
fn what_recovery_does_is_logged() {
    let mut zygote = Zygote::new(two());
    zygote.prepare();
    zygote.start_mode("logged");
    let snapshot = zygote.snapshot();
    for flags in [
        flag::LAZY | flag::LOG,
        flag::LAZY | flag::LOG | flag::PRIVATE,
    ] {
        zygote.prepare();
        zygote.begin(flags, &[]);
        let outcomes = zygote.run(snapshot, |_| ()).unwrap();
        assert_eq!(outcomes[0].output, "1\n");
        let log: Vec<(u32, u64, Vec<u8>)> = zygote.log();
        let kinds: Vec<(u32, u64)> = log.iter().map(|event| (event.0, event.1)).collect();
        let expected = [
            (LogKind::Store, 8192),
            (LogKind::Flush, 8192),
            (LogKind::Fence, 0),
            (LogKind::StoreNonTemporal, 8256),
            // There are two: what is right behind a fence has nothing to order.
            (LogKind::Fence, 0),
            (LogKind::Store, 8320),
            (LogKind::Sync, 0),
        ];
        assert_eq!(kinds, expected.map(|(kind, offset)| (kind as u32, offset)));
        assert_eq!(log[0].2, 1u64.to_le_bytes());
        assert_eq!(log[3].2, 7u32.to_le_bytes());
        assert_eq!(log[5].2, 5u64.to_le_bytes());
    }
    zygote.stop();
}

/// The number of the thread that has a mutex is another one in each execution.
#[test]
fn the_owner_of_a_lock_is_logged_as_the_same_number() {
    let mut zygote = Zygote::new(two());
    zygote.prepare();
    zygote.start_mode("owning");
    let snapshot = zygote.snapshot();
    let logs = [(); 2].map(|()| {
        zygote.prepare();
        zygote.begin(flag::LOG | flag::PRIVATE, &[]);
        let outcomes = zygote.run(snapshot, |_| ()).unwrap();
        assert_eq!(outcomes[0].output, "1\n", "recovery itself sees its number");
        zygote.log()
    });
    assert_eq!(logs[0], logs[1]);
    let owners = logs[0].iter().filter(|(_, offset, _)| *offset == 8192 + 8);
    let owners: Vec<&[u8]> = owners.map(|(_, _, bytes)| &bytes[..]).collect();
    assert_eq!(owners, [1u32 << 22, 0].map(u32::to_le_bytes));
    zygote.stop();
}

#[test]
fn each_branch_has_its_own_log() {
    let mut zygote = Zygote::new(two());
    zygote.prepare();
    zygote.start_mode("logged");
    let snapshot = zygote.snapshot();
    zygote.begin(flag::LAZY | flag::LOG | flag::FORK | flag::PRIVATE, &[]);
    let outcomes = zygote.run(snapshot, |_| ()).unwrap();
    let logs: Vec<_> = outcomes.iter().map(|outcome| &outcome.log).collect();
    assert_eq!(logs.len(), 2);
    assert_eq!(logs[0][0].2, 1u64.to_le_bytes());
    assert_eq!(logs[1][0].2, 0u64.to_le_bytes());
    assert_eq!(logs[0][1..], logs[1][1..]);
    zygote.stop();
}

/// A fence orders only the flushes of its own thread, and a branch is another process: in the log it is the same thread.
#[test]
fn a_branch_between_flush_and_fence_is_the_same_thread_in_the_log() {
    let mut zygote = Zygote::new(two());
    zygote.prepare();
    zygote.start_mode("flushed");
    let snapshot = zygote.snapshot();
    zygote.begin(flag::LAZY | flag::LOG | flag::FORK | flag::PRIVATE, &[]);
    let outcomes = zygote.run(snapshot, |_| ()).unwrap();
    assert_eq!(outcomes.len(), 2);
    for outcome in outcomes {
        let kinds: Vec<u32> = outcome.log.iter().map(|event| event.0).collect();
        let expected = [LogKind::Store, LogKind::Flush, LogKind::Fence];
        assert_eq!(kinds, expected.map(|kind| kind as u32));
        assert_eq!(outcome.log_threads, 1);
    }
    zygote.stop();
}

/// A copy of a locked operation does what the operation would: with its operand, its flags, and what follows.
#[test]
fn a_locked_operation_that_is_logged_has_its_effect() {
    let mut zygote = Zygote::new(two());
    zygote.prepare();
    zygote.start_mode("counted");
    let snapshot = zygote.snapshot();
    for _ in 0..2 {
        zygote.prepare();
        zygote.begin(flag::LAZY | flag::LOG, &[]);
        let outcomes = zygote.run(snapshot, |_| ()).unwrap();
        assert_eq!(outcomes[0].output, "100\n");
        let log: Vec<(u32, u64, Vec<u8>)> = zygote.log();
        let kinds: Vec<u32> = log.iter().map(|event| event.0).collect();
        // All hundred are executed, and those behind the first have nothing to order.
        let expected = [LogKind::Store, LogKind::Fence];
        assert_eq!(kinds, expected.map(|kind| kind as u32));
    }
    zygote.stop();
}

/// A copy of a locked operation runs because it is a fence, and then accesses a hidden page: in a branch, which is another
/// thread, and again when it is executed once more from the snapshot.
#[test]
fn a_locked_operation_that_is_logged_can_be_a_choice() {
    let mut zygote = Zygote::new(two());
    zygote.prepare();
    zygote.start_mode("exchanged");
    let snapshot = zygote.snapshot();
    let check = |outcome: &Outcome, seen: u8| {
        assert_eq!(outcome.end, Ok(0), "{outcome:?}");
        assert_eq!(outcome.output, format!("{seen:x} 10\n"));
        let expected = [
            (LogKind::Fence, 0, Vec::new()),
            (LogKind::Store, 0, 0x10u64.to_le_bytes().to_vec()),
            (LogKind::Store, 8192, u64::from(seen).to_le_bytes().to_vec()),
            (LogKind::Flush, 8192, Vec::new()),
            (LogKind::Fence, 0, Vec::new()),
        ];
        let expected = expected.map(|(kind, offset, bytes)| (kind as u32, offset, bytes));
        assert_eq!(outcome.log, expected);
    };
    // The first time nothing is patched, later the noted instructions are.
    for _ in 0..3 {
        zygote.prepare();
        zygote.begin(flag::LAZY | flag::LOG | flag::FORK | flag::PRIVATE, &[]);
        let outcomes = zygote.run(snapshot, |_| ()).unwrap();
        assert_eq!(outcomes.len(), 2, "{outcomes:?}");
        check(&outcomes[0], 1);
        check(&outcomes[1], 0);
        for (class, seen) in [(0, 1), (1, 0)] {
            zygote.prepare();
            zygote.begin(flag::LAZY | flag::LOG, &[class]);
            let outcomes = zygote.run(snapshot, |_| ()).unwrap();
            assert_eq!(outcomes.len(), 1, "{outcomes:?}");
            check(&outcomes[0], seen);
        }
    }
    zygote.stop();
}
