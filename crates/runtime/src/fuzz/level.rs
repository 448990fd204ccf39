//! The two places at which a repeated target stops, and what it does there: fork, wait, say how it ended.

use core::sync::atomic::{AtomicBool, Ordering};

use powerfail_protocol::fuzz::{ForkOrder, ForkServer, Phase};

use crate::fuzz::coverage;
use crate::patching::code;
use crate::platform::sys;
use crate::record::{pools, threads};

use super::{
    area, call_host, cheap_copies, execution, learned, module_destructors, noted_stores, observed,
    pmdk_destructors, runs_through,
};

/// Whether this process is behind level 1, or does not stop there.
static POOL_REACHED: AtomicBool = AtomicBool::new(false);
/// Whether it is behind level 2, or does not stop there.
static INPUT_REACHED: AtomicBool = AtomicBool::new(false);
/// Whether this process only forks.
static SERVES: AtomicBool = AtomicBool::new(false);

/// Whether this process only forks: what it does is not done by the target.
pub(super) fn serves() -> bool {
    SERVES.load(Ordering::Relaxed)
}

/// Whether it matters if the target touches its input.
pub(super) fn is_waited_for_input() -> bool {
    !INPUT_REACHED.load(Ordering::Relaxed)
}

/// The target is about to touch the directory of its pool.
pub(super) fn reached_pool() {
    if POOL_REACHED.swap(true, Ordering::Relaxed) {
        return;
    }
    coverage::adopt_map();
    let root = &area().root;
    let me = sys::getpid();
    let is_root = !runs_through()
        && root
            .process
            .compare_exchange(0, me, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
    if is_root {
        stop(root);
    }
}

/// The target is about to touch its input.
pub(super) fn reached_input() {
    reached_pool();
    if INPUT_REACHED.swap(true, Ordering::Relaxed) {
        return;
    }
    let area = area();
    let is_template = !runs_through()
        && area.root.child.load(Ordering::Acquire) == sys::getpid()
        && area.root.order.load(Ordering::Relaxed) == ForkOrder::Fork as u32
        && area.template.phase.load(Ordering::Acquire) == Phase::Away as u32;
    if is_template {
        area.template
            .process
            .store(sys::getpid(), Ordering::Release);
        stop(&area.template);
    }
}

fn say(server: &ForkServer, phase: Phase) {
    server.phase.store(phase as u32, Ordering::Release);
    call_host();
}

/// Waits for the next order: the first one that comes after `seen`.
fn order(server: &ForkServer, seen: &mut u32) -> u32 {
    loop {
        let orders = server.orders.load(Ordering::Acquire);
        if orders != *seen {
            *seen = orders;
            return server.order.load(Ordering::Acquire);
        }
        sys::futex_wait(&server.orders, orders);
    }
}

/// Stops here. Returns in each process that is forked.
fn stop(server: &ForkServer) {
    let mask = sys::block_signals();
    let mut seen = server.orders.load(Ordering::Acquire);
    let is_root = core::ptr::eq(server, &raw const area().root);
    let saved = threads::Saved::new();
    let is_alone = execution::thread_count() == 1 && !(is_root && pools::was_mapped());
    let Some(saved) = saved.filter(|_| is_alone) else {
        say(server, Phase::Crowded);
        if order(server, &mut seen) == ForkOrder::Stop as u32 {
            sys::exit_group(0);
        }
        sys::restore_signals(mask);
        return;
    };
    SERVES.store(true, Ordering::Relaxed);
    execution::adopt();
    let files = execution::Positions::new();
    noted_stores::patch();
    if !is_root {
        pmdk_destructors::silence();
        module_destructors::silence();
    }
    code::reset_after_fork();
    learned::begin();
    // Last: what is written from here on is copied at each fork.
    cheap_copies::settle();
    let mut phase = Phase::Reached;
    loop {
        say(server, phase);
        let order = order(server, &mut seen);
        if order == ForkOrder::Stop as u32 {
            sys::exit_group(0);
        }
        files.restore();
        // Not before: the host reads how far the last copy came.
        saved.restore();
        let child = execution::fork(&server.child);
        if child == 0 {
            SERVES.store(false, Ordering::Relaxed);
            // Before the input everything is as in a recording, down to addresses: libpmemobj keeps some in pools.
            if !is_root {
                cheap_copies::begin_execution();
            }
            saved.inherit();
            observed::begin_execution();
            if order == ForkOrder::ForkThrough as u32 {
                INPUT_REACHED.store(true, Ordering::Relaxed);
            }
            sys::restore_signals(mask);
            return;
        }
        if child < 0 {
            phase = Phase::Failed;
            continue;
        }
        let status = execution::wait(child);
        execution::end_all();
        server.status.store(status, Ordering::Relaxed);
        phase = Phase::Ended;
        learned::learn();
        if noted_stores::are_new() {
            noted_stores::patch();
            code::reset_after_fork();
        }
    }
}
