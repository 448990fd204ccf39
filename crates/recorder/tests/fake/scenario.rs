//! The scenarios of the fake target; the tests know what to expect.

use std::os::unix::process::CommandExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};

use powerfail_protocol::message::{MessageKind, SiteTactic};
use powerfail_protocol::{EventKind, Header, STAMP_TENTATIVE};
use rustix::process::Signal;

use crate::runtime::{Appender, Mapped, POOL_ADDRESS, Runtime, path, store};

const PAGE: u64 = 4096;

/// Runs a scenario by its name.
pub(crate) fn run(name: &str, pools: &[String]) {
    match name {
        "kinds" => kinds(&pools[0]),
        "turns" => turns(&pools[0]),
        "voided-late-alone" => voided_late(pools, true),
        "voided-late-locked" => voided_late(pools, false),
        "long" => long(&pools[0]),
        "killed" => killed(&pools[0]),
        "killed-and-overwritten" => killed_and_overwritten(&pools[0]),
        "twice" => twice(&pools[0]),
        "neighbours" => neighbours(&pools[0], &pools[1]),
        "fork" => fork(&pools[0]),
        "forked-child" => forked_child(&pools[0]),
        "daemon" => daemon(&pools[0]),
        "exec" => exec(&pools[0]),
        "after-exec" => after_exec(&pools[0]),
        "ignored" => ignored(&pools[0], &pools[1]),
        "sites" => sites(&pools[0]),
        "reuse" => reuse(&pools[0], &pools[1]),
        "interrupted" => interrupted(&pools[0]),
        "tentative" => tentative(&pools[0]),
        "tentative-held" => tentative_held(&pools[0]),
        "tentative-killed" => tentative_killed(&pools[0]),
        "signalled" => signalled(&pools[0]),
        "wrong-version" => wrong_version(&pools[0]),
        "unrecorded" => unrecorded(&pools[0]),
        "wrong-order" => wrong_order(&pools[0]),
        "surroundings" => surroundings(&pools[0]),
        "create" => create(&pools[0]),
        "damaged" => damaged(&pools[0]),
        other => panic!("no scenario {other}"),
    }
}

fn begin() -> (Runtime, Appender) {
    let runtime = Runtime::attach();
    runtime.hello();
    runtime.module(0x40_0000, 0x1_0000, &[0xab, 0xcd], "/bin/fake");
    runtime.site(0, 0x40_1000, SiteTactic::Jump);
    let appender = runtime.thread();
    (runtime, appender)
}

fn map(appender: &Appender, pool: &str, pages: u64) -> Mapped {
    appender
        .map(path(pool), POOL_ADDRESS, pages * PAGE, 0)
        .expect("a pool")
}

fn kinds(pool: &str) {
    let (runtime, mut thread) = begin();
    let mapped = map(&thread, pool, 2);
    runtime.site(1, 0x99_0000, SiteTactic::Trap);
    thread.store(0, &mapped, POOL_ADDRESS + 16, &[1, 2, 3]);
    thread.at(EventKind::StoreNonTemporal, 1, POOL_ADDRESS + 64, &[9; 8]);
    mapped.write(POOL_ADDRESS + 64, &[9; 8]);
    thread.at(EventKind::StoreLocked, 0, POOL_ADDRESS + 128, &[7; 4]);
    mapped.write(POOL_ADDRESS + 128, &[7; 4]);
    thread.at(EventKind::StoreSystem, 0, POOL_ADDRESS + PAGE, &[5; 1000]);
    mapped.write(POOL_ADDRESS + PAGE, &[5; 1000]);
    thread.masked(
        0,
        &mapped,
        POOL_ADDRESS + 200,
        &[0, 5, 6, 0, 7],
        &[255, 5, 6, 255, 7],
    );
    thread.at(EventKind::Clflush, 0, POOL_ADDRESS + 17, &[]);
    thread.at(EventKind::Clflushopt, 0, POOL_ADDRESS + 64, &[]);
    thread.at(EventKind::Clwb, 0, 0x7fff_0000, &[]);
    thread.plain(EventKind::Sfence, 0, &[]);
    thread.plain(EventKind::Mfence, 0, &[]);
    thread.plain(EventKind::FenceLocked, 0, &[]);
    thread.at(EventKind::FenceLocked, 0, POOL_ADDRESS, &[0; 8]);
    let header = store(0, 8);
    let voided = thread.append(header, Some(POOL_ADDRESS + 300), &[&[1; 8]]);
    thread.void(voided, header);
    thread.at(EventKind::Sync, 0, POOL_ADDRESS + PAGE, &PAGE.to_le_bytes());
    let mut output = [2u64.to_le_bytes(), 5000u64.to_le_bytes()].concat();
    output.extend(b"a beginning that is cut");
    thread.plain(EventKind::Output, 0, &output);
    std::fs::File::options()
        .write(true)
        .open(pool)
        .unwrap()
        .set_len(3 * PAGE)
        .unwrap();
    thread.at(
        EventKind::Resize,
        0,
        POOL_ADDRESS,
        &(3 * PAGE).to_le_bytes(),
    );
    runtime.send(MessageKind::Warning, [0; 5], b"something is odd", None);
}

/// Stores are voided long after the host has read their records: one under a lock, one of a thread that is alone.
fn voided_late(pools: &[String], is_alone: bool) {
    let (_runtime, mut thread) = begin();
    let mapped = map(&thread, &pools[0], 1);
    if is_alone {
        thread.be_alone();
    }
    thread.store(0, &mapped, POOL_ADDRESS, &[1; 8]);
    let header = store(0, 8);
    let voided = thread.reserve(header.record_len());
    if !is_alone {
        thread.lock(voided);
    }
    thread.describe(voided, header, Some(POOL_ADDRESS + 64), &[&[2; 8]]);
    thread.commit(voided, thread.stamp());
    // The host answers between looks at the records.
    for (pool, number) in pools[1..].iter().zip(1..) {
        let address = POOL_ADDRESS + number * (1 << 20);
        thread.map(path(pool), address, PAGE, 0).expect("a pool");
    }
    thread.void(voided, header);
}

/// Threads take turns, so that the order is known; chunks are read while they are in use.
fn turns(pool: &str) {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 1000;
    let (runtime, thread) = begin();
    let mapped = map(&thread, pool, 1);
    let turn = Arc::new((Mutex::new(0u64), Condvar::new()));
    let workers: Vec<_> = (0..THREADS)
        .map(|own| {
            let turn = Arc::clone(&turn);
            let runtime = move || runtime;
            std::thread::spawn(move || {
                let (runtime, mapped) = (runtime(), { mapped });
                let mut thread = runtime.thread();
                let (number, changed) = &*turn;
                for round in 0..ROUNDS {
                    let mine = round * THREADS + own;
                    let mut current = changed
                        .wait_while(number.lock().unwrap(), |now| *now != mine)
                        .unwrap();
                    thread.store(0, &mapped, POOL_ADDRESS, &mine.to_le_bytes());
                    *current += 1;
                    changed.notify_all();
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
}

/// Far more than the chunks can hold.
fn long(pool: &str) {
    let (_, mut thread) = begin();
    let mapped = map(&thread, pool, 1);
    for number in 0..100_000u64 {
        thread.store(
            0,
            &mapped,
            POOL_ADDRESS + number % 256 * 8,
            &number.to_le_bytes(),
        );
    }
}

fn killed(pool: &str) {
    let (_, mut thread) = begin();
    let mapped = map(&thread, pool, 1);
    thread.store(0, &mapped, POOL_ADDRESS, &[1; 8]);
    let open = thread.reserve(store(0, 8).record_len());
    thread.describe(open, store(0, 8), Some(POOL_ADDRESS + 8), &[&[2; 8]]);
    // As if a handler had interrupted the append; then a store that is recorded but not made.
    thread.store(0, &mapped, POOL_ADDRESS + 16, &[3; 8]);
    thread.append(store(0, 8), Some(POOL_ADDRESS + 24), &[&[4; 8]]);
    rustix::process::kill_process(rustix::process::getpid(), Signal::KILL).unwrap();
    unreachable!("killed");
}

/// A store that is recorded but not made, and another thread that stores to the same bytes and does not find it.
fn killed_and_overwritten(pool: &str) {
    let (runtime, mut thread) = begin();
    let mut other = runtime.thread();
    let mapped = map(&thread, pool, 1);
    thread.append(store(0, 8), Some(POOL_ADDRESS), &[&[4; 8]]);
    other.store_over(0, &mapped, POOL_ADDRESS + 4, &[5; 8], &[0; 8]);
    rustix::process::kill_process(rustix::process::getpid(), Signal::KILL).unwrap();
    unreachable!("killed");
}

/// One file at two addresses, with an offset, and longer the second time.
fn twice(pool: &str) {
    let (_, mut thread) = begin();
    let first = map(&thread, pool, 2);
    thread.store(0, &first, POOL_ADDRESS + PAGE, &[1; 8]);
    std::fs::File::options()
        .write(true)
        .open(pool)
        .unwrap()
        .set_len(4 * PAGE)
        .unwrap();
    let address = POOL_ADDRESS + (1 << 20);
    let second = thread
        .map(path(pool), address, 3 * PAGE, PAGE)
        .expect("the same pool");
    thread.store(0, &second, address + 8, &[2; 8]);
    thread.store(0, &second, address + 2 * PAGE, &[3; 8]);
}

/// A store across the boundary of two pools.
fn neighbours(one: &str, other: &str) {
    let (runtime, mut thread) = begin();
    let first = map(&thread, one, 1);
    let border = POOL_ADDRESS + PAGE;
    let second = thread.map(path(other), border, PAGE, 0).expect("a pool");
    let bytes = [1, 2, 3, 4, 5, 6, 7, 8];
    thread.append(store(0, 8), Some(border - 3), &[&bytes]);
    first.write(border - 3, &bytes[..3]);
    second.write(border, &bytes[3..]);
    runtime.send(MessageKind::PoolUnmap, [border, PAGE, 0, 0, 0], b"", None);
    thread.store(0, &first, POOL_ADDRESS, &[9]);
}

/// Several processes at once, each with its own pool at the same address.
fn fork(pool: &str) {
    let (_, mut thread) = begin();
    let mapped = map(&thread, pool, 1);
    let own = std::env::current_exe().unwrap();
    let children: Vec<_> = (0..3)
        .map(|number| {
            let path = format!("{pool}-{number}");
            std::fs::write(&path, [0; PAGE as usize]).unwrap();
            std::process::Command::new(&own)
                .args(["forked-child", &path])
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    thread.store(0, &mapped, POOL_ADDRESS, &[1; 8]);
}

fn forked_child(pool: &str) {
    let (_, mut thread) = begin();
    let mapped = map(&thread, pool, 1);
    for number in 0..5000u64 {
        thread.store(0, &mapped, POOL_ADDRESS, &number.to_le_bytes());
    }
    // Ends without a message.
    thread.muted = true;
}

/// Waits until the parent of this process has ended.
fn wait_until_gone(parent: rustix::process::Pid) {
    // SAFETY: an empty set of signals is all zeros; this process has one thread and handles no signals.
    unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut signals, libc::SIGUSR1);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const signals, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGUSR1);
        // If the parent had ended before, there is no signal.
        if rustix::process::getppid() == Some(parent) {
            let mut signal = 0;
            libc::sigwait(&raw const signals, &raw mut signal);
        }
    }
}

/// Continues in a grandchild whose parent has ended, without exec.
fn daemon(pool: &str) {
    let (runtime, mut thread) = begin();
    let mapped = map(&thread, pool, 1);
    thread.store(0, &mapped, POOL_ADDRESS, &[1; 8]);
    // SAFETY: this process has one thread.
    let child = unsafe { libc::fork() };
    if child != 0 {
        // SAFETY: waits for that child, and ignores its status.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        return;
    }
    thread.muted = true;
    let parent = rustix::process::getpid();
    // SAFETY: this process has one thread.
    if unsafe { libc::fork() } == 0 {
        wait_until_gone(parent);
        let mut own = runtime.thread();
        own.store(0, &mapped, POOL_ADDRESS + 8, &[2; 8]);
    }
}

fn exec(pool: &str) {
    let (_, mut thread) = begin();
    let mapped = map(&thread, pool, 1);
    thread.store(0, &mapped, POOL_ADDRESS, &[1; 8]);
    let error = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["after-exec", pool])
        .exec();
    panic!("{error}");
}

fn after_exec(pool: &str) {
    let (_, mut thread) = begin();
    let address = POOL_ADDRESS + (5 << 20);
    let mapped = thread.map(path(pool), address, PAGE, 0).expect("a pool");
    thread.store(0, &mapped, address + 8, &[2; 8]);
}

fn ignored(pool: &str, other: &str) {
    let (_, mut thread) = begin();
    assert!(
        thread
            .map(path(other), POOL_ADDRESS + (1 << 20), PAGE, 0)
            .is_none()
    );
    let mapped = map(&thread, pool, 1);
    thread.store(0, &mapped, POOL_ADDRESS, &[1; 8]);
}

/// Each record is the first of its site.
fn sites(pool: &str) {
    let (runtime, mut thread) = begin();
    let mapped = map(&thread, pool, 1);
    for number in 0..2000u32 {
        runtime.site(number + 10, 0x40_0000 + u64::from(number), SiteTactic::Pun);
        thread.store(number + 10, &mapped, POOL_ADDRESS, &number.to_le_bytes());
    }
}

/// The same addresses for two pools alternately.
fn reuse(one: &str, other: &str) {
    let (runtime, mut thread) = begin();
    for number in 0..200u64 {
        let mapped = map(&thread, if number % 2 == 0 { one } else { other }, 1);
        thread.store(0, &mapped, POOL_ADDRESS + 8 * number, &number.to_le_bytes());
        runtime.send(
            MessageKind::PoolUnmap,
            [POOL_ADDRESS, PAGE, 0, 0, 0],
            b"",
            None,
        );
    }
}

/// An append is interrupted; the handler fills chunks; then the append continues.
fn interrupted(pool: &str) {
    let (_, mut thread) = begin();
    let mapped = map(&thread, pool, 1);
    thread.store(0, &mapped, POOL_ADDRESS, &[1; 8]);
    let described = thread.reserve(store(0, 8).record_len());
    thread.describe(described, store(0, 8), Some(POOL_ADDRESS), &[&[2; 8]]);
    thread.depth().store(1, Ordering::Release);
    let reserved = thread.reserve(store(0, 8).record_len());
    thread.depth().store(2, Ordering::Release);
    for number in 0..40_000u64 {
        thread.store(0, &mapped, POOL_ADDRESS + 8, &number.to_le_bytes());
    }
    thread.depth().store(1, Ordering::Release);
    thread.describe(reserved, store(0, 8), Some(POOL_ADDRESS + 8), &[&[3; 8]]);
    thread.commit(reserved, thread.stamp());
    mapped.write(POOL_ADDRESS + 8, &[3; 8]);
    thread.depth().store(0, Ordering::Release);
    thread.commit(described, thread.stamp());
    mapped.write(POOL_ADDRESS, &[2; 8]);
    for number in 0..40_000u64 {
        thread.store(0, &mapped, POOL_ADDRESS + 16, &number.to_le_bytes());
    }
}

fn locked() -> Header {
    Header {
        kind: EventKind::StoreLocked,
        ..store(0, 8)
    }
}

/// Returns when the host has read everything: it answers after it has checked the positions of threads, and reads
/// before it answers again.
fn wait_for_host(thread: &Appender, pool: &str) {
    for round in 1..=2 {
        let address = POOL_ADDRESS + (round << 20);
        thread.map(path(pool), address, PAGE, 0).expect("the pool");
    }
}

/// A locked operation that another thread overtakes after it was announced and seen.
fn tentative(pool: &str) {
    let (runtime, mut thread) = begin();
    let mut other = runtime.thread();
    let mapped = map(&thread, pool, 1);
    let at = thread.reserve(locked().record_len());
    thread.describe(at, locked(), Some(POOL_ADDRESS), &[&[1; 8]]);
    thread.commit(at, thread.stamp() | STAMP_TENTATIVE);
    wait_for_host(&thread, pool);
    other.store(0, &mapped, POOL_ADDRESS, &[1; 8]);
    wait_for_host(&thread, pool);
    thread.commit(at, 0);
    wait_for_host(&thread, pool);
    thread.describe(at, locked(), Some(POOL_ADDRESS), &[&[2; 8]]);
    let announced = thread.stamp();
    thread.commit(at, announced | STAMP_TENTATIVE);
    wait_for_host(&thread, pool);
    mapped.write(POOL_ADDRESS, &[2; 8]);
    thread.commit(at, announced);
    other.store(0, &mapped, POOL_ADDRESS, &[3; 8]);
}

/// A handler overtakes it, and fills chunks.
fn tentative_held(pool: &str) {
    let (_, mut thread) = begin();
    let mapped = map(&thread, pool, 1);
    let at = thread.reserve(locked().record_len());
    thread.describe(at, locked(), Some(POOL_ADDRESS), &[&[1; 8]]);
    thread.commit(at, thread.stamp() | STAMP_TENTATIVE);
    thread.depth().store(1, Ordering::Release);
    for number in 0..20_000u64 {
        thread.store(0, &mapped, POOL_ADDRESS, &number.to_le_bytes());
    }
    wait_for_host(&thread, pool);
    thread.depth().store(0, Ordering::Release);
    thread.commit(at, 0);
    wait_for_host(&thread, pool);
    thread.describe(at, locked(), Some(POOL_ADDRESS), &[&[2; 8]]);
    let announced = thread.stamp();
    thread.commit(at, announced | STAMP_TENTATIVE);
    mapped.write(POOL_ADDRESS, &[2; 8]);
    thread.commit(at, announced);
    thread.store(0, &mapped, POOL_ADDRESS, &[3; 8]);
}

/// Killed between operations and their completion: one that has happened, one that has not, one that failed.
fn tentative_killed(pool: &str) {
    let (runtime, thread) = begin();
    let mapped = map(&thread, pool, 1);
    let tentative = || thread.stamp() | STAMP_TENTATIVE;
    for (number, stamp) in (1..).zip([tentative(), tentative(), 0]) {
        let mut killed = runtime.thread();
        let address = POOL_ADDRESS + 8 * u64::from(number);
        let at = killed.reserve(locked().record_len());
        killed.describe(at, locked(), Some(address), &[&[number; 8]]);
        killed.commit(at, stamp);
        if number == 1 {
            mapped.write(address, &[number; 8]);
        }
        std::mem::forget(killed);
    }
    wait_for_host(&thread, pool);
    rustix::process::kill_process(rustix::process::getpid(), Signal::KILL).unwrap();
    unreachable!("killed");
}

/// Makes its parent receive SIGTERM, as another process could.
fn signalled(pool: &str) {
    // SAFETY: a local set of signals, and calls that only read and write it.
    let wait = unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        move || {
            let mut signal = 0;
            libc::sigwait(&raw const set, &raw mut signal);
            signal
        }
    };
    let (_, mut thread) = begin();
    let mapped = map(&thread, pool, 1);
    let parent = rustix::process::getppid().unwrap();
    rustix::process::kill_process(parent, Signal::TERM).unwrap();
    assert_eq!(wait(), libc::SIGTERM);
    thread.store(0, &mapped, POOL_ADDRESS, &[1; 8]);
    drop(thread);
    std::process::exit(7);
}

/// Uses an unknown protocol version, and waits forever.
fn wrong_version(note: &str) {
    let runtime = Runtime::attach();
    std::fs::write(note, std::process::id().to_string()).unwrap();
    runtime.send(MessageKind::Hello, [77, 0, 0, 0, 0], b"", None);
    loop {
        std::thread::park();
    }
}

/// Makes a store that it does not record.
fn unrecorded(pool: &str) {
    let (_, mut thread) = begin();
    let mapped = map(&thread, pool, 1);
    thread.store(0, &mapped, POOL_ADDRESS, &[1; 8]);
    mapped.write(POOL_ADDRESS + 100, &[7, 7]);
}

/// Records two stores the wrong way round, which a third one hides.
fn wrong_order(pool: &str) {
    let (_, mut thread) = begin();
    let mapped = map(&thread, pool, 1);
    let at = POOL_ADDRESS + 100;
    thread.store_over(0, &mapped, at, &[2; 8], &[1; 8]);
    thread.store_over(0, &mapped, at, &[1; 8], &[0; 8]);
    thread.store_over(0, &mapped, at, &[3; 8], &[2; 8]);
}

/// Writes a description of its environment.
fn surroundings(note: &str) {
    use std::os::fd::AsRawFd;
    let runtime = Runtime::attach();
    runtime.hello();
    let personality = std::fs::read_to_string("/proc/self/personality").unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let text = format!(
        "{} {} {} {}",
        personality.trim(),
        file.as_raw_fd(),
        variable("PMEM_IS_PMEM_FORCE"),
        variable("PMEM_MMAP_HINT")
    );
    std::fs::write(note, text).unwrap();
}

/// Creates its pool itself.
fn create(pool: &str) {
    std::fs::write(pool, vec![0; PAGE as usize]).unwrap();
    let (_, mut thread) = begin();
    let mapped = map(&thread, pool, 1);
    thread.store(0, &mapped, POOL_ADDRESS, &[1; 8]);
}

/// A record with an invalid header.
fn damaged(pool: &str) {
    let (_, mut thread) = begin();
    let mapped = map(&thread, pool, 1);
    thread.store(0, &mapped, POOL_ADDRESS, &[1; 8]);
    let at = thread.reserve(32);
    thread.nonsense(at);
}
