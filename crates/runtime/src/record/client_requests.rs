//! Client requests of Valgrind that the target makes: those of pmemcheck are understood.
//!
//! What they become:
//!
//! - **Flush** and **fence** are a mark and, behind it, events: a `clwb` for each line of a pool, and a
//!   fence as of a locked operation on volatile memory, if the thread has anything pending. So a
//!   program that only says what it would flush is recorded as if it did. A library that flushes *and*
//!   says so, as PMDK does, is recorded with both, which changes nothing: the second flush of a line finds
//!   nothing new, and with nothing pending there is no second fence. The lint does not judge what the
//!   mark announces.
//! - **Clean** ranges, transactions and lines for the log are the marks that mean the same.
//! - Everything else of pmemcheck is a mark of its own ([`mark::CLIENT_REQUEST`]).
//!
//! What libpmemobj itself says about its transactions is left out: they are seen by its functions.
//!
//! Requests of other tools, and unknown ones, get their default and are counted.
//!
//! Everything here runs on the slow stack, with signals blocked.
//!
//! # Safety
//!
//! `answer` is called by the refill stub on the slow stack of the thread whose block it gets, with signals blocked,
//! and with the registers of the request in that block. Words and strings of a request are readable by the
//! convention of Valgrind.
#![allow(unsafe_code, reason = "reads what the target passes")]

use core::sync::atomic::Ordering;

use powerfail_protocol::request::{self, pmemcheck};
use powerfail_protocol::shared::RequestCounts;
use powerfail_protocol::{EventKind, MAX_VALUE_LEN, ScratchSlot, SiteId, ThreadBlock, mark};

use crate::host;
use crate::libc::early;
use crate::platform::lock::{Lock, Word};
use crate::platform::maps;
use crate::record::sites::{SITES, Sites};
use crate::record::{append, call_stacks, faults, pools, schedule, thread_private};

const LINE_LEN: u64 = 64;

/// Memory that the target calls persistent and that is not a pool: from, to.
struct Registered {
    ranges: Vec<(u64, u64)>,
    /// The last one, as long as the target may only be asking whether requests are answered.
    doubtful: Option<(u64, u64)>,
}

static REGISTERED: Lock<Registered> = Lock::new(Registered {
    ranges: Vec::new(),
    doubtful: None,
});
/// What a fork holds of it.
pub(crate) static REGISTERED_WORD: &Word = REGISTERED.word();

/// Sees to it that libraries which ask whether they run under Valgrind are told so, if that is wanted.
pub(crate) fn prepare() {
    if plays_valgrind() {
        faults::install();
        Sites::start();
        early::watch_linker();
    }
}

/// The target ends.
pub(crate) fn conclude() {
    if let Some(range) = REGISTERED.with(|registered| registered.doubtful.take()) {
        warn_of(range);
    }
}

fn plays_valgrind() -> bool {
    host::control().plays_valgrind != 0
}

fn counts() -> &'static RequestCounts {
    &host::control().requests
}

/// Answers the request of the calling thread that its slots describe. A thread that is not recorded any
/// more gets the default.
///
/// # Safety
/// The block is that of the calling thread, whose handlers cannot run.
pub(crate) unsafe fn answer(block: *mut ThreadBlock, is_recorded: bool) {
    // SAFETY: by the contract `block` is the calling thread's; RAX points to the words of the request, by the
    // convention of Valgrind.
    unsafe {
        let scratch = &raw mut (*block).scratch;
        let site = core::mem::take(&mut (*scratch)[ScratchSlot::Request.index()]) as u32 - 1;
        let default = (*scratch)[ScratchSlot::Register(2).index()];
        let words = (*scratch)[ScratchSlot::Register(0).index()] as *const [u64; request::WORDS];
        let [number, arguments @ ..] = words.read_unaligned();
        let stack = if call_stacks::are_wanted() {
            (*scratch)[ScratchSlot::Stack.index()] as u32
        } else {
            site
        };
        let asked = Request {
            block,
            stack: SiteId(stack),
            pc: (*scratch)[ScratchSlot::StackPc.index()],
            arguments,
        };
        let result = if is_recorded {
            asked.answer(number)
        } else {
            None
        };
        (*scratch)[ScratchSlot::RdxOut.index()] = result.unwrap_or(default);
    }
}

/// A request of a recorded thread.
struct Request {
    block: *mut ThreadBlock,
    /// Its call stack, or its site.
    stack: SiteId,
    pc: u64,
    arguments: [u64; request::WORDS - 1],
}

impl Request {
    /// The answer, if it is not the default.
    fn answer(&self, number: u64) -> Option<u64> {
        if number == request::RUNNING_ON_VALGRIND {
            counts().understood.fetch_add(1, Ordering::Relaxed);
            return plays_valgrind().then_some(1);
        }
        let tool = number & !0xffff;
        if tool == pmemcheck::BASE && pmemcheck::name(number - tool).is_some() {
            counts().understood.fetch_add(1, Ordering::Relaxed);
            return self.answer_pmemcheck(number - tool);
        }
        if request::is_of_other_tool(number) {
            counts().of_other_tools.fetch_add(1, Ordering::Relaxed);
        } else if counts().unknown.fetch_add(1, Ordering::Relaxed) == 0 {
            counts().first_unknown.store(number, Ordering::Relaxed);
        }
        None
    }

    fn answer_pmemcheck(&self, number: u64) -> Option<u64> {
        let [first, second, third, ..] = self.arguments;
        if number != pmemcheck::CHECK_MAPPING {
            settle_doubt();
        }
        match number {
            pmemcheck::CHECK_MAPPING => return Some(is_persistent(first, second).into()),
            pmemcheck::REGISTER_MAPPING => {
                register(first, second);
                self.note(number, Some((first, second)));
            }
            pmemcheck::REMOVE_MAPPING => {
                remove(first, second);
                self.note(number, Some((first, second)));
            }
            pmemcheck::REGISTER_FILE => self.note(number, Some((second, third))),
            pmemcheck::FLUSH => self.flush(first, second),
            pmemcheck::FENCE => self.fence(),
            pmemcheck::SET_CLEAN => self.mark(mark::CLEAN, 0, &[first, second]),
            pmemcheck::LOG => self.log(first),
            _ if self.is_of_libpmemobj() => {}
            pmemcheck::START_TRANSACTION
            | pmemcheck::START_TRANSACTION_N
            | pmemcheck::ADD_THREAD_N => self.begin_transaction(),
            pmemcheck::END_TRANSACTION
            | pmemcheck::END_TRANSACTION_N
            | pmemcheck::REMOVE_THREAD_N => self.end_transaction(),
            pmemcheck::ADD => self.mark(mark::TRANSACTION_ADD, 0, &[first, second]),
            pmemcheck::ADD_N => self.mark(mark::TRANSACTION_ADD, 0, &[second, third]),
            pmemcheck::REMOVE | pmemcheck::IGNORE => self.note(number, Some((first, second))),
            pmemcheck::REMOVE_N => self.note(number, Some((second, third))),
            _ => self.note(number, None),
        }
        None
    }

    fn mark(&self, code: u32, value: u64, rest: &[u64]) {
        let head = [u64::from(code), value].map(u64::to_le_bytes);
        // SAFETY: words as bytes.
        let rest = unsafe { core::slice::from_raw_parts(rest.as_ptr().cast(), 8 * rest.len()) };
        self.append(EventKind::Mark, None, &[head.as_flattened(), rest]);
    }

    /// A request that has no other code.
    fn note(&self, number: u64, range: Option<(u64, u64)>) {
        let range = range.map(|(address, len)| [address, len]);
        let rest = range.as_ref().map_or(&[][..], |range| &range[..]);
        self.mark(mark::CLIENT_REQUEST, number, rest);
    }

    fn append(&self, kind: EventKind, address: Option<u64>, value: &[&[u8]]) {
        append::append_at(self.block, self.stack, kind, address, value);
    }

    fn flush(&self, address: u64, len: u64) {
        schedule::step();
        let end = address.saturating_add(len);
        let mut from = address;
        let mut is_noted = false;
        while let Some((start, to)) = pools::first_part(from, end) {
            self.note(pmemcheck::FLUSH, Some((start, to - start)));
            is_noted = true;
            let mut line = start / LINE_LEN * LINE_LEN;
            while line < to {
                append::flush_at(self.block, self.stack, EventKind::Clwb, line);
                line += LINE_LEN;
            }
            self.set_pending(1);
            from = to;
        }
        if !is_noted {
            self.note(pmemcheck::FLUSH, Some((address, len)));
        }
    }

    fn fence(&self) {
        schedule::step();
        self.note(pmemcheck::FENCE, None);
        // SAFETY: the block is this thread's.
        if unsafe { (*self.block).pending } != 0 {
            self.append(EventKind::FenceLocked, None, &[]);
            self.set_pending(0);
        }
    }

    fn set_pending(&self, pending: u32) {
        // SAFETY: the block is this thread's.
        unsafe { (*self.block).pending = pending };
    }

    fn log(&self, text: u64) {
        const HEAD_LEN: usize = 16;
        let len_max = usize::from(MAX_VALUE_LEN) - HEAD_LEN;
        let head = [u64::from(mark::USER), 0].map(u64::to_le_bytes);
        let text = text as *const u8;
        let text = if text.is_null() {
            &[][..]
        } else {
            // SAFETY: the target gives a string with an end.
            unsafe {
                let len = (0..len_max).find(|at| text.add(*at).read() == 0);
                core::slice::from_raw_parts(text, len.unwrap_or(len_max))
            }
        };
        self.append(EventKind::Mark, None, &[head.as_flattened(), text]);
    }

    fn is_of_libpmemobj(&self) -> bool {
        SITES.with(|sites| {
            let sites = sites.as_ref();
            sites.is_some_and(|sites| sites.is_of_libpmemobj(self.pc))
        })
    }

    fn begin_transaction(&self) {
        let Some(own) = thread_private::own() else {
            return;
        };
        // SAFETY: the state is this thread's.
        let is_outermost = unsafe {
            (*own).requested_transactions += 1;
            (*own).requested_transactions == 1 && (*own).pmdk.transactions == 0
        };
        let code = if is_outermost {
            mark::TRANSACTION_BEGIN
        } else {
            mark::NESTED_BEGIN
        };
        self.mark(code, 0, &[]);
    }

    fn end_transaction(&self) {
        let Some(own) = thread_private::own() else {
            return;
        };
        // SAFETY: the state is this thread's.
        let is_outermost = unsafe {
            // One that was never begun has nothing to end.
            let Some(depth) = (*own).requested_transactions.checked_sub(1) else {
                return;
            };
            (*own).requested_transactions = depth;
            depth == 0 && (*own).pmdk.transactions == 0
        };
        let code = if is_outermost {
            mark::TRANSACTION_END
        } else {
            mark::NESTED_END
        };
        self.mark(code, 0, &[]);
    }
}

/// Whether all of a range is in a pool, or was registered.
fn is_persistent(address: u64, len: u64) -> bool {
    let end = address.saturating_add(len);
    let in_pool = pools::first_part(address, end).is_some_and(|part| part == (address, end));
    in_pool
        || REGISTERED.with(|registered| {
            let range = (address, end);
            if registered.doubtful == Some(range) {
                // The target finds out whether requests are answered, as PMDK does. Nothing will be stored there.
                registered.doubtful = None;
            }
            let holds = |range: &(u64, u64)| range.0 <= address && end <= range.1;
            registered.ranges.iter().any(holds)
        })
}

fn register(address: u64, len: u64) {
    let end = address.saturating_add(len);
    if pools::first_part(address, end).is_none() {
        REGISTERED.with(|registered| {
            registered.ranges.push((address, end));
            registered.doubtful = Some((address, end));
        });
    }
}

fn remove(address: u64, len: u64) {
    let end = address.saturating_add(len);
    REGISTERED.with(|registered| {
        registered
            .ranges
            .retain(|range| range.1 <= address || end <= range.0);
    });
}

/// The target continues without asking about what it registered last: the registration was meant.
fn settle_doubt() {
    conclude();
}

/// Warns of memory that is called persistent and is not recorded. What is mapped from a file we have
/// seen: either it was left out on purpose, or it is a private copy, as libpmemobj makes to check a pool.
fn warn_of((from, to): (u64, u64)) {
    let is_in_module = SITES.with(|sites| {
        let sites = sites.as_ref();
        sites.is_some_and(|sites| sites.is_in_module(from))
    });
    if !is_in_module && maps::is_of_file(from) {
        return;
    }
    let len = to - from;
    host::warn(&format!(
        "a client request registers {len} bytes at {from:#x} as persistent, but no recorded pool is \
         mapped there: stores to them are not recorded"
    ));
}
