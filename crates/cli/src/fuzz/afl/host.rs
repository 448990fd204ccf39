//! What afl-fuzz gives its target: two descriptors with fixed numbers, and segments of shared memory that
//! variables of the environment name.
//!
//! # Safety
//!
//! The descriptors are ours by agreement: nobody else in this process knows their numbers, and that they are open
//! is checked before they are taken. A segment stays attached until the process ends. Its length is what the kernel
//! says, every access is within it, and it goes through raw pointers: afl-fuzz writes to it too, though only while it
//! waits for nothing from us. The environment is changed before there is any other thread.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use anyhow::{Context, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::interrupt;

/// Orders come from the first, answers go to the one behind it.
const ORDERS: i32 = 198;
const ANSWERS: i32 = 199;

/// The name of the segment of the map, and of that of inputs.
///
/// afl-fuzz looks for the first, with a zero behind it, in the file of its target, and without it says that the
/// target has no instrumentation.
#[used]
static MAP_VARIABLE: [u8; 13] = *b"__AFL_SHM_ID\0";
const INPUT_VARIABLE: &str = "__AFL_SHM_FUZZ_ID";

/// What our greeting can say: that it says something, how long the map is, and that inputs come by shared memory.
const ENABLED: u32 = 0x8000_0001;
const MAP_LEN: u32 = 0x4000_0000;
const SHARED_INPUTS: u32 = 0x0100_0000;
/// The longest map that a greeting can name.
const MAP_LEN_MAX: usize = 1 << 23;

/// How often it is looked whether we are to end.
pub(super) const LOOK_EVERY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Run,
    End,
}

/// See the module header.
pub(super) struct Host {
    orders: OwnedFd,
    answers: OwnedFd,
    map: Segment,
    inputs: Option<Segment>,
    /// How much of the map is used.
    used: usize,
}

impl Host {
    /// Finds what afl-fuzz has prepared, and hides it from the target.
    pub(super) fn find() -> anyhow::Result<Self> {
        let nobody = "this command is to be started by afl-fuzz, as its target; see powerfail fuzz afl --help";
        let map_variable = std::str::from_utf8(&MAP_VARIABLE)
            .unwrap_or_default()
            .trim_end_matches('\0');
        let map = std::env::var(map_variable).context(nobody)?;
        let map = Segment::attach(&map).with_context(|| format!("{map_variable}={map}"))?;
        let inputs = std::env::var(INPUT_VARIABLE).ok();
        let inputs = inputs.map(|inputs| {
            Segment::attach(&inputs).with_context(|| format!("{INPUT_VARIABLE}={inputs}"))
        });
        // SAFETY: see the module header.
        unsafe {
            std::env::remove_var(map_variable);
            std::env::remove_var(INPUT_VARIABLE);
        }
        let take = |number| {
            // SAFETY: an open descriptor that is nobody else's, see the module header.
            let descriptor = unsafe {
                let borrowed = BorrowedFd::borrow_raw(number);
                // The target must not have it: if it is instrumented by AFL++, it would answer for us.
                rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC).context(nobody)?;
                OwnedFd::from_raw_fd(number)
            };
            anyhow::Ok(descriptor)
        };
        Ok(Self {
            orders: take(ORDERS)?,
            answers: take(ANSWERS)?,
            map,
            inputs: inputs.transpose()?,
            used: 0,
        })
    }

    /// Where orders come from.
    pub(super) fn orders(&self) -> BorrowedFd<'_> {
        self.orders.as_fd()
    }

    /// Says hello, and how long the map is.
    pub(super) fn greet(&mut self, map_len: usize) -> anyhow::Result<()> {
        ensure!(
            map_len <= MAP_LEN_MAX,
            "the target has more branches than afl-fuzz can be told of"
        );
        self.used = map_len.min(self.map.len);
        self.say(greeting(map_len, self.inputs.is_some()).cast_signed())?;
        if self.inputs.is_some() {
            // afl-fuzz confirms that it has understood.
            let confirmed = self.read_word()?;
            let understands = ENABLED | SHARED_INPUTS;
            if confirmed.is_none_or(|word| word.cast_unsigned() & understands != understands) {
                self.inputs = None;
            }
        }
        Ok(())
    }

    /// Waits for the next order, and reads its input.
    pub(super) fn next_order(&mut self, input: &mut Vec<u8>) -> anyhow::Result<Order> {
        // What the word says is of interest to targets that live on between executions.
        if self.read_word()?.is_none() {
            return Ok(Order::End);
        }
        input.clear();
        match &self.inputs {
            Some(segment) => segment.read_input(input),
            None => read_standard_input(input).context("the input, on standard input")?,
        }
        Ok(Order::Run)
    }

    /// Answers with a word.
    pub(super) fn say(&self, word: i32) -> anyhow::Result<()> {
        let bytes = word.to_ne_bytes();
        let mut at = 0;
        while at < bytes.len() {
            match rustix::io::write(&self.answers, &bytes[at..]) {
                Ok(len) => at += len,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("cannot answer afl-fuzz"),
            }
        }
        Ok(())
    }

    /// A word from afl-fuzz; nothing if it has gone, or we are to go.
    fn read_word(&self) -> anyhow::Result<Option<i32>> {
        let mut bytes = [0; 4];
        let mut at = 0;
        while at < bytes.len() {
            // A signal ends no call of read, and one that comes just before the call ends no call at all.
            let mut orders = [PollFd::new(&self.orders, PollFlags::IN)];
            match poll(&mut orders, Some(&LOOK_EVERY)) {
                Ok(0) | Err(Errno::INTR) if interrupt::is_interrupted() => return Ok(None),
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(error).context("cannot hear afl-fuzz"),
            }
            match rustix::io::read(&self.orders, &mut bytes[at..]) {
                Ok(0) => return Ok(None),
                Ok(len) => at += len,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("cannot hear afl-fuzz"),
            }
        }
        Ok(Some(i32::from_ne_bytes(bytes)))
    }

    /// Writes counters into the map, one part behind the other.
    pub(super) fn cover(&self, parts: &[&[u8]]) {
        let mut at = 0;
        for part in parts {
            let len = part.len().min(self.used - at);
            self.map.write(at, &part[..len]);
            at += len;
        }
    }
}

fn greeting(map_len: usize, has_shared_inputs: bool) -> u32 {
    let len = u32::try_from(map_len.clamp(2, MAP_LEN_MAX)).unwrap_or(2);
    let inputs = if has_shared_inputs { SHARED_INPUTS } else { 0 };
    ENABLED | MAP_LEN | inputs | (len - 1) << 1
}

/// Shared memory of System V.
struct Segment {
    start: NonNull<u8>,
    len: usize,
}

impl Segment {
    fn attach(id: &str) -> anyhow::Result<Self> {
        let id: i32 = id.parse().context("not the number of a segment")?;
        // SAFETY: the kernel chooses a free address, and fills the structure in, which may be all zeros.
        unsafe {
            let mut state: libc::shmid_ds = std::mem::zeroed();
            if libc::shmctl(id, libc::IPC_STAT, &raw mut state) != 0 {
                return Err(io::Error::last_os_error().into());
            }
            let start = libc::shmat(id, std::ptr::null(), 0);
            if start.addr() == usize::MAX {
                return Err(io::Error::last_os_error().into());
            }
            let start = NonNull::new(start.cast()).context("at address 0")?;
            let len = state.shm_segsz;
            Ok(Self { start, len })
        }
    }

    /// Puts bytes there.
    fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at <= self.len && bytes.len() <= self.len - at);
        // SAFETY: within the segment, as was just checked; `bytes` are memory of ours.
        unsafe {
            let to = self.start.as_ptr().add(at);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// An input is a length of four bytes and what follows.
    fn read_input(&self, input: &mut Vec<u8>) {
        let head = size_of::<u32>();
        if self.len < head {
            return;
        }
        // SAFETY: within the segment: the length is limited to what follows it.
        unsafe {
            let len = self.start.cast::<u32>().read_unaligned() as usize;
            let len = len.min(self.len - head);
            input.reserve(len);
            std::ptr::copy_nonoverlapping(self.start.as_ptr().add(head), input.as_mut_ptr(), len);
            input.set_len(len);
        }
    }
}

/// Reads what standard input has, from its beginning. Past the buffer of the standard library, which would not
/// notice that afl-fuzz has written something else.
fn read_standard_input(input: &mut Vec<u8>) -> rustix::io::Result<()> {
    const STEP: usize = 1 << 16;
    loop {
        let at = input.len();
        input.resize(at + STEP, 0);
        let read = rustix::io::pread(rustix::stdio::stdin(), &mut input[at..], at as u64);
        input.truncate(at + read.unwrap_or(0));
        match read {
            Ok(0) => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greeting_names_the_length_of_the_map() {
        let len_of = |greeting: u32| ((greeting & 0x00ff_fffe) >> 1) + 1;
        for len in [64, 65_536, 65_600, MAP_LEN_MAX] {
            let greeting = greeting(len, false);
            assert_eq!(len_of(greeting) as usize, len);
            assert_eq!(greeting & ENABLED, ENABLED);
            assert_eq!(greeting & MAP_LEN, MAP_LEN);
            assert_eq!(greeting & SHARED_INPUTS, 0);
        }
        assert_eq!(greeting(65_536, true) & 0x0f00_0000, SHARED_INPUTS);
    }
}
