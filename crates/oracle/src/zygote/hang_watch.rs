//! Watches a command that takes long, to tell whether it hangs.
//!
//! Time is counted without the time in which a thread waited for a processor, so a busy machine makes no hang. A command
//! hangs
//!
//! - when its whole time limit has passed;
//! - when it has been busy for the busy limit of the plan, and for much longer than commands that end;
//! - when it takes much longer than commands that end, and is where a command has already hung, or was run with short
//!   patience;
//! - when each of its threads waits for ever for another one.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use crate::hang::{CodeAddress, HangKnowledge, HangPlace};
use crate::message::Patience;
use crate::verdict::Stage;
use crate::zygote::stack::{self, Sampler};

/// How often a command is looked at.
const INTERVAL: Duration = Duration::from_millis(25);
/// No command is suspected before.
const SUSPECT_MIN: Duration = Duration::from_millis(100);
/// A command is suspected when it takes this many times as long as the longest that has ended.
const SUSPECT_TIMES: u32 = 20;
/// It hangs when it takes this many times as long, and has been busy for the busy limit.
const BUSY_TIMES: u32 = 100;
/// It hangs after this many times its limit, even if it waited for a processor meanwhile.
const WALL_TIMES: u32 = 5;
/// Threads that wait for ever are looked at this often before that is believed.
const BLOCKED_LOOKS: u32 = 4;
/// How many call stacks are compared to find a loop.
const SAMPLES_MAX: usize = 64;

/// When a command hangs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HangRule {
    pub(crate) timeout: Duration,
    pub(crate) busy_limit: Option<Duration>,
    pub(crate) patience: Patience,
    /// Whether commands may be looked at: not if they are traced.
    pub(crate) looks: bool,
    /// Whether the loads of commands are observed.
    pub(crate) is_observed: bool,
}

/// What a thread has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ThreadUse {
    ran_ns: u64,
    waited_ns: u64,
    slices: u64,
}

/// Watches one command from its start.
#[derive(Debug)]
pub(crate) struct HangWatch {
    rule: HangRule,
    stage: Stage,
    begun: Instant,
    last: Instant,
    /// What threads had used when they were last looked at; `None` before the first time.
    threads: Option<HashMap<i32, ThreadUse>>,
    /// The time before the first look.
    unseen: Duration,
    /// The time since then in which no thread waited for a processor.
    own: Duration,
    /// The part of it in which something ran.
    busy: Duration,
    blocked_looks: u32,
    samples: Vec<Vec<CodeAddress>>,
    sampler: Option<Sampler>,
}

impl HangWatch {
    pub(crate) fn new(rule: HangRule, stage: Stage) -> Self {
        let now = Instant::now();
        Self {
            rule,
            stage,
            begun: now,
            last: now,
            threads: None,
            unseen: Duration::ZERO,
            own: Duration::ZERO,
            busy: Duration::ZERO,
            blocked_looks: 0,
            samples: Vec::new(),
            sampler: None,
        }
    }

    /// When to call [`look`](Self::look) next.
    pub(crate) fn next(&self) -> Instant {
        let over = self.begun + self.rule.timeout;
        let next = self.last + INTERVAL;
        if self.last < over {
            next.min(over)
        } else {
            next
        }
    }

    /// How long the command took, as far as that was its own doing.
    pub(crate) fn time(&self) -> Duration {
        match self.threads {
            Some(_) => self.unseen + self.own,
            None => Duration::ZERO,
        }
    }

    /// The place where the command hung for all of its time.
    pub(crate) fn place(&self) -> Option<HangPlace> {
        HangPlace::of(self.stage, &self.samples)
    }

    /// Looks at the processes of the command. `culprit` is the one whose call stack tells where it hangs.
    pub(crate) fn look(
        &mut self,
        processes: &[i32],
        culprit: Option<i32>,
        known: &HangKnowledge,
    ) -> Option<Hang> {
        let now = Instant::now();
        if now < self.next() {
            return None;
        }
        let wall = now - self.begun;
        if !self.rule.looks {
            return (wall >= self.rule.timeout).then_some(Hang::Confirmed);
        }
        self.measure(processes, now);
        let own = match self.threads {
            Some(_) => self.unseen + self.own,
            None => wall,
        };
        if own >= self.rule.timeout || wall >= self.rule.timeout * WALL_TIMES {
            return Some(Hang::Confirmed);
        }
        if self.is_blocked(processes) {
            return Some(Hang::Confirmed);
        }
        let longest = known.longest(self.rule.is_observed)?;
        if self.own < SUSPECT_MIN.max(longest * SUSPECT_TIMES) {
            return None;
        }
        if self.rule.patience == Patience::Short {
            return Some(Hang::GivenUp);
        }
        if let Some(stack) = self.sample(culprit) {
            if known.has(self.stage, &stack) {
                return Some(Hang::GivenUp);
            }
            self.samples.push(stack);
        }
        let limit = self.rule.busy_limit?;
        (self.busy >= limit.max(longest * BUSY_TIMES)).then_some(Hang::Confirmed)
    }

    /// Adds the time since the last look.
    fn measure(&mut self, processes: &[i32], now: Instant) {
        let mut threads = HashMap::new();
        for process in processes {
            for thread in stack::threads_of(*process) {
                if let Some(used) = used_by(*process, thread) {
                    threads.insert(thread, used);
                }
            }
        }
        if let Some(before) = &self.threads {
            let mut waited_ns = 0;
            let mut has_run = false;
            for (thread, used) in &threads {
                let old = before.get(thread).copied().unwrap_or_default();
                waited_ns = waited_ns.max(used.waited_ns.saturating_sub(old.waited_ns));
                has_run |= used.ran_ns != old.ran_ns || used.slices != old.slices;
            }
            let own = (now - self.last).saturating_sub(Duration::from_nanos(waited_ns));
            self.own += own;
            if has_run {
                self.busy += own;
                self.blocked_looks = 0;
            }
        }
        // Where the kernel has no statistics, only the clock counts.
        if !threads.is_empty() {
            if self.threads.is_none() {
                self.unseen = now - self.begun;
            }
            self.threads = Some(threads);
        }
        self.last = now;
    }

    /// Whether every thread waits for ever for another one.
    fn is_blocked(&mut self, processes: &[i32]) -> bool {
        let is_blocked = !processes.is_empty()
            && processes.iter().all(|process| {
                let threads = stack::threads_of(*process);
                !threads.is_empty()
                    && threads
                        .iter()
                        .all(|it| stack::waits_for_ever(*process, *it))
            });
        self.blocked_looks = if is_blocked {
            self.blocked_looks + 1
        } else {
            0
        };
        self.blocked_looks >= BLOCKED_LOOKS
    }

    /// The call stack of a process, outermost first.
    fn sample(&mut self, process: Option<i32>) -> Option<Vec<CodeAddress>> {
        let process = stack::process_that_hangs(process?);
        if self.samples.len() >= SAMPLES_MAX {
            return None;
        }
        if self
            .sampler
            .as_ref()
            .is_none_or(|it| it.process() != process)
        {
            self.sampler = Sampler::of(process);
        }
        let mut stack = self.sampler.as_mut()?.sample()?;
        stack.reverse();
        Some(stack)
    }
}

/// Why a command hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hang {
    /// It was given all of its time, or waits for ever.
    Confirmed,
    /// It is where another one hung, or is not waited for any longer.
    GivenUp,
}

/// What a thread has used, if the kernel counts that.
fn used_by(process: i32, thread: i32) -> Option<ThreadUse> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{thread}/schedstat")).ok()?;
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    let mut next = || numbers.next()?.ok();
    Some(ThreadUse {
        ran_ns: next()?,
        waited_ns: next()?,
        slices: next()?,
    })
}
