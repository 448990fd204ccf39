//! The connection to afl-fuzz: two descriptors with fixed numbers, and segments of shared memory that environment
//! variables name.
//!
//! # Safety
//!
//! 1. The descriptors belong to this module: no other code in this process uses their numbers, and they are checked to
//!    be open before they are taken.
//! 2. A segment stays attached until the process ends. Its length comes from the kernel, and every access is within
//!    it. Accesses go through raw pointers, because afl-fuzz writes to the segment, too; it does so only while it does
//!    not wait for an answer.
//! 3. The environment is changed before any other thread is started: `serve_afl` calls [`Host::find`] first.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::AflError;

/// The descriptors on which orders come and answers go.
const ORDERS: i32 = 198;
const ANSWERS: i32 = 199;

/// The environment variable that names the segment of the coverage map.
///
/// afl-fuzz searches the executable of its target for this name with a zero behind it, and without it reports that the
/// target has no instrumentation.
#[used]
static MAP_VARIABLE: [u8; 13] = *b"__AFL_SHM_ID\0";
/// The environment variable that names the segment of inputs.
const INPUT_VARIABLE: &str = "__AFL_SHM_FUZZ_ID";

/// Bits of the greeting: it has options, it has the length of the map, a dictionary is offered, and inputs may come in
/// shared memory.
const ENABLED: u32 = 0x8000_0001;
const MAP_LEN: u32 = 0x4000_0000;
const DICTIONARY: u32 = 0x1000_0000;
const SHARED_INPUTS: u32 = 0x0100_0000;
/// The longest map that fits in a greeting.
const MAP_LEN_MAX: usize = 1 << 23;

/// How often an interruption is checked while waiting.
pub(super) const INTERRUPT_CHECK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};

/// What afl-fuzz asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AflRequest {
    Run,
    End,
}

/// The connection to afl-fuzz.
pub(super) struct Host {
    orders: OwnedFd,
    answers: OwnedFd,
    map: Segment,
    inputs: Option<Segment>,
    /// How much of the map is used.
    used: usize,
    is_interrupted: fn() -> bool,
}

impl Host {
    /// Takes what afl-fuzz has prepared, and hides it from the target.
    pub(super) fn find(is_interrupted: fn() -> bool) -> Result<Self, AflError> {
        let map_variable = std::str::from_utf8(&MAP_VARIABLE)
            .unwrap_or_default()
            .trim_end_matches('\0');
        let map = std::env::var(map_variable).map_err(|_| AflError::NotStartedByAfl)?;
        let map = Segment::of_variable(map_variable, &map)?;
        let inputs = std::env::var(INPUT_VARIABLE).ok();
        let inputs = inputs.map(|inputs| Segment::of_variable(INPUT_VARIABLE, &inputs));
        // SAFETY: no other thread reads the environment, see 3 in the module header.
        unsafe {
            std::env::remove_var(map_variable);
            std::env::remove_var(INPUT_VARIABLE);
        }
        let take = |number| {
            // SAFETY: `fcntl_setfd` fails if the descriptor is not open, and it belongs to this module, see 1 in the
            // module header.
            let descriptor = unsafe {
                let borrowed = BorrowedFd::borrow_raw(number);
                // The target must not inherit it: if AFL++ has instrumented the target, it would answer instead.
                rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC)
                    .map_err(|_| AflError::NotStartedByAfl)?;
                OwnedFd::from_raw_fd(number)
            };
            Ok::<_, AflError>(descriptor)
        };
        Ok(Self {
            orders: take(ORDERS)?,
            answers: take(ANSWERS)?,
            map,
            inputs: inputs.transpose()?,
            used: 0,
            is_interrupted,
        })
    }

    /// Whether this process is interrupted.
    pub(super) fn is_interrupted(&self) -> bool {
        (self.is_interrupted)()
    }

    /// The descriptor on which orders come.
    pub(super) fn orders(&self) -> BorrowedFd<'_> {
        self.orders.as_fd()
    }

    /// Sends the greeting, with the length of the map. Returns whether a dictionary has to follow: afl-fuzz wants one,
    /// its other tools do not.
    pub(super) fn greet(&mut self, map_len: usize) -> Result<bool, AflError> {
        if map_len > MAP_LEN_MAX {
            return Err(AflError::MapTooLong);
        }
        self.used = map_len.min(self.map.len);
        self.answer(greeting(map_len, self.inputs.is_some()).cast_signed())?;
        if self.inputs.is_none() {
            return Ok(false);
        }
        // afl-fuzz confirms the options that it accepts.
        let confirmed = self.read_word()?.map_or(0, i32::cast_unsigned);
        let accepts = |option: u32| confirmed & (ENABLED | option) == ENABLED | option;
        if !accepts(SHARED_INPUTS) {
            self.inputs = None;
        }
        Ok(accepts(DICTIONARY))
    }

    /// Sends the dictionary: its length, and words with their lengths.
    pub(super) fn send_dictionary(&self, words: &[Vec<u8>]) -> Result<(), AflError> {
        let bytes = packed(words);
        self.answer(i32::try_from(bytes.len()).unwrap_or(i32::MAX))?;
        self.write(&bytes)
    }

    /// Waits for the next order, and reads its input.
    pub(super) fn next_request(&mut self, input: &mut Vec<u8>) -> Result<AflRequest, AflError> {
        // The value of the word only matters to persistent targets.
        if self.read_word()?.is_none() {
            return Ok(AflRequest::End);
        }
        input.clear();
        match &self.inputs {
            Some(segment) => segment.read_input(input),
            None => read_standard_input(input).map_err(AflError::system("read standard input"))?,
        }
        Ok(AflRequest::Run)
    }

    /// Sends a word to afl-fuzz.
    pub(super) fn answer(&self, word: i32) -> Result<(), AflError> {
        self.write(&word.to_ne_bytes())
    }

    fn write(&self, bytes: &[u8]) -> Result<(), AflError> {
        let mut at = 0;
        while at < bytes.len() {
            match rustix::io::write(&self.answers, &bytes[at..]) {
                Ok(len) => at += len,
                Err(Errno::INTR) => {}
                Err(error) => return Err(AflError::system("write to afl-fuzz")(error)),
            }
        }
        Ok(())
    }

    /// Reads a word from afl-fuzz; `None` if it has gone or this process is interrupted.
    fn read_word(&self) -> Result<Option<i32>, AflError> {
        let mut bytes = [0; 4];
        let mut at = 0;
        while at < bytes.len() {
            // A signal does not end a call of `read`, and one that comes just before a call does not end it either.
            let mut orders = [PollFd::new(&self.orders, PollFlags::IN)];
            match poll(&mut orders, Some(&INTERRUPT_CHECK)) {
                Ok(0) | Err(Errno::INTR) if self.is_interrupted() => return Ok(None),
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(AflError::system("read from afl-fuzz")(error)),
            }
            match rustix::io::read(&self.orders, &mut bytes[at..]) {
                Ok(0) => return Ok(None),
                Ok(len) => at += len,
                Err(Errno::INTR) => {}
                Err(error) => return Err(AflError::system("read from afl-fuzz")(error)),
            }
        }
        Ok(Some(i32::from_ne_bytes(bytes)))
    }

    /// Writes counters into the map, one part after the other.
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
    // Without shared inputs, afl-fuzz does not always say whether it wants a dictionary.
    let options = if has_shared_inputs {
        SHARED_INPUTS | DICTIONARY
    } else {
        0
    };
    ENABLED | MAP_LEN | options | (len - 1) << 1
}

/// A dictionary as afl-fuzz reads it. It refuses one without words.
fn packed(words: &[Vec<u8>]) -> Vec<u8> {
    let words = words.iter().filter(|word| !word.is_empty());
    let entries = words.filter_map(|word| Some((u8::try_from(word.len()).ok()?, word)));
    let packed: Vec<u8> = entries
        .flat_map(|(len, word)| std::iter::once(len).chain(word.iter().copied()))
        .collect();
    if packed.is_empty() {
        return b"\x010".to_vec();
    }
    packed
}

/// A segment of System V shared memory.
struct Segment {
    start: NonNull<u8>,
    len: usize,
}

impl Segment {
    /// The segment that an environment variable names.
    fn of_variable(variable: &str, value: &str) -> Result<Self, AflError> {
        Self::attach(value).map_err(|source| AflError::SharedMemory {
            variable: variable.to_owned(),
            value: value.to_owned(),
            source,
        })
    }

    fn attach(id: &str) -> io::Result<Self> {
        let id: i32 = id.parse().map_err(io::Error::other)?;
        // SAFETY: `shmid_ds` is plain data, for which zeros are valid, and the kernel fills it in. The kernel chooses a
        // free address for the segment.
        unsafe {
            let mut state: libc::shmid_ds = std::mem::zeroed();
            if libc::shmctl(id, libc::IPC_STAT, &raw mut state) != 0 {
                return Err(io::Error::last_os_error());
            }
            let start = libc::shmat(id, std::ptr::null(), 0);
            if start.addr() == usize::MAX {
                return Err(io::Error::last_os_error());
            }
            let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::InvalidData)?;
            let len = state.shm_segsz;
            Ok(Self { start, len })
        }
    }

    /// Copies bytes into the segment.
    fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at <= self.len && bytes.len() <= self.len - at);
        // SAFETY: the destination is within the segment, as was just asserted, and `bytes` cannot overlap it: no Rust
        // reference to the segment exists.
        unsafe {
            let to = self.start.as_ptr().add(at);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// Reads an input: a length of four bytes, and the bytes behind it.
    fn read_input(&self, input: &mut Vec<u8>) {
        let head = size_of::<u32>();
        if self.len < head {
            return;
        }
        // SAFETY: the segment has at least `head` bytes, `len` is limited to what follows them, and the vector has
        // reserved `len` bytes, which are all written before its length is set.
        unsafe {
            let len = self.start.cast::<u32>().read_unaligned() as usize;
            let len = len.min(self.len - head);
            input.reserve(len);
            std::ptr::copy_nonoverlapping(self.start.as_ptr().add(head), input.as_mut_ptr(), len);
            input.set_len(len);
        }
    }
}

/// Reads standard input from its beginning. Bypasses the buffer of the standard library, which would not notice that
/// afl-fuzz has rewritten the file.
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
        let options = greeting(65_536, true) & 0x3f00_0000;
        assert_eq!(options, SHARED_INPUTS | DICTIONARY);
    }

    #[test]
    fn a_dictionary_is_never_empty() {
        let words = [
            b"put 1 2\n".to_vec(),
            Vec::new(),
            vec![0; 256],
            b"p".to_vec(),
        ];
        assert_eq!(packed(&words), b"\x08put 1 2\n\x01p");
        assert_eq!(packed(&[]), b"\x010");
    }
}
