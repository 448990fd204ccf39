//! The order of threads, if the host asks for one: a scheduler that lets one thread run at a time.
//!
//! The algorithm is that of probabilistic concurrency testing (Burckhardt, Kothari, Musuvathi,
//! Nagarakatte, ASPLOS 2010): every thread has a priority that is drawn at random, the one with the
//! highest runs, and at a few operations that are drawn at random the thread that is about to make it
//! falls behind all others. A thread asks for its **turn** before each operation on a pool, before each
//! load from one, when it begins, and before and after whatever may block it or lets others go on.
//!
//! Deviations:
//!
//! 1. Only what is listed above is a moment at which threads change. Between two of them a thread runs
//!    as it likes; but all others wait for their turns, so it runs alone.
//! 2. A thread that waits for something in the kernel must not hold up the others. What
//!    `libc/synchronise.rs` stands in for is known to block, and for what. Everything else takes time to find
//!    out: a thread that uses no processor and sleeps, as the host can tell, or uses it and asks for no
//!    turn, counts as asleep until it asks again. That makes the order depend on time, so it is counted,
//!    but nothing waits for ever.
//! 3. The number of threads is not known, so priorities are numbers of 62 bits instead of a permutation.
//! 4. A thread that only reads waits for another one, sooner or later: after many reads in a row it falls behind
//!    all others. That is counted, so it does not depend on time.
//! 5. If the number of operations is unknown, moments are drawn so that every order of
//!    magnitude has the same chance.
//!
//! Nothing of the target's is held here but what it holds itself: a thread that waits for its turn has
//! reserved nothing in its chunk, so the host orders the records of others without it. Processes do not
//! wait for each other: after fork the child is alone.
//!
//! # Safety
//!
//! A mutex that a thread waits for stays mapped while it waits. The number in a block does not change.
#![allow(unsafe_code, reason = "reads words of the target")]

use core::sync::atomic::{AtomicU32, Ordering};

use powerfail_protocol::shared::Doubt;

use crate::host;
use crate::platform::lock::Lock;
use crate::platform::sys;
use crate::record::threads;

/// How long a thread waits before it looks at the one whose turn it is.
const LOOK_EVERY_NS: u64 = 1_000_000;
/// After so many looks in a row at which it had used no processor the host is asked whether it sleeps.
const IDLE_LOOKS: u32 = 2;
/// If it has used so much since its last turn, it is busy with something else, or waits by spinning.
const BUSY_NS: u64 = 10_000_000;
/// After so many looks no thread waits any longer, whatever the reason.
const LOOKS_MAX: u32 = 500;

/// After so many reads in a row without any other step a thread falls behind.
const READS_MAX: u32 = 1000;

pub(crate) static MEMBERS: Lock<Members> = Lock::new(Members::NONE);
/// How many threads are scheduled.
static COUNT: AtomicU32 = AtomicU32::new(0);
/// Futex: grows when it may be the turn of another thread.
static TURN: AtomicU32 = AtomicU32::new(0);

/// Whether a thread can have its turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Active,
    /// Since when, by the count of such events, and for what.
    Blocked {
        since: u64,
        on: u64,
        /// What it needs besides, when it was woken: a mutex.
        then: u64,
        /// Whether it waits in the kernel, or here for another attempt.
        in_kernel: bool,
    },
    /// It asked for no turn for so long that the others do not wait for it.
    Asleep,
}

struct Member {
    number: u32,
    /// Zero until the thread is there.
    thread_id: u32,
    priority: i64,
    state: State,
    is_waiting: bool,
    /// It waits for what comes soon, whatever the others do: they wait for it.
    is_certain: bool,
    /// Reads since its last other step.
    reads: u32,
    /// How many turns it had, now and at the last look.
    turns: u64,
    turns_seen: u64,
    /// Processor time at the first look since its last turn, and at the last look.
    processor_first_ns: u64,
    processor_ns: u64,
    /// Looks since its last turn, and those in a row at which it had used no processor.
    looks: u32,
    idle_looks: u32,
}

/// The threads that are scheduled.
pub(crate) struct Members {
    all: Vec<Member>,
    /// How many turns were counted, and how many times a thread was blocked.
    steps: u64,
    blocks: u64,
    /// Below all that were given.
    lowest: i64,
    /// The C library's names of threads that have ended, or soon will have.
    ended: Vec<u64>,
    looked_at_ns: u64,
}

/// Whether threads are scheduled at all.
pub(crate) fn is_on() -> bool {
    host::attached() && host::control().schedule.depth > 0
}

/// Whether the calling thread is one of those that are scheduled, and not alone.
pub(crate) fn concerns_caller() -> bool {
    COUNT.load(Ordering::Acquire) > 1 && threads::slot().is_some()
}

impl Members {
    const NONE: Self = Self {
        all: Vec::new(),
        steps: 0,
        blocks: 0,
        lowest: 0,
        ended: Vec::new(),
        looked_at_ns: 0,
    };

    fn add(&mut self, number: u32, thread_id: u32) {
        self.all.push(Member {
            number,
            thread_id,
            priority: host::control().schedule.first_priority(number),
            state: State::Active,
            is_waiting: false,
            is_certain: false,
            reads: 0,
            turns: 0,
            turns_seen: 0,
            processor_first_ns: 0,
            processor_ns: 0,
            looks: 0,
            idle_looks: 0,
        });
        COUNT.store(self.all.len() as u32, Ordering::Release);
    }

    fn remove(&mut self, number: u32) {
        self.all.retain(|member| member.number != number);
        COUNT.store(self.all.len() as u32, Ordering::Release);
        next();
    }

    fn member(&mut self, number: u32) -> Option<&mut Member> {
        self.all.iter_mut().find(|member| member.number == number)
    }

    /// The thread whose turn it is.
    fn current(&mut self) -> Option<&mut Member> {
        let active = self.all.iter_mut();
        active
            .filter(|member| member.state == State::Active)
            .max_by_key(|member| (member.priority, member.number))
    }

    /// A thread is to make a step, or a read. Falls behind if it only reads.
    fn count_read(&mut self, number: u32, is_read: bool) {
        let lowest = self.lowest - 1;
        let Some(member) = self.member(number) else {
            return;
        };
        member.reads = if is_read { member.reads + 1 } else { 0 };
        if member.reads > READS_MAX {
            member.reads = 0;
            member.priority = lowest;
            self.lowest = lowest;
            next();
        }
    }

    /// Whether a thread may go on. If it is the first to be allowed to make a counted step, it may fall
    /// behind instead.
    fn may_go_on(&mut self, number: u32, step: &mut bool) -> bool {
        if let Some(member) = self.member(number) {
            member.state = State::Active;
            member.is_waiting = true;
        }
        if self
            .current()
            .is_none_or(|current| current.number != number)
        {
            return false;
        }
        if core::mem::take(step) {
            self.steps += 1;
            let control = host::control();
            control.schedule_steps.fetch_add(1, Ordering::Relaxed);
            let lowered = control.schedule.lowered_at(self.steps);
            if let (Some(priority), Some(member)) = (lowered, self.member(number)) {
                member.priority = priority;
                next();
                return self
                    .current()
                    .is_some_and(|current| current.number == number);
            }
        }
        true
    }

    fn block(&mut self, number: u32, on: u64, then: u64, in_kernel: bool) {
        self.blocks += 1;
        let since = self.blocks;
        if let Some(member) = self.member(number) {
            member.state = State::Blocked {
                since,
                on,
                then,
                in_kernel,
            };
            member.is_waiting = false;
        }
        next();
    }

    /// Whether a thread has nothing more to do than to end, by the name that the C library has for it.
    pub(crate) fn has_ended(&self, name: u64) -> bool {
        self.ended.contains(&name)
    }

    fn has_gone_on(&mut self, number: u32) {
        if let Some(member) = self.member(number) {
            member.is_waiting = false;
            member.turns += 1;
        }
    }

    /// Looks whether the thread whose turn it is makes anything of it.
    fn look(&mut self) {
        let now = sys::now_ns();
        if now < self.looked_at_ns + LOOK_EVERY_NS / 2 {
            return;
        }
        self.looked_at_ns = now;
        let Some(member) = self.current() else { return };
        if member.turns != member.turns_seen {
            member.turns_seen = member.turns;
            member.looks = 0;
        }
        let (number, thread) = (member.number, member.thread_id);
        let processor_ns = if thread == 0 {
            // It is not there yet.
            Some(0)
        } else {
            sys::processor_time_ns(thread)
        };
        let Some(processor_ns) = processor_ns else {
            // It ended without notice.
            self.remove(number);
            return;
        };
        if member.looks == 0 {
            member.processor_first_ns = processor_ns;
        }
        member.looks += 1;
        let may_sleep = !member.is_waiting && !member.is_certain && thread != 0;
        if processor_ns == member.processor_ns && may_sleep {
            member.idle_looks += 1;
        } else {
            member.idle_looks = 0;
        }
        member.processor_ns = processor_ns;
        let sleeps = member.idle_looks >= IDLE_LOOKS && asks_whether_it_sleeps(number);
        let is_busy = processor_ns - member.processor_first_ns > BUSY_NS;
        if sleeps || is_busy || member.looks > LOOKS_MAX {
            member.looks = 0;
            member.idle_looks = 0;
            member.state = State::Asleep;
            note_lapse();
            next();
        }
    }

    /// Threads that wait for something can go on: all that wait for another attempt, and of those in
    /// the kernel so many, the first of them first.
    fn wake(&mut self, on: u64, in_kernel: usize) {
        let mut woken = Vec::new();
        for (place, member) in self.all.iter_mut().enumerate() {
            match member.state {
                State::Blocked {
                    since,
                    on: other,
                    then,
                    in_kernel: true,
                } if other == on => woken.push((since, then, place)),
                State::Blocked { on: other, .. } if other == on => {
                    member.state = State::Active;
                    member.looks = 0;
                }
                _ => {}
            }
        }
        woken.sort_unstable();
        woken.truncate(in_kernel);
        for (since, then, place) in woken {
            let member = &mut self.all[place];
            member.looks = 0;
            member.state = if is_locked(then) {
                State::Blocked {
                    since,
                    on: then,
                    then: 0,
                    in_kernel: true,
                }
            } else {
                State::Active
            };
        }
        next();
    }
}

/// Whether a mutex of the C library is held.
fn is_locked(mutex: u64) -> bool {
    // SAFETY: zero, or what a thread waits with; its first word says so.
    mutex != 0 && unsafe { (mutex as *const u32).read_volatile() } != 0
}

/// Asks the host whether a thread sleeps; whether it has answered that it does.
fn asks_whether_it_sleeps(number: u32) -> bool {
    let mut slots = host::used_slots().iter();
    let Some(slot) = slots.find(|slot| slot.thread.load(Ordering::Relaxed) == number + 1) else {
        return true;
    };
    let doubt = slot.doubt.load(Ordering::Acquire);
    if doubt == Doubt::Asked as u32 {
        return false;
    }
    if doubt == Doubt::Sleeps as u32 {
        slot.doubt.store(Doubt::None as u32, Ordering::Release);
        return true;
    }
    slot.doubt.store(Doubt::Asked as u32, Ordering::Release);
    let doubts = &host::control().schedule_doubts;
    doubts.fetch_add(1, Ordering::AcqRel);
    sys::futex_wake(doubts);
    false
}

/// A timeout decides which thread runs.
fn note_lapse() {
    let lapses = &host::control().schedule_lapses;
    lapses.fetch_add(1, Ordering::Relaxed);
}

/// It may be the turn of another thread.
fn next() {
    TURN.fetch_add(1, Ordering::AcqRel);
    sys::futex_wake(&TURN);
}

fn number() -> Option<u32> {
    let block = threads::block()?;
    // SAFETY: the block is this thread's; its number does not change.
    Some(unsafe { (*block).thread_index })
}

/// The first thread of a process, or the only one after fork.
pub(crate) fn begin_alone(number: u32) {
    if is_on() {
        MEMBERS.reset_after_fork();
        MEMBERS.with(|members| {
            *members = Members::NONE;
            members.add(number, sys::gettid());
        });
    }
}

/// A thread with this number is about to be made.
pub(crate) fn expect(number: u32) {
    MEMBERS.with(|members| members.add(number, 0));
}

/// The thread with this number will not be made.
pub(crate) fn expect_no_more(number: u32) {
    MEMBERS.with(|members| members.remove(number));
}

/// The calling thread begins; it waits until it is its turn.
pub(crate) fn begin() {
    let Some(number) = number().filter(|_| is_on()) else {
        return;
    };
    let thread_id = sys::gettid();
    MEMBERS.with(|members| {
        // Names are used again.
        members.ended.retain(|name| *name != sys::fs());
        match members.member(number) {
            Some(member) => member.thread_id = thread_id,
            None => members.add(number, thread_id),
        }
        next();
    });
    turn();
}

/// A thread with this number was made. The calling thread waits until it is there, so that the host hears of threads in the
/// order in which they were made, and then for its turn: it may be that of the new one.
pub(crate) fn made(number: u32) {
    certain(|| {
        for _ in 0..LOOKS_MAX {
            let turn = TURN.load(Ordering::Acquire);
            let is_there = MEMBERS.with(|members| {
                let member = members.member(number);
                member.is_none_or(|member| member.thread_id != 0)
            });
            if is_there {
                return;
            }
            sys::futex_wait_for(&TURN, turn, LOOK_EVERY_NS);
        }
        note_lapse();
    });
    turn();
}

/// The calling thread ends: the others do not wait for it any more, and threads that wait for its end can run.
pub(crate) fn end() {
    let Some(number) = number().filter(|_| is_on()) else {
        return;
    };
    MEMBERS.with(|members| {
        // The C library's name for a thread is where its FS base points.
        members.ended.push(sys::fs());
        members.wake(sys::fs(), usize::MAX);
        members.remove(number);
    });
}

/// Before an operation on a pool, or one by which threads wait for each other.
pub(crate) fn step() {
    wait(Asked::Step);
}

/// Before a load from a pool.
pub(crate) fn read() {
    wait(Asked::Read);
}

/// Waits until it is the turn of the calling thread.
pub(crate) fn turn() {
    wait(Asked::Turn);
}

/// What a turn is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// For nothing that is counted.
    Turn,
    Step,
    Read,
}

fn wait(asked: Asked) {
    if !concerns_caller() {
        return;
    }
    let Some(number) = number() else { return };
    let mut step = asked != Asked::Turn;
    if step {
        MEMBERS.with(|members| members.count_read(number, asked == Asked::Read));
    }
    loop {
        let turn = TURN.load(Ordering::Acquire);
        let goes_on = MEMBERS.with(|members| {
            let goes_on = members.may_go_on(number, &mut step);
            if goes_on {
                members.has_gone_on(number);
            }
            goes_on
        });
        if goes_on {
            return;
        }
        if sys::futex_wait_for(&TURN, turn, LOOK_EVERY_NS) {
            MEMBERS.with(Members::look);
        }
    }
}

/// The calling thread gives way to all others.
pub(crate) fn yield_turn() {
    if let Some(number) = number().filter(|_| concerns_caller()) {
        MEMBERS.with(|members| {
            members.lowest -= 1;
            let lowest = members.lowest;
            if let Some(member) = members.member(number) {
                member.priority = lowest;
            }
            next();
        });
        turn();
    }
}

fn unblock(number: u32) {
    MEMBERS.with(|members| {
        if let Some(member) = members.member(number) {
            member.state = State::Active;
            member.looks = 0;
        }
    });
}

/// Runs what may block the calling thread, until a thread wakes those that wait for `on`; a thread that is woken
/// may need the mutex `then` besides.
pub(crate) fn blocking<R>(on: u64, then: u64, work: impl FnOnce() -> R) -> R {
    let Some(number) = number().filter(|_| concerns_caller()) else {
        return work();
    };
    step();
    MEMBERS.with(|members| members.block(number, on, then, true));
    let result = work();
    unblock(number);
    turn();
    result
}

/// Runs what blocks the calling thread for a moment, and needs no other scheduled thread. The others wait.
pub(crate) fn certain<R>(work: impl FnOnce() -> R) -> R {
    let set = |is_certain| {
        if let Some(number) = number() {
            MEMBERS.with(|members| {
                if let Some(member) = members.member(number) {
                    member.is_certain = is_certain;
                }
            });
        }
    };
    set(true);
    let result = work();
    set(false);
    result
}

/// Takes something that others may hold: `attempt` says what came of it, if anything. The thread is out of
/// the others' way while it has to wait. `None` if it waited too long; then it is to be left to the
/// C library, which knows more.
///
/// An attempt and what follows from it are one step to the scheduler: a thread that gives something back does
/// so before, or says so afterwards. So attempts must not wait for anything.
pub(crate) fn acquire<R>(on: u64, attempt: impl Fn(&Members) -> Option<R>) -> Option<R> {
    const LOOKS: u32 = 20;
    let number = number()?;
    step();
    let mut looks = 0;
    while looks < LOOKS {
        let mut result = MEMBERS.with(|members| {
            let result = attempt(members);
            if result.is_none() {
                members.block(number, on, 0, false);
            }
            result
        });
        if result.is_some() {
            return result;
        }
        while result.is_none() && looks < LOOKS {
            let turn = TURN.load(Ordering::Acquire);
            let is_blocked = MEMBERS.with(|members| {
                let state = members.member(number).map(|member| member.state);
                matches!(state, Some(State::Blocked { .. }))
            });
            if !is_blocked {
                break;
            }
            if sys::futex_wait_for(&TURN, turn, LOOK_EVERY_NS) {
                looks += 1;
                result = MEMBERS.with(|members| attempt(members));
                if result.is_some() {
                    // No thread said that it was free.
                    note_lapse();
                }
            }
        }
        unblock(number);
        turn();
        if result.is_some() {
            return result;
        }
    }
    None
}

/// Those who wait for `on` can go on; of those who wait in the kernel, as many as that.
pub(crate) fn wake(on: u64, in_kernel: usize) {
    if COUNT.load(Ordering::Acquire) > 1 {
        MEMBERS.with(|members| members.wake(on, in_kernel));
    }
}

/// The calling thread has what all wait for who wait for `on`. Unless another one has said so before.
pub(crate) fn wake_all_if_first(on: u64) {
    let Some(number) = number() else { return };
    MEMBERS.with(|members| {
        let state = members.member(number).map(|member| member.state);
        if matches!(state, Some(State::Blocked { .. })) {
            members.wake(on, usize::MAX);
        }
    });
}
