//! The lines of a Python program on a call stack, in place of the functions of its interpreter.
//!
//! `CPython` keeps its own call stack in memory. From the state of the thread, a chain leads over the calls of the
//! interpreter's loop, each of which has a record in its C stack frame, to the frames of the Python functions that it
//! executes, and from a frame to its code: file, function, and a table from instructions to lines. Nothing is called:
//! everything is read, and only if it is mapped. The layout is that of `CPython` 3.11; other versions are left alone.
//!
//! A Python function is shown to the host as a module whose offsets are lines. Its address is made of a hash of its
//! name, so that it is the same in every process and every run ([`FUNCTION`]).
//!
//! What a stack depended on can be checked again without asking whether it is mapped: the record of the loop lies in
//! the C stack, at the same place as long as the C stack is the same, and it leads to the frame that is executed now,
//! which leads to its caller. So each check has been justified by the ones before it.

use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeSet;

use powerfail_protocol::message::{FUNCTION, FUNCTION_LINES, MessageKind};
use powerfail_protocol::stack::Check;
use powerfail_unwind::python_line;

use crate::host;
use crate::patching::modules::LoadedModule;
use crate::platform::sys;

/// The version of `CPython` whose layout is known: major and minor.
const VERSION: u64 = 0x030b;

/// No more frames are read.
const DEPTH_MAX: usize = 256;
/// No more threads are looked at.
const THREADS_MAX: usize = 4096;
/// Longer names are cut.
const NAME_MAX: usize = 1024;
/// Longer tables of lines are not read.
const TABLE_MAX: usize = 1 << 20;

/// Offsets in `_PyRuntime`, interpreters and thread states.
const INTERPRETERS: u64 = 40;
const NEXT_INTERPRETER: u64 = 0;
const THREADS: u64 = 16;
const NEXT_THREAD: u64 = 8;
const LOOP_RECORD: u64 = 56;
const THREAD_ID: u64 = 152;
/// Offsets in the record of a call of the loop: the frame that it executes, and then the previous record.
const CURRENT_FRAME: u64 = 8;
/// Words of a frame.
const FRAME_CODE: usize = 4;
const FRAME_PREVIOUS: usize = 6;
const FRAME_INSTRUCTION: usize = 7;
const FRAME_FLAGS: usize = 8;
const FRAME_WORDS: usize = 9;
/// In the word of flags: the loop was called for this frame.
const IS_ENTRY: u64 = 0xff << 32;
/// Words of a code object.
const CODE_TYPE: usize = 1;
const CODE_FIRST_LINE: usize = 9;
const CODE_FILE: usize = 14;
const CODE_FUNCTION: usize = 16;
const CODE_LINES: usize = 17;
const CODE_WORDS: usize = 18;
const CODE_INSTRUCTIONS: u64 = 184;
/// Offsets in objects with bytes and in strings, and bits of the word that says how a string is stored.
const LENGTH: u64 = 16;
const BYTES: u64 = 32;
const STORAGE_WORD: usize = 4;
const IS_COMPACT: u64 = 1 << 5;
const IS_ASCII: u64 = 1 << 6;
const ASCII_TEXT: u64 = 48;
const OTHER_TEXT: u64 = 72;

/// `_PyRuntime`, the type of code objects, and the addresses of the module that has them: zero if there is no
/// interpreter.
static RUNTIME: AtomicU64 = AtomicU64::new(0);
static CODE: AtomicU64 = AtomicU64::new(0);
static FROM: AtomicU64 = AtomicU64::new(0);
static TO: AtomicU64 = AtomicU64::new(0);

/// Looks whether a module that was loaded is an interpreter.
pub(crate) fn look_at(module: &LoadedModule) {
    let found = module
        .address_of(c"_PyRuntime")
        .zip(module.address_of(c"PyCode_Type"))
        .zip(module.address_of(c"Py_Version"));
    let Some(((runtime, code), version)) = found else {
        return;
    };
    if sys::read_own_word(version).is_none_or(|version| version >> 16 != VERSION) {
        return;
    }
    let (from, to) = module.range();
    CODE.store(code, Ordering::Relaxed);
    FROM.store(from, Ordering::Relaxed);
    TO.store(to, Ordering::Relaxed);
    RUNTIME.store(runtime, Ordering::Release);
}

/// Whether there is an interpreter whose frames can be read.
pub(super) fn is_loaded() -> bool {
    RUNTIME.load(Ordering::Acquire) != 0
}

/// Whether an address is one of the interpreter's own code.
pub(super) fn is_interpreter(address: u64) -> bool {
    (FROM.load(Ordering::Relaxed)..TO.load(Ordering::Relaxed)).contains(&address)
}

/// Whether an address is that of a line of a Python function.
pub(super) const fn is_line(address: u64) -> bool {
    address >> 60 == FUNCTION >> 60
}

/// The Python frames of the calling thread.
#[derive(Default)]
pub(super) struct PythonStack {
    /// The calls of the interpreter's loop, innermost first: an address in the C stack frame of the call, and how many
    /// of the lines belong to this call and those inside of it.
    pub(super) loops: Vec<(u64, usize)>,
    /// The lines, innermost first, as addresses.
    pub(super) lines: Vec<u64>,
    /// What the stack depends on, besides the C stack. To be checked in this order.
    pub(super) checks: Vec<Check>,
    /// Functions on it that the host does not know.
    new: Vec<Function>,
    known: BTreeSet<u64>,
}

struct Function {
    address: u64,
    /// The function, then the file.
    text: Vec<u8>,
    name_len: usize,
}

impl PythonStack {
    /// Reads the stack of the calling thread.
    pub(super) fn read(&mut self) {
        self.loops.clear();
        self.lines.clear();
        self.checks.clear();
        self.new.clear();
        // What was read before something was not as expected is right.
        let _ = self.read_loops();
    }

    /// Nothing of what was read is on the stack that was walked.
    pub(super) fn forget(&mut self) {
        self.new.clear();
    }

    fn read_loops(&mut self) -> Option<()> {
        let mut record = sys::read_own_word(thread_state()? + LOOP_RECORD)?;
        loop {
            let [mut frame, previous] = words(record.checked_add(CURRENT_FRAME)?)?;
            if previous == 0 {
                // The outermost record belongs to no call.
                return None;
            }
            if self.loops.is_empty() {
                self.checks.push(Check {
                    address: record + CURRENT_FRAME,
                    value: frame,
                });
            }
            loop {
                if self.lines.len() >= DEPTH_MAX {
                    return None;
                }
                let read: [u64; FRAME_WORDS] = words(frame)?;
                let line = self.line(read[FRAME_CODE], read[FRAME_INSTRUCTION])?;
                for word in [FRAME_INSTRUCTION, FRAME_PREVIOUS] {
                    self.checks.push(Check {
                        address: frame + 8 * word as u64,
                        value: read[word],
                    });
                }
                self.lines.push(line);
                frame = read[FRAME_PREVIOUS];
                if read[FRAME_FLAGS] & IS_ENTRY != 0 {
                    break;
                }
            }
            self.loops.push((record, self.lines.len()));
            record = previous;
        }
    }

    /// The line of an instruction, as an address.
    fn line(&mut self, code: u64, instruction: u64) -> Option<u64> {
        let read: [u64; CODE_WORDS] = words(code)?;
        if read[CODE_TYPE] != CODE.load(Ordering::Relaxed) {
            return None;
        }
        let mut text = string(read[CODE_FUNCTION])?;
        let name_len = text.len();
        text.extend(string(read[CODE_FILE])?);
        let number = hash(&text, name_len) % (1 << 40);
        let address = FUNCTION | (number * FUNCTION_LINES);
        if !self.known.contains(&address) {
            self.new.push(Function {
                address,
                text,
                name_len,
            });
        }
        let table = read[CODE_LINES];
        let len = usize::try_from(sys::read_own_word(table.checked_add(LENGTH)?)?).ok()?;
        if len > TABLE_MAX {
            return None;
        }
        let table = bytes(table.checked_add(BYTES)?, len)?;
        let executed = instruction.saturating_sub(code.checked_add(CODE_INSTRUCTIONS)?);
        let line = python_line(&table, executed, read[CODE_FIRST_LINE] as u32);
        Some(address | u64::from(line).min(FUNCTION_LINES - 1))
    }

    /// Tells the host of the functions that it does not know.
    pub(super) fn tell(&mut self) {
        for function in self.new.drain(..) {
            if self.known.insert(function.address) {
                let name_len = function.name_len as u64;
                let words = [function.address, FUNCTION_LINES, 0, name_len, 0];
                host::send(MessageKind::Module, words, &function.text, None);
            }
        }
    }
}

/// The state that the interpreter has of the calling thread.
fn thread_state() -> Option<u64> {
    let own = sys::thread_pointer();
    let runtime = RUNTIME.load(Ordering::Acquire);
    let mut interpreter = sys::read_own_word(runtime + INTERPRETERS)?;
    let mut left = THREADS_MAX;
    while interpreter != 0 {
        let mut thread = sys::read_own_word(interpreter.checked_add(THREADS)?)?;
        while thread != 0 {
            left = left.checked_sub(1)?;
            if sys::read_own_word(thread.checked_add(THREAD_ID)?)? == own {
                return Some(thread);
            }
            thread = sys::read_own_word(thread + NEXT_THREAD)?;
        }
        interpreter = sys::read_own_word(interpreter + NEXT_INTERPRETER)?;
    }
    None
}

/// Words of memory, if they are mapped.
fn words<const N: usize>(address: u64) -> Option<[u64; N]> {
    // What is added to an address does not wrap: no address of a program is that high.
    address.checked_add(1 << 20)?;
    let mut words = [0; N];
    sys::read_own_words(address, &mut words).then_some(words)
}

/// Bytes of memory, if they are mapped.
fn bytes(address: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    (len == 0 || sys::read_own_bytes(address, &mut bytes)).then_some(bytes)
}

/// A string, in UTF-8.
fn string(address: u64) -> Option<Vec<u8>> {
    let head: [u64; STORAGE_WORD + 1] = words(address)?;
    let storage = head[STORAGE_WORD];
    let len = usize::try_from(head[LENGTH as usize / 8]).ok()?;
    let len = len.min(NAME_MAX);
    if storage & IS_COMPACT == 0 {
        return None;
    }
    if storage & IS_ASCII != 0 {
        return bytes(address + ASCII_TEXT, len);
    }
    // One, two or four bytes for each character.
    let width = (storage >> 2 & 7) as usize;
    if ![1, 2, 4].contains(&width) {
        return None;
    }
    let mut text = String::new();
    for unit in bytes(address + OTHER_TEXT, len * width)?.chunks_exact(width) {
        let number = unit
            .iter()
            .rev()
            .fold(0u32, |number, byte| number << 8 | u32::from(*byte));
        text.push(char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER));
    }
    let mut text = text.into_bytes();
    text.truncate(NAME_MAX);
    Some(text)
}

/// FNV-1a of a function and its file.
fn hash(text: &[u8], name_len: usize) -> u64 {
    let (name, file) = text.split_at(name_len);
    let bytes = name.iter().chain(&[0]).chain(file);
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}
