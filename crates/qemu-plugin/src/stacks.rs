//! Call stacks of a program: unwound once, and then known by what the result depended on.
//!
//! A stack is found again by the instruction and RSP, and by the words of the stack that were read: if all are the same, so is
//! the stack. A file without an unwind table is assumed to keep frame pointers, as Go does. In a file that has one, the caller of code
//! without an entry is searched for.

use powerfail_protocol::message::MessageKind;
use powerfail_unwind::{Cfa, RBP, Row};
use rustc_hash::FxHashMap;
use std::sync::Mutex;

use crate::modules::{Callee, Rule};
use crate::translate::Site;
use crate::{host, memory, modules};

/// Of deeper stacks the innermost frames are kept.
const DEPTH_MAX: usize = 128;
/// How much of the stack is read at first.
const READ_LEN: usize = 16 << 10;
/// What looks longer is no frame.
const FRAME_LEN_MAX: u64 = 64 << 20;
/// If the cache has more entries, it is emptied.
const CACHED_MAX: usize = 1 << 16;

/// The number of a stack, and what it depended on.
struct CachedStack {
    rbp: Option<u64>,
    words: Vec<(u64, u64)>,
    number: u32,
}

/// The stacks of a thread that were numbered before.
#[derive(Default)]
pub(crate) struct Stacks {
    cached: FxHashMap<(u64, u64), Vec<CachedStack>>,
    copy: Vec<u8>,
}

/// The numbers of all stacks of this process, and of their sites.
static NUMBERS: Mutex<Option<FxHashMap<Vec<u64>, u32>>> = Mutex::new(None);

/// The memory of a stack, read at once.
struct Copied<'a> {
    start: u64,
    bytes: &'a [u8],
}

impl Copied<'_> {
    fn word(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.start)?).ok()?;
        match self.bytes.get(at..at.checked_add(8)?) {
            Some(bytes) => Some(u64::from_le_bytes(bytes.try_into().ok()?)),
            None => memory::number(address, 8),
        }
    }
}

impl Stacks {
    /// The number of the stack at an instruction. Without registers: of the instruction alone.
    pub(crate) fn number(&mut self, site: &Site, registers: Option<(u64, u64)>) -> u32 {
        let (address, len) = (site.address, site.instruction.len());
        self.number_at(address, len, registers.filter(|_| host::wants_stacks()))
    }

    /// As [`Self::number`], of an address.
    pub(crate) fn number_at(
        &mut self,
        address: u64,
        len: usize,
        registers: Option<(u64, u64)>,
    ) -> u32 {
        let Some((rsp, rbp)) = registers else {
            return number_of(address, len, &[]);
        };
        if let Some(stacks) = self.cached.get(&(address, rsp)) {
            let is_same = |cached: &&CachedStack| {
                cached.rbp.is_none_or(|it| it == rbp)
                    && cached
                        .words
                        .iter()
                        .all(|(address, value)| read_again(*address) == *value)
            };
            if let Some(stack) = stacks.iter().find(is_same) {
                return stack.number;
            }
        }
        if self.cached.len() > CACHED_MAX {
            self.cached.clear();
        }
        let mut words = Vec::new();
        let (frames, rbp_matters) = self.walk(address, rsp, rbp, &mut words);
        let number = number_of(address, len, &frames);
        self.cached
            .entry((address, rsp))
            .or_default()
            .push(CachedStack {
                rbp: rbp_matters.then_some(rbp),
                words,
                number,
            });
        number
    }

    /// The return addresses, innermost first, and whether the register RBP mattered.
    fn walk(
        &mut self,
        address: u64,
        mut rsp: u64,
        mut rbp: u64,
        words: &mut Vec<(u64, u64)>,
    ) -> (Vec<u64>, bool) {
        self.copy.resize(READ_LEN, 0);
        let len = memory::read(rsp, &mut self.copy);
        let copied = Copied {
            start: rsp,
            bytes: &self.copy[..len],
        };
        let mut read = |address: u64| {
            let value = copied.word(address)?;
            words.push((address, value));
            Some(value)
        };
        let (mut frames, mut rbp_matters, mut rbp_is_register) = (Vec::new(), false, true);
        let mut lookup = address;
        let mut next = || -> Option<u64> {
            let rule = modules::rule(lookup);
            let has_table = !matches!(rule, Rule::FramePointer);
            let (cfa, saved_rbp) = match rule {
                Rule::Unknown => return None,
                Rule::FramePointer => {
                    rbp_matters |= rbp_is_register;
                    (rbp.checked_add(16)?, Some(-16))
                }
                Rule::Search => {
                    rbp_matters |= rbp_is_register;
                    let found = search(rsp, rbp, &mut read)?;
                    rbp = found.rbp;
                    (found.cfa, None)
                }
                Rule::Row(row) => {
                    let (register, ..) = parts_of(row.cfa);
                    rbp_matters |= register == RBP && rbp_is_register;
                    (cfa_of(&row, rsp, rbp, &mut read)?, row.rbp)
                }
            };
            if cfa <= rsp || cfa - rsp > FRAME_LEN_MAX {
                return None;
            }
            if let Some(offset) = saved_rbp {
                rbp = read(cfa.wrapping_add_signed(offset))?;
                rbp_is_register = false;
            }
            let caller = read(cfa - 8)?;
            // What is no frame pointer leads anywhere.
            if caller == 0 || !has_table && !modules::has(caller) {
                return None;
            }
            rsp = cfa;
            // The call may be the last instruction of its function.
            lookup = caller - 1;
            Some(caller)
        };
        while frames.len() < DEPTH_MAX
            && let Some(caller) = next()
        {
            frames.push(caller);
        }
        (frames, rbp_matters)
    }
}

/// Register and offset from which a frame is computed, and whether it is stored there.
const fn parts_of(cfa: Cfa) -> (u64, i64, bool) {
    match cfa {
        Cfa::Register { register, offset } => (register, offset, false),
        Cfa::Saved { register, offset } => (register, offset, true),
    }
}

/// Where the frame of a function ends.
fn cfa_of(row: &Row, rsp: u64, rbp: u64, read: &mut impl FnMut(u64) -> Option<u64>) -> Option<u64> {
    row.return_address?;
    let (register, offset, is_saved) = parts_of(row.cfa);
    let base = if register == RBP { rbp } else { rsp };
    let cfa = base.wrapping_add_signed(offset);
    if is_saved { read(cfa) } else { Some(cfa) }
}

/// A caller that was searched for.
struct Found {
    /// Behind its return address.
    cfa: u64,
    rbp: u64,
}

/// Looks for the caller of code that has no table and keeps no frame pointers, as the C library of musl: the first word that is
/// the address behind a call of such code, in a function that has a table, and that function was called by what its table
/// says. Calls that have returned may have left such words, but not with that caller. If it was entered by a jump from another
/// one, nothing says so, and the first word is taken.
fn search(rsp: u64, rbp: u64, read: &mut impl FnMut(u64) -> Option<u64>) -> Option<Found> {
    const WORDS_MAX: u64 = 1024;
    let target = |callee| match callee {
        Callee::Function(address) => Some(address),
        Callee::Stored(address) => memory::number(address, 8),
        Callee::Unknown => None,
    };
    let mut words = Vec::new();
    let mut first = None;
    for place in (0..WORDS_MAX).map(|index| rsp + 8 * index) {
        let Some(word) = read(place) else { break };
        words.push(word);
        let Rule::Row(row) = modules::rule(word.wrapping_sub(1)) else {
            continue;
        };
        let callee = modules::call_before(word).and_then(target);
        if !callee.is_some_and(|it| modules::has(it) && matches!(modules::rule(it), Rule::Search)) {
            continue;
        }
        let cfa = place + 8;
        let mut is_called = |rbp: u64| {
            let end = cfa_of(&row, cfa, rbp, read)?;
            if end <= cfa || end - cfa > FRAME_LEN_MAX {
                return None;
            }
            let outer = modules::call_before(read(end - 8)?)?;
            let is_it = target(outer).is_none_or(|it| Some(it) == modules::function(word - 1));
            is_it.then_some(())
        };
        // The library may have saved the register, and use it for something else.
        let saved = words
            .iter()
            .copied()
            .filter(|it| it.wrapping_sub(place) < FRAME_LEN_MAX);
        let mut frames = core::iter::once(rbp).chain(saved);
        if let Some(rbp) = frames.find(|rbp| is_called(*rbp).is_some()) {
            return Some(Found { cfa, rbp });
        }
        first = first.or(Some(Found { cfa, rbp }));
    }
    first
}

/// Reads a word of the same stack again. The target stores below it, so it is mapped.
#[expect(unsafe_code, reason = "reads the stack of the target")]
fn read_again(address: u64) -> u64 {
    // SAFETY: the word lies above RSP of the thread that runs, in a stack that was mapped there before.
    unsafe { memory::place(address).cast::<u64>().read_unaligned() }
}

/// The number of a stack, which the host knows from then on.
fn number_of(address: u64, len: usize, callers: &[u64]) -> u32 {
    let mut numbers = NUMBERS
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let numbers = numbers.get_or_insert_default();
    let site = *numbers
        .entry(vec![address])
        .or_insert_with(|| host::announce_site(address, len));
    if callers.is_empty() {
        return site;
    }
    let mut key = vec![address];
    key.extend_from_slice(callers);
    *numbers.entry(key).or_insert_with(|| {
        let number = host::next_site();
        let words = [u64::from(number), u64::from(site), address, 0, 0];
        let text: Vec<u8> = callers.iter().flat_map(|it| it.to_le_bytes()).collect();
        host::send(MessageKind::Stack, words, &text, None);
        number
    })
}
