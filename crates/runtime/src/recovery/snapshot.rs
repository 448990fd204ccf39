//! The snapshot: the recovery just before it first touches a pool.

use core::sync::atomic::{AtomicBool, Ordering};

use powerfail_protocol::explore::{RecoveryMessageKind, RecoveryOrder, flag};

use crate::platform::sys;

use super::{fork, oracle_messages, ordering, shared_file, slow_sites, state};

/// Whether the moment has passed.
static PASSED: AtomicBool = AtomicBool::new(false);

/// Whether the moment has passed.
pub(super) fn has_passed() -> bool {
    PASSED.load(Ordering::Relaxed)
}

/// The process has started.
pub(super) fn begin() {
    let control = shared_file::control();
    let me = sys::getpid();
    if super::has_flag(flag::PRIVATE) && control.attached.load(Ordering::Acquire) == me {
        super::refuse_private("the recovery calls exec after it has used a pool");
    }
    let root = &control.root;
    let _ = root.compare_exchange(0, me, Ordering::AcqRel, Ordering::Relaxed);
    if root.load(Ordering::Acquire) == me {
        control.active.store(me, Ordering::Relaxed);
    }
}

/// The recovery is about to touch something in the directory of a pool. That is cleaned before each
/// execution, so what it makes there must be made by each of them.
pub(super) fn reached_beside() {
    if shared_file::control().root.load(Ordering::Acquire) == sys::getpid() {
        reached();
    }
}

/// The recovery is about to touch a pool. Returns in each execution, or at once if there is no snapshot.
pub(super) fn reached() {
    if PASSED.swap(true, Ordering::Relaxed) {
        return;
    }
    let me = sys::getpid();
    let reason = if shared_file::control().root.load(Ordering::Acquire) == me {
        fork::company()
    } else {
        let reason = "a child process of the recovery uses the pool";
        if super::is_lazy() && super::has_flag(flag::PRIVATE) {
            super::refuse_private(reason);
        }
        Some(reason)
    };
    if let Some(reason) = reason {
        oracle_messages::send(RecoveryMessageKind::NoSnapshot, [me.into(), 0, 0], reason);
        prepare();
        state::identify_all();
        return;
    }
    oracle_messages::send(RecoveryMessageKind::AtSnapshot, [me.into(), 0, 0], "");
    match oracle_messages::order() {
        RecoveryOrder::Run => {}
        RecoveryOrder::Go => {
            prepare();
            state::identify_all();
            return;
        }
        RecoveryOrder::Stop => sys::exit_group(0),
    }
    // They stay the same: nothing is opened here.
    let has_files = fork::has_files();
    loop {
        prepare();
        let child = fork::fork(has_files);
        if child == 0 {
            state::identify_all();
            return;
        }
        if child < 0 {
            super::refuse("the snapshot cannot fork");
        }
        let status = fork::wait(child);
        oracle_messages::ended(child, status);
    }
}

/// What is done before each execution, once for all that follow.
fn prepare() {
    ordering::prepare();
    slow_sites::patch_noted();
}
